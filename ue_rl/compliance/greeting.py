"""The beginning of a session in text: the handshake, and what comes instead of it."""

from __future__ import annotations

import time
from contextlib import suppress

from ue_rl.compliance.diagnosing import foreign_bytes, of_handshake
from ue_rl.compliance.peer import Wrong
from ue_rl.compliance.wire import Ended, NoLine, Silent, Wire
from ue_rl.errors import UeRlError
from ue_rl.spec import EnvSpec
from ue_rl.wire.handshake import MAX_HANDSHAKE, decode_handshake
from ue_rl.wire.notices import notice_of

_SILENCE = 0.15  # seconds without a word from us, in which env sockets should stay open
_BUSY_GRACE = 1.5  # seconds that an engine may need to notice that the trainer before has gone


class ClosedAtOnce(Wrong):
    """The engine closed the connection before its handshake."""


def greet(wire: Wire, within: float, ask_for_it: bool = True) -> tuple[EnvSpec, bytes, float]:
    """(spec, the line, seconds until it came) of an engine's handshake on a new connection.

    Args:
        ask_for_it: where none comes, look whether it comes after a request.

    Raises:
        Wrong: it does not come, or cannot be read.
    """
    began, grace, busy = time.perf_counter(), within, False
    while True:
        try:
            line = wire.line(grace, MAX_HANDSHAKE)
        except Ended as error:
            raise ClosedAtOnce("no-handshake", "the engine closed the connection", error.unread) from None
        except Silent as error:
            if busy:
                raise Wrong("busy", seen=b"BUSY") from None
            raise _without(wire, error.unread, within, ask_for_it) from None
        notice = notice_of(line.data)
        if notice is not None and notice[0] == "BUSY":
            busy, grace = True, _BUSY_GRACE
            continue
        if said := foreign_bytes(line.data):
            raise Wrong("not-plain-text", said, line.data)
        try:
            return decode_handshake(line.data), line.data, line.ended - began
        except UeRlError as error:
            raise of_handshake(error, line.data) from error


def _without(wire: Wire, unread: bytes, within: float, ask_for_it: bool) -> Wrong:
    """What is wrong with an engine that has sent no whole line."""
    if b"\r" in unread:
        return Wrong("carriage-return-only", seen=unread)
    if unread:
        return Wrong("no-newline", f"the handshake had not ended after {within:g} s", unread)
    with suppress(NoLine):
        if ask_for_it:
            wire.send(b"ACT=RESET;ENV=0\n")
            line = wire.line(within)
            if line.data.lstrip()[:7].upper() == b"CONFIG:":
                return Wrong("late-handshake", seen=line.data)
    return Wrong("no-handshake", f"nothing came within {within:g} s", unread)


def closes_in_silence(address: tuple[str, int], timeout: float, num_envs: int) -> bool:
    """Does the engine close env sockets on which nothing is said?"""
    wires: list[Wire] = []
    try:
        wires.append(Wire(address, timeout))
        greet(wires[0], timeout, False)
        wires += [Wire(address, timeout) for _ in range(num_envs)]
        for wire in wires:
            wire.quiet(_SILENCE / len(wires))
    except (Wrong, OSError, Ended):
        return True
    finally:
        for wire in wires:
            wire.close()
    return False
