"""What an engine can do wrong, and which named error a trainer must give for it: one table for every
transport.

    for case in FAULT_CASES: provoke(transport_to(FaultyEngine(case.script, ..)), case)

A case strikes at env 1 of three, so that a transport that always blames env 0 fails. `errors` holds the
wirings whose error differs: on a socket of its own, an env's wrong id is another mistake than in a batch,
and shared memory ("shm") has no text that could be malformed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ue_rl.devtools.testing.engines.faulty import Fault, FaultKind, Script
from ue_rl.protocol.transport import Transport
from ue_rl.system.errors import (
    EngineDisconnected,
    EngineTimeout,
    EngineUnreachable,
    HandshakeError,
    LineTooLong,
    MalformedMessage,
    NonFiniteValue,
    ProtocolError,
    RepeatedEnv,
    SegmentInvalid,
    UeRlError,
    UnexpectedMessage,
    UnknownEnv,
    WrongCount,
)

__all__ = ["FAULT_CASES", "NUM_ENVS", "FaultCase", "Wanted", "provoke"]

NUM_ENVS = 3
_GOOD = "OBS=1.5,1.5,1.5,1.5;REW=2;DONE=0;ENV=1"


@dataclass(frozen=True)
class Wanted:
    """The error that a trainer must give.

    Args:
        kind: its class, or several of which one must come where that is up to chance.
        env_id: the env that it must name, None where none can be known.
        field: the message field that it must name.
        text: what its text must contain, each of them.
    """

    kind: type[UeRlError] | tuple[type[UeRlError], ...]
    env_id: int | None = None
    field: str | None = None
    text: tuple[str, ...] = ()


@dataclass(frozen=True)
class FaultCase:
    """One way to fail.

    Args:
        name: for people.
        script: the engine's behaviour; three envs, four numbers per observation, two per action.
        wanted: the error, on any wiring.
        errors: wiring ("shared", "per_env", "shm") to the error, where `wanted` is not for all.
        only: the wirings to which the case applies.
    """

    name: str
    script: Script
    wanted: Wanted
    errors: dict[str, Wanted] = field(default_factory=dict)
    only: tuple[str, ...] = ("shared", "per_env", "shm")

    def wanted_on(self, wiring: str) -> Wanted:
        """The error on this wiring."""
        return self.errors.get(wiring, self.wanted)


def provoke(transport: Transport, steps: int = 4, now: Callable[[], float] = time.monotonic) -> tuple[UeRlError, float]:
    """Connects, resets and steps until the transport raises; (the error, seconds that the failing call took).

    Args:
        now: the clock that says how long it took.

    Raises:
        AssertionError: no error of the project was raised: the transport accepted what the engine sent.
    """
    start = now()
    try:
        spec = transport.connect()
        actions = np.full((spec.num_rows, spec.act_size), 0.25, np.float32)
        transport.reset()
        transport.receive()
        for _ in range(steps):
            start = now()
            transport.send_actions(actions)
            start = now()
            transport.receive()
    except UeRlError as error:
        return error, now() - start
    raise AssertionError(f"{steps} steps went through as if nothing had happened")


_TEXT = ("shared", "per_env")
_SHARED = ("shared",)
_ALL = (*_TEXT, "shm")


def _at_row(
    name: str,
    kind: FaultKind,
    wanted: Wanted,
    text: str | None = None,
    only: tuple[str, ...] = _ALL,
    extra: str = "",
    **errors: Wanted,
) -> FaultCase:
    """Strikes at env 1's request number 2; `errors` are the wirings whose error differs. `extra`: see Script."""
    script = Script(faults=(Fault(kind, env=1, step=2, text=text),), extra=extra)
    return FaultCase(name, script, wanted, errors, only)


def _bad_row(name: str, row: str, wanted: Wanted, **errors: Wanted) -> FaultCase:
    """A row of this text; also in shared memory where the error there is given."""
    return _at_row(name, FaultKind.MALFORMED, wanted, row, _ALL if "shm" in errors else _TEXT, "", **errors)


def _extended(name: str, config: str, row: str, wanted: Wanted, only: tuple[str, ...] = _TEXT) -> FaultCase:
    """A row of this text in a session with keys of version 1.1."""
    script = Script(handshake=f"{_CONFIG};VERSION=1;{config}", faults=(Fault(FaultKind.MALFORMED, 1, 2, row),))
    return FaultCase(name, script, wanted, only=only)


def _handshake(name: str, line: str | None, wanted: Wanted) -> FaultCase:
    return FaultCase(name, Script(handshake=line), wanted)


_CONFIG = "CONFIG:OBS=4;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=3"
_MASKS = "ACT_SPACE=MULTI_DISCRETE(2,3);FEATURES=MASK"
_AGENTS = "CHANNEL=SHARED;AGENTS=ant:2"
_ONE_AGENT = "AGENTS=walker:1"  # a row an env, as the engine in shared memory lays its rows out

# fmt: off
FAULT_CASES: tuple[FaultCase, ...] = (
    # the handshake
    _handshake("no handshake", None, Wanted(HandshakeError, text=("no handshake", "CONFIG:..", "nothing"))),
    _handshake("not a handshake", "HELLO", Wanted(HandshakeError, text=("HELLO", "CONFIG:"))),
    _handshake("no ACT", _CONFIG.replace("ACT=2;", ""), Wanted(HandshakeError, field="ACT")),
    _handshake("ACT is no number", _CONFIG.replace("ACT=2", "ACT=two"),
        Wanted(HandshakeError, field="ACT", text=("two",))),
    _handshake("no envs", _CONFIG.replace("COUNT=3", "COUNT=0"),
        Wanted(HandshakeError, field="ENV_COUNT", text=("1 to",))),
    _handshake("a key twice", _CONFIG + ";OBS=4", Wanted(HandshakeError, field="OBS")),
    _handshake("from the future", _CONFIG + ";VERSION=99", Wanted(HandshakeError, field="VERSION", text=("99",))),
    _handshake("a reason instead of a handshake", "ERROR=no%20memory",
        Wanted(EngineDisconnected, field="ERROR", text=("no memory",))),
    _handshake("a binary handshake", "\x16\x03\x01\x00\x00", Wanted(HandshakeError)),
    _handshake("an endless handshake", "CONFIG:" + "X" * 200_000,
        Wanted((LineTooLong, HandshakeError), text=("65536",))),
    FaultCase("closes after the handshake", Script(close_after_handshake=True),
        Wanted(EngineDisconnected, text=("closed",)),
        {"per_env": Wanted((EngineUnreachable, EngineDisconnected), text=("0 of 3 env sockets",))}),
    FaultCase("refuses all env sockets", Script(accepts=1),
        Wanted(EngineUnreachable, text=("0 of 3 env sockets", "channel='shared'")), only=("per_env",)),
    # the kernel may accept one more before the engine has closed its listener
    FaultCase("refuses half of the env sockets", Script(accepts=3), Wanted((EngineUnreachable, EngineDisconnected)),
        only=("per_env",)),
    FaultCase("speaks unasked", Script(after_handshake=_GOOD + "\n"), Wanted(UnexpectedMessage, text=("nobody asked",)),
        only=("shared", "shm")),
    # the engine dies or falls silent
    _at_row("closes", FaultKind.DROP, Wanted(EngineDisconnected, text=("went away",))),
    _at_row("crashes", FaultKind.CRASH, Wanted(EngineDisconnected, text=("went away",))),
    # another env's end may be seen first
    _at_row("dies within a line", FaultKind.HALF_LINE, Wanted(EngineDisconnected, text=("unfinished line",)),
        per_env=Wanted(EngineDisconnected), shm=Wanted(EngineDisconnected, text=("went away",))),
    _at_row("falls silent", FaultKind.SILENCE, Wanted(EngineTimeout, text=("0 of 3 envs", "envs [0, 1, 2]")),
        per_env=Wanted(EngineTimeout, text=("of 3 envs",))),
    _at_row("forgets an env", FaultKind.MISSING, Wanted(EngineTimeout, 1, text=("2 of 3 envs", "envs [1]"))),
    FaultCase("never answers at all",
        Script(faults=tuple(Fault(FaultKind.SILENCE, env=env, step=0) for env in range(NUM_ENVS))),
        Wanted(EngineTimeout, text=("0 of 3 envs", "channel=")),
        {"shm": Wanted(EngineTimeout, text=("0 of 3 envs", "Its loop"))}),
    # numbers
    _at_row("too few numbers", FaultKind.TOO_FEW, Wanted(WrongCount, 1, "OBS", ("4 numbers", "3 came")), only=_TEXT),
    _at_row("too many numbers", FaultKind.TOO_MANY, Wanted(WrongCount, 1, "OBS", ("4 numbers", "5 came")), only=_TEXT),
    _at_row("nan", FaultKind.NAN, Wanted(NonFiniteValue, 1, "OBS", ("nan",))),
    _at_row("inf reward", FaultKind.INF, Wanted(NonFiniteValue, 1, "REW", ("inf",))),
    _bad_row("beyond float32", _GOOD.replace("1.5", "1e39", 1), Wanted(NonFiniteValue, 1, "OBS", ("1e39",)),
        shm=Wanted(NonFiniteValue, 1, "OBS", ("inf",))),
    _bad_row("windows' nan", _GOOD.replace("1.5", "-nan(ind)", 1), Wanted(NonFiniteValue, 1, "OBS", ("nan(ind)",)),
        shm=Wanted(NonFiniteValue, 1, "OBS", ("nan",))),
    _bad_row("not a number", _GOOD.replace("1.5", "two", 1), Wanted(MalformedMessage, 1, "OBS", ("two",))),
    _at_row("two points", FaultKind.MALFORMED, Wanted(MalformedMessage, 1, "OBS", ("1.2.3",)), only=_TEXT),
    _bad_row("a hole", _GOOD.replace("1.5,", ",", 1), Wanted(MalformedMessage, 1, "OBS")),
    _bad_row("hexadecimal", _GOOD.replace("1.5", "0x1p3", 1), Wanted(MalformedMessage, 1, "OBS", ("0x1p3",))),
    # fields
    _bad_row("no reward", _GOOD.replace("REW=2;", ""), Wanted(MalformedMessage, 1, "REW")),
    _bad_row("no done", _GOOD.replace("DONE=0;", ""), Wanted(MalformedMessage, 1, "DONE")),
    _bad_row("done is no flag", _GOOD.replace("DONE=0", "DONE=7"), Wanted(MalformedMessage, 1, "DONE", ("DONE=7",)),
        shm=Wanted(MalformedMessage, 1, "DONE", ("DONE=7",))),
    _bad_row("reward twice", _GOOD.replace("REW=2", "REW=2;REW=3"), Wanted(MalformedMessage, 1, "REW")),
    _bad_row("stray text", "PROBLEM IS HERE", Wanted(MalformedMessage, text=("PROBLEM",))),
    _bad_row("the handshake again", _CONFIG, Wanted(ProtocolError, text=("CONFIG",))),
    _bad_row("an empty row", _GOOD + "||", Wanted(MalformedMessage)),
    _at_row("garbage", FaultKind.GARBAGE, Wanted(ProtocolError)),
    # masks and agents
    _at_row("a mask without a choice", FaultKind.MALFORMED,
        Wanted(MalformedMessage, 1, "MASK", ("without a choice", "number 1")), f"{_GOOD};MASK=01000", extra=_MASKS),
    _at_row("an agent that acted is not there", FaultKind.MALFORMED,
        Wanted(MalformedMessage, 1, "AGENT", ("missing", "agent walker")), f"{_GOOD};PRESENT=0", ("shm",),
        _ONE_AGENT),
    # env ids
    _at_row("unknown env", FaultKind.WRONG_ENV, Wanted(UnknownEnv, field="ENV", text=("0 to 2", "ENV=3")),
        shm=Wanted(UnknownEnv, field="ENV", text=("0 to 2", "3"))),
    _bad_row("negative env", _GOOD.replace("ENV=1", "ENV=-1"), Wanted(ProtocolError, field="ENV", text=("-1",))),
    _at_row("another env's id", FaultKind.OTHER_ENV, Wanted(RepeatedEnv, 2), only=_TEXT,
        per_env=Wanted(UnknownEnv, 1, "ENV", ("names env 2",))),
    _at_row("no env id", FaultKind.NO_ENV, Wanted(MalformedMessage, field="ENV"), only=("shared",)),
    _at_row("answers twice", FaultKind.TWICE, Wanted(RepeatedEnv, 1),
        per_env=Wanted((RepeatedEnv, UnexpectedMessage), 1),
        shm=Wanted(UnexpectedMessage, field="frame_seq", text=("more than once",))),
    # masks and agents
    _extended("a mask too short", _MASKS, f"{_GOOD};MASK=1101", Wanted(WrongCount, 1, "MASK", ("5 flags", "4 came"))),
    _extended("a mask too long", _MASKS, f"{_GOOD};MASK=110111", Wanted(WrongCount, 1, "MASK", ("5 flags", "6 came"))),
    _extended("no legal choice", _MASKS, f"{_GOOD};MASK=11000", Wanted(MalformedMessage, 1, "MASK", ("number 1",))),
    _extended("a mask that is none", _MASKS, f"{_GOOD};MASK=yes", Wanted(MalformedMessage, 1, "MASK", ("yes",))),
    _extended("an unknown agent", _AGENTS, f"{_GOOD};AGENT=2", Wanted(UnknownEnv, 1, "AGENT", ("0 to 1",)), _SHARED),
    _extended("a missing agent", _AGENTS, f"{_GOOD};AGENT=1",
        Wanted(MalformedMessage, 1, "AGENT", ("missing", "ant_0")), _SHARED),
    _extended("an agent without a name", _AGENTS, _GOOD, Wanted(MalformedMessage, 1, "AGENT"), _SHARED),
    _at_row("says why it ends", FaultKind.MALFORMED, Wanted(EngineDisconnected, 1, "ERROR", ("out of memory",)),
        "ERROR=out%20of%20memory", ("per_env",)),
    # sizes
    _at_row("an endless line", FaultKind.OVERSIZE, Wanted(LineTooLong, text=("newline within",)),
        shm=Wanted(SegmentInvalid, text=("longer than what was written",))),
)
# fmt: on
