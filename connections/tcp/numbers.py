"""Numbers: which request an answer is to, where the engine says so (FEATURES=SEQ; docs/protocol.md, section 5)."""

from __future__ import annotations

import logging
from typing import Any

from ue_rl.errors import MalformedMessage, UeRlError, UnexpectedMessage
from ue_rl.wire import Codec
from ue_rl.wire.notices import ended_by

_log = logging.getLogger("ue_rl.connections")

_CURE = "an engine that announces FEATURES=SEQ ends each answer with the number of its request, once"


class Numbers:
    """Reads the numbers of answers, one for each connection; who asks counts the requests of each socket.

    Attributes:
        after: the highest number of the connection that this one replaces; 0: it replaces none.
        dropped: answers to that connection that have come on this one.
    """

    def __init__(self, codec: Codec) -> None:
        self._find = codec.find_number
        self.after = self.dropped = 0

    def end_of_rows(self, data: Any, start: int, end: int, number: int, env_id: int | None = None) -> int:
        """Where the rows of the line data[start:end] end, which must answer request `number`.

        Args:
            env_id: whose own socket it came on; None on a socket for all.

        Returns:
            -1 for an answer to the lost connection: it is counted, and the right one is still to come.

        Raises:
            MalformedMessage: no number, or none that can be read. UnexpectedMessage: that of another request.
            EngineDisconnected: the engine ends the session instead.
        """
        at, found = self._find(data, start, end)
        if found == number:
            return int(at)
        if 0 < found <= self.after:
            self.dropped += 1
            if self.dropped == 1:
                _log.warning("an answer to the connection that was lost has come late; such answers are dropped")
            return -1
        raise _wrong(bytes(data[start:end]), found, number, env_id)


def _wrong(line: bytes, found: int, number: int, env_id: int | None) -> UeRlError:
    if (ended := ended_by(line, env_id)) is not None:
        return ended
    if found > 0:
        late = found < number
        return UnexpectedMessage(
            "an answer came twice or too late" if late else "an answer to a request that was never made",
            fault="engine", env_id=env_id, field="SEQ", expected=f"the answer to request {number}",
            got=f"one to request {found}", cure="the game must answer each request exactly once, in turn",
        )  # fmt: skip
    return MalformedMessage(
        "an answer without the number of its request" if found == 0 else "the number of an answer cannot be read",
        fault="engine", env_id=env_id, field="SEQ", expected=f"SEQ={number} at the end of the line",
        got=line if len(line) < 80 else b"..." + line[-80:], cure=_CURE,
    )  # fmt: skip
