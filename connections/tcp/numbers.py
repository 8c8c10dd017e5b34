"""AnswerNumbers: which request an answer is to, where the engine says so (FEATURES=SEQ; docs/protocol.md, 5)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from ue_rl.protocol.spec import EnvSpec, EnvType
from ue_rl.protocol.text import Codec
from ue_rl.protocol.text.calls import read_ok, read_picture, read_values, write_get, write_pause, write_render
from ue_rl.protocol.text.notices import ended_by
from ue_rl.protocol.text.refusals import check_call_number
from ue_rl.system.errors import CommandFailed, MalformedMessage, UeRlError, UnexpectedMessage

_log = logging.getLogger("ue_rl.connections")

_CURE = "an engine that announces FEATURES=SEQ ends each answer with the number of its request, once"


class AnswerNumbers:
    """Reads the numbers of answers, one for each connection; who asks counts the requests of each socket.

    Attributes:
        lost_up_to: the highest number of the connection that this one replaces; 0: it replaces none.
        dropped: answers to that connection that have come on this one.
    """

    def __init__(self, codec: Codec) -> None:
        self._find = codec.find_number
        self.lost_up_to = self.dropped = 0

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
        if self._is_late(found):
            return -1
        raise _wrong(bytes(data[start:end]), found, number, env_id)

    def is_due(self, found: int, number: int, message: bytes) -> bool:
        """Does a message with the number `found` answer request `number`? False: it is one to the lost connection.

        Raises:
            UnexpectedMessage: it answers another request.
        """
        if found == number:
            return True
        if self._is_late(found):
            return False
        raise _wrong(message, found, number, None)

    def _is_late(self, found: int) -> bool:
        """Is that the number of an answer to the lost connection? Then it is counted."""
        if not 0 < found <= self.lost_up_to:
            return False
        self.dropped += 1
        if self.dropped == 1:
            _log.warning("an answer to the connection that was lost has come late; such answers are dropped")
        return True

    def end_of_call(self, data: Any, start: int, end: int, number: int) -> int:
        """`end_of_rows` for the answer to a call, whose fields no kernel reads: it must hold no number before."""
        end = self.end_of_rows(data, start, end, number)
        if end >= 0:
            check_call_number(bytes(data[start:end]), "engine")
        return end


def _wrong(line: bytes, found: int, number: int, env_id: int | None) -> UeRlError:
    if (ended := ended_by(line, env_id)) is not None:
        return ended
    if found > 0:
        late = found < number
        problem = "an answer to a request that was never made"
        if late:
            problem = "an answer came twice or too late"
        return UnexpectedMessage(
            problem,
            fault="engine",
            env_id=env_id,
            field="SEQ",
            expected=f"the answer to request {number}",
            got=f"one to request {found}",
            cure="the game must answer each request exactly once, in turn",
        )
    if len(line) < 80:
        got = line
    else:
        got = b"..." + line[-80:]
    return MalformedMessage(
        "an answer without the number of its request" if found == 0 else "the number of an answer cannot be read",
        fault="engine",
        env_id=env_id,
        field="SEQ",
        expected=f"SEQ={number} at the end of the line",
        got=got,
        cure=_CURE,
    )


def ask_anything(call: Callable[[str], str], spec: EnvSpec) -> bool:
    """Without numbers, before a lost connection is replaced: makes a call that changes nothing, and checks its answer.

    Args:
        call: Transport.call.

    Returns:
        False where the engine has no such call.

    Raises:
        ProtocolError: it answered something else. Also what `call` raises.
    """
    known: list[tuple[bool, str, Callable[[str], object]]] = [
        (bool(spec.parameters), write_get(), read_values),
        ("PAUSE" in spec.features, write_pause(False), read_ok),
        ("RENDER" in spec.features, write_render(0), read_picture),
    ]
    for has, line, read in known:
        if has and spec.version and spec.env_type is not EnvType.RLBASE:
            with contextlib.suppress(CommandFailed):  # refused: an answer all the same
                read(call(line))
            return True
    return False
