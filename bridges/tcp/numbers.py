"""RequestNumbers: which request each row's answer belongs to, as a trainer counts (FEATURES=SEQ; docs/protocol.md, 5).

The engine echoes: it neither counts nor judges. A request without a number (0) is answered without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.text import Codec
from ue_rl.protocol.text.refusals import check_call_number
from ue_rl.system.errors import MalformedMessage

Rows = NDArray[np.int32]


class RequestNumbers:
    """The numbers of the requests that are open, of one session.

    Args:
        codec: the session's.

    Attributes:
        next: of each place (0: the first connection, i + 1: env i's own), the number that its next request is likely to
            have; 0: none.
    """

    def __init__(self, codec: Codec) -> None:
        self._find = codec.find_number
        self._echoes = codec.numbered
        self._agents = codec.spec.agents_per_env
        self.next = [int(codec.numbered)] * (codec.spec.num_envs + 1)
        self._several = False  # on the shared channel rows of more than one request are open
        self._of_env = np.zeros(codec.spec.num_envs, np.int64)  # means something only then

    def cut(self, line: Any, start: int, end: int) -> tuple[int, int]:
        """(where what is asked in the line ends, its number); raises MalformedMessage: SEQ is no number."""
        if not self._echoes:
            return end, 0
        at, number = self._find(line, start, end)
        if number < 0:
            raise MalformedMessage(
                "the number of a request cannot be read",
                fault="trainer",
                field="SEQ",
                expected="1 to 18 digits, from 1",
                got=bytes(line[at:end]),
            )
        return at, number

    def cut_call(self, line: bytes) -> tuple[bytes, int]:
        """(a call without its number, its number).

        Raises:
            MalformedMessage: SEQ is no number, or does not stand at the end alone.
        """
        end, number = self.cut(line, 0, len(line))
        if self._echoes:
            check_call_number(line[:end], "trainer")
        return line[:end], number

    def asked(self, place: int, number: int, before: NDArray[np.uint8] | None, command: NDArray[np.uint8]) -> None:
        """A request was read.

        Args:
            before: `command` as it was, where on the shared channel a request was still open; otherwise None.
            command: uint8 [num_rows], ActionBatch.command.
        """
        if not self._echoes:
            return
        if before is not None:
            if not self._several:
                self._of_env[:] = self.of(0)
                self._several = True
            self._of_env[((command != 0) & (before == 0)).reshape(-1, self._agents).any(axis=1)] = number
        elif not place:
            self._several = False
        if number:
            self.next[place] = number + 1
        else:
            self.next[place] = 0

    def of(self, place: int) -> int:
        """The number of the last request; 0: it had none."""
        return max(0, self.next[place] - 1)

    def of_row(self, row: int) -> int:
        """That of the request that asked for this row on the shared channel."""
        if self._several:
            return int(self._of_env[row // self._agents])
        return self.of(0)

    def lines(self, rows: Rows | None) -> Iterator[tuple[Rows | None, int]]:
        """(rows, number) of each line that answers `rows` (None: all) on the shared channel."""
        if not self._several:
            yield rows, self.of(0)
            return
        if rows is None:
            rows = np.arange(len(self._of_env) * self._agents, dtype=np.int32)
        numbers = self._of_env[rows // self._agents]
        for number in np.unique(numbers).tolist():
            yield rows[numbers == number], number
