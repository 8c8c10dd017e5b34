"""Numbers: which request each row's answer belongs to (FEATURES=SEQ; docs/protocol.md, section 5), as a trainer counts.

The engine echoes: it neither counts nor judges. A request without a number (0) is answered without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.errors import MalformedMessage
from ue_rl.wire import Codec

Rows = NDArray[np.int32]


class Numbers:
    """The numbers of the requests that are open, of one session.

    Args:
        codec: the session's. echoes: the handshake announces SEQ; otherwise it is a field that nobody reads.
    """

    def __init__(self, codec: Codec, echoes: bool) -> None:
        self._find, self._echoes = codec.find_number, echoes
        self._agents = codec.spec.agents_per_env
        self._latest, self._several = 0, False  # several: rows of more than one request are open
        self._spoken = False
        self._of_env = np.zeros(codec.spec.num_envs, np.int64)

    def expected(self, env: int | None) -> int:
        """The number that the next request is likely to have, on an env's own socket or on the shared channel."""
        if not self._echoes:
            return -1
        last = self._latest if env is None else self.of(env)
        return last + 1 if last or not self._spoken else 0

    def cut(self, line: Any, start: int, end: int) -> tuple[int, int]:
        """(where the asks of the line end, its number).

        Raises:
            MalformedMessage: SEQ is no number.
        """
        if not self._echoes:
            return end, 0
        at, number = self._find(line, start, end)
        if number < 0:
            raise MalformedMessage(
                "the number of a request cannot be read", fault="trainer", field="SEQ",
                expected="1 to 18 digits, from 1", got=bytes(line[at:end]),
            )  # fmt: skip
        return at, number

    def asked(self, number: int, env: int | None, before: NDArray[np.uint8] | None, command: NDArray[np.uint8]) -> None:
        """A request was read.

        Args:
            env: whose own socket it came on; None on the shared channel.
            before: `command` as it was, where a request was still open; None where none was.
            command: uint8 [num_rows], ActionBatch.command.
        """
        self._spoken = True
        if env is not None:
            self._of_env[env] = number
        elif before is None:
            self._latest, self._several = number, False
        elif self._echoes:
            if not self._several:
                self._of_env[:], self._several = self._latest, True
            self._of_env[((command != 0) & (before == 0)).reshape(-1, self._agents).any(axis=1)] = number

    def of(self, env: int) -> int:
        """That of the last request on this env's own socket."""
        return int(self._of_env[env])

    def lines(self, rows: Rows | None) -> Iterator[tuple[Rows | None, int]]:
        """(rows, number) of each line that answers `rows` (None: all) on the shared channel."""
        if not self._several:
            yield rows, self._latest
            return
        if rows is None:
            rows = np.arange(len(self._of_env) * self._agents, dtype=np.int32)
        numbers = self._of_env[rows // self._agents]
        for number in np.unique(numbers).tolist():
            yield rows[numbers == number], number
