"""Every error that ue_rl raises on purpose, as one tree.

    UeRlError
    ├── ConfigurationError          a wrong argument or option           (also a ValueError)
    │   └── UntrustedFile           a file of unknown origin would run something, or is built to do harm
    ├── MissingPackage              what was asked for needs a package that is not installed  (also an ImportError)
    ├── TransportError              the way to the engine is broken
    │   ├── EngineUnreachable       nobody listens, or the host is unknown   (also a ConnectionError)
    │   │   └── EngineBusy          it serves another trainer
    │   ├── EngineTimeout           the engine did not answer in time        (also a TimeoutError)
    │   ├── EngineDisconnected      the engine went away                     (also a ConnectionError)
    │   ├── RingFull                the other side does not read its commands (also a TimeoutError)
    │   ├── EngineNotStarted        a command that we started ended, or did not listen, before its deadline
    │   ├── RestartsSpent           an engine was lost more often than the run allows
    │   ├── LearnerUnreachable      no RLlink server listens                 (also a ConnectionError)
    │   ├── LearnerTimeout          the RLlink server did not answer in time (also a TimeoutError)
    │   ├── LearnerDisconnected     the RLlink server went away              (also a ConnectionError)
    │   └── ConnectionUnusable      used after close() or after a failure
    ├── ProtocolError               the peer sent something that docs/protocol.md does not allow
    │   ├── HandshakeError          the CONFIG line is missing or malformed, or its values are not allowed
    │   │   └── AccessRefused       no token, a wrong one, or no TLS that both sides accept
    │   ├── MalformedMessage        an unparsable number, a missing or repeated field, a broken row
    │   ├── LineTooLong             no newline within the limit
    │   ├── WrongCount              a vector with too few or too many numbers
    │   ├── NonFiniteValue          NaN or infinity where a number belongs   (also a ValueError)
    │   ├── UnknownEnv              an ENV id outside 0..num_envs-1, or not this socket's
    │   ├── RepeatedEnv             a second answer where one was due
    │   ├── UnexpectedMessage       a well-formed message at the wrong moment
    │   └── SegmentInvalid          a shared-memory header, region or ring that docs/shared-memory.md does not allow
    ├── CommandFailed               the engine answered a command with an error
    ├── ActionError                 the policy's actions have a wrong shape, dtype or value  (also a ValueError)
    ├── UnsupportedByEngine         the engine does not offer what was asked for  (also an AttributeError)
    ├── ToolError                   a tool that does not exist, wrong arguments, or one that failed  (also a ValueError)
    ├── SessionError                a session of a game that does not wait: what was asked of it cannot be done
    │   ├── ResourceExhausted       all sessions are taken, or too many requests wait: try again later
    │   ├── SessionNotFound         there is no session of this id           (also a LookupError)
    │   ├── SessionEnded            it was destroyed, was idle for too long, or lost its agent or its game
    │   └── GameFailed              the game raised; its session has ended
    ├── ReplayInvalid               not a replay, a damaged one, or one that plays differently now
    ├── SaveFailed                  a checkpoint could not be written: the disk is full, or the folder is not ours
    ├── UnsupportedNetwork          a policy that RLlib has sent cannot be rebuilt here
    ├── ExportError                 a policy that cannot be exported, or whose file differs from predict()
    └── InferenceError              a model that cannot be loaded or run
        ├── ModelLoadError          not a readable ONNX policy
        ├── ModelMismatch           sizes or names differ from what the caller needs
        └── ModelOutputError        the model gave NaN, or a wrong shape or dtype

Each carries who is at fault, the env id, the field, what was expected, what came, and a cure; `str()`
puts them into one readable sentence. After a TransportError or a ProtocolError a connection is dead.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


def shorten(value: object, limit: int = 120) -> str:
    """`value` as text for an error message, cut to about `limit` characters."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        text = bytes(value[: limit * 4]).decode("utf-8", "backslashreplace").rstrip("\r\n")
        total = len(value)
    else:
        try:
            if isinstance(value, str):
                text = value
            else:
                text = repr(value)
        except (RecursionError, ValueError):  # nested too deep, or a number of more digits than Python writes
            text = f"a {type(value).__name__}"
        total = len(text)
    if len(text) > limit:
        return f"{text[:limit]}... ({total} characters)"
    return text


def printable(text: str, lines: bool = False) -> str:
    """`text` with what could steer a terminal (control characters, changes of direction) written as escapes.

    Args:
        lines: keep line feeds. For our own text alone: a peer's would begin a line of the log that nobody has written.
    """
    if text.isprintable():
        return text
    kept = ""
    if lines:
        kept = "\n"
    return "".join(c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text)


def nearest(word: str, words: Iterable[str], before: str = "") -> str | None:
    """A cure for a misspelt word: the one of `words` that looks most like it; None where none does.

    Args:
        before: what is to be written in front of it.
    """
    close = difflib.get_close_matches(word[:80], list(words), n=1)
    if close:
        return f"did you mean {before + close[0]!r}?"
    return None


def words_of(error: OSError) -> str:
    """What the system says of an error: without its number and the file's name, where it has such words."""
    return error.strerror or str(error)


def as_sentence(cure: str) -> str:
    """With a capital letter, unless it begins with code or a command."""
    word = cure.partition(" ")[0].rstrip(",:;")
    if word.isalpha() and word not in ("pip", "python"):
        return cure[:1].upper() + cure[1:]
    return cure


class UeRlError(Exception):
    """Base of all errors raised on purpose.

    Args:
        message: what happened, in one sentence without a full stop.
        fault: who has to act: "engine"; "trainer" (the program that trains or plays, its options and files); "caller"
            (the code that called this); "policy"; "model" (a file); "server" (of policies); "network".
        env_id: the environment concerned.
        field: the message field concerned, such as "OBS".
        expected: what would have been right.
        got: what came; cut short in the text.
        cure: what to do about it.
    """

    _fault: str | None = None  # of a kind of error, where the one who raises it names nobody

    def __init__(
        self,
        message: str,
        *,
        fault: str | None = None,
        env_id: int | None = None,
        field: str | None = None,
        expected: Any = None,
        got: Any = None,
        cure: str | None = None,
    ) -> None:
        self.message = message
        self.fault = fault or self._fault
        self.env_id = env_id
        self.field = field
        self.expected = expected
        self.got = got
        self.cure = cure
        super().__init__(message)

    def __str__(self) -> str:
        named = (("env", self.env_id), ("field", self.field))
        where = [f"{what} {value}" for what, value in named if value is not None]
        places = ""
        if where:
            places = f" ({', '.join(where)})"
        text = self.message + places
        for what, value in (("expected", self.expected), ("got", self.got)):
            if value is not None:
                text += f"; {what} {shorten(value)}"
        if self.fault is not None:
            text += f" [at fault: {self.fault}]"
        text = printable(text)
        if self.cure is not None:
            text += printable(f". {as_sentence(self.cure)}", lines=True)
        return text

    def facts(self, **others: Any) -> dict[str, Any]:
        """All but the message, with `others` in their places: for an error of another kind that says the same."""
        named = ("fault", "env_id", "field", "expected", "got", "cure")
        return {**{name: getattr(self, name) for name in named}, **others}

    def plain(self) -> str:
        """The sentence without who is at fault and what to do about it, for somebody else than who reads the log."""
        return str(UeRlError(self.message, **self.facts(fault=None, cure=None)))


class ConfigurationError(UeRlError, ValueError):
    """A wrong argument, option or file, found before anything was sent."""

    _fault = "caller"


class UntrustedFile(ConfigurationError):
    """A file of unknown origin would run something, or is built to do harm (docs/security.md)."""


class MissingPackage(UeRlError, ModuleNotFoundError):
    """What was asked for needs a package that is not installed."""

    _fault = "caller"


class TransportError(UeRlError):
    """The way to the engine is broken."""


class EngineUnreachable(TransportError, ConnectionError):
    """Nobody listens at the address, the host name is unknown, or there is no such shared memory."""

    _fault = "engine"


class EngineBusy(EngineUnreachable):
    """The engine serves another trainer, and said so."""

    _fault = "caller"


class EngineTimeout(TransportError, TimeoutError):
    """The engine did not answer, or did not read, within the deadline."""

    _fault = "engine"


class EngineDisconnected(TransportError, ConnectionError):
    """The engine closed the connection or died."""

    _fault = "engine"
    UNHEARD = "CONFIG"  # the field, where the connection was closed before a word was said

    @property
    def unheard(self) -> bool:
        """Did nobody say a word on it? A port that is published for a game (docker -p, ssh -L) accepts connections
        before the game listens, and closes them at once: who waits for an engine dials again.
        """
        return self.field == self.UNHEARD


class RingFull(TransportError, TimeoutError):
    """A command ring stayed full until the deadline: the other side does not read it. The connection stays usable."""


class EngineNotStarted(TransportError):
    """The command of a launched engine ended, or did not listen, before its deadline."""


class RestartsSpent(TransportError):
    """An engine was lost more often than the run allows (`--restarts`)."""


class LearnerUnreachable(TransportError, ConnectionError):
    """No RLlink server of RLlib listens at the address."""


class LearnerTimeout(TransportError, TimeoutError):
    """The RLlink server of RLlib did not answer within the deadline."""

    _fault = "server"


class LearnerDisconnected(TransportError, ConnectionError):
    """The RLlink server of RLlib closed the connection or died."""

    _fault = "server"


class ConnectionUnusable(TransportError):
    """The connection was used before connect(), after close() or after a failure."""


class ProtocolError(UeRlError):
    """The peer sent something that docs/protocol.md does not allow."""


class HandshakeError(ProtocolError):
    """The CONFIG line is missing or malformed, or its values are not allowed together or by this library."""

    _fault = "engine"


class AccessRefused(HandshakeError):
    """One side does not let the other in: no token or a wrong one, or no TLS that both accept (docs/security.md)."""

    _fault = "caller"


class MalformedMessage(ProtocolError):
    """A number that is none, a missing or repeated field, a flag other than 0 or 1, or a broken row."""


class LineTooLong(ProtocolError):
    """A line without a newline within the limit."""


class WrongCount(ProtocolError):
    """A vector with too few or too many numbers."""

    _fault = "engine"


class NonFiniteValue(ProtocolError, ValueError):
    """NaN, infinity or a value beyond float32 in an observation, a reward or an action."""


class UnknownEnv(ProtocolError):
    """An ENV id outside 0 to ENV_COUNT - 1, or one that is not this socket's."""


class RepeatedEnv(ProtocolError):
    """An answer of an env that was not asked, or a second answer or request of one."""

    _fault = "engine"


class UnexpectedMessage(ProtocolError):
    """A well-formed message at the wrong moment."""


class SegmentInvalid(ProtocolError):
    """A shared-memory header, region or ring that docs/shared-memory.md does not allow."""

    _fault = "engine"


class CommandFailed(UeRlError):
    """The engine answered a command with an error. The connection stays usable."""

    _fault = "engine"


class ActionError(UeRlError, ValueError):
    """The policy's actions have a wrong shape, dtype or value. Nothing was sent."""

    _fault = "policy"


class UnsupportedByEngine(UeRlError, AttributeError):
    """The engine does not offer what was asked for."""

    _fault = "caller"


class ToolError(UeRlError, ValueError):
    """A call of a tool that could not be made, or that failed.

    Args:
        message, about: as UeRlError.
        tool: its name.
        code: TOOL_NOT_FOUND, INVALID_PARAMETERS (nothing was called), or TOOL_EXECUTION_FAILED.
    """

    _fault = "caller"

    # With defaults, so that it can be unpickled.
    def __init__(self, message: str, *, tool: str = "", code: str = "TOOL_EXECUTION_FAILED", **about: Any) -> None:
        self.tool = tool
        self.code = code
        super().__init__(message, **about)


class SessionError(UeRlError):
    """What was asked of a session of a game that does not wait (ue_rl/plugins/sessions/realtime) cannot be done.

    Attributes:
        code: the name of the status of gRPC that says so.
    """

    code = "INTERNAL"


class ResourceExhausted(SessionError):
    """All sessions are taken, or as many requests wait as may. Nothing was done: a client tries again later."""

    code = "RESOURCE_EXHAUSTED"
    _fault = "caller"


class SessionNotFound(SessionError, LookupError):
    """There is no session of this id, and there was none lately."""

    code = "NOT_FOUND"
    _fault = "caller"


class SessionEnded(SessionError):
    """The session was destroyed, was idle for too long, or lost its agent or its game; the message says which."""

    code = "ABORTED"


class GameFailed(SessionError):
    """The game raised. Its session has ended, others go on; the traceback stands in the log of the game's side."""

    _fault = "engine"


class ReplayInvalid(UeRlError):
    """Not a replay, one that is damaged or of another game, or one that does not play as it was recorded."""


class SaveFailed(UeRlError):
    """A checkpoint could not be written; the last good one is as it was."""


class UnsupportedNetwork(UeRlError):
    """A policy that RLlib has sent cannot be rebuilt here, or does not fit the engine."""

    _fault = "server"


class ExportError(UeRlError):
    """A policy that cannot be exported, or whose file differs from predict(). No file is written."""

    _fault = "caller"


class InferenceError(UeRlError):
    """A model that cannot be loaded or run."""


class ModelLoadError(InferenceError):
    """Not a readable ONNX policy."""

    _fault = "caller"


class ModelMismatch(InferenceError):
    """The model's sizes or names differ from what the caller needs."""

    _fault = "caller"


class ModelOutputError(InferenceError):
    """The model gave NaN, a wrong shape or dtype, or a choice that the space does not have."""

    _fault = "model"
