"""Commands: the messages beside the steps, one FlatBuffers envelope per ring entry.

    ring.try_write(encode(Method.PING, PingT(stamp=1), correlation_id=7))
    command = decode(ring.try_read())          command.payload.stamp == 1

Payloads are the classes of ue_rl/generated/command.py whose names end in T; their fields are those of the schema
(ue_rl/schema/command.fbs) in camelCase. Needs the package `flatbuffers`; steps, and resets without options, do not.
Dispatcher answers requests (the engine's side, polled from its tick); `write_within` waits for room in a full ring.
"""

from __future__ import annotations

import importlib
import logging
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from types import ModuleType
from typing import Any

from ue_rl.errors import ConfigurationError, MalformedMessage, RingFull, UeRlError
from ue_rl.shm_ring import Ring

_log = logging.getLogger("ue_rl.commands")

_BROKEN = (struct.error, IndexError, TypeError, ValueError, AttributeError, OverflowError, MemoryError, RecursionError)


class Method(IntEnum):
    """What an envelope asks for; an answer repeats its request's."""

    PING = 1
    CLOSE = 2
    SET_TIME_SCALE = 3
    LIST_PARAMETERS = 16
    GET_PARAMETERS = 17
    SET_PARAMETERS = 18
    GET_SCHEMA = 32
    RESET_AGENT = 33
    RESET_OPTIONS = 34
    ENV_INFO = 35
    JOINT_STATE = 48
    JOINT_CONTROL = 49
    GET_TELEMETRY_SCHEMA = 64
    TELEMETRY_STREAM = 65
    TELEMETRY_FRAME = 66
    GET_SCENE_INFO = 80
    LIST_ENTITIES = 81
    GET_ENTITY = 82
    SET_ENTITY = 83
    SET_SIMULATION_MODE = 84
    LIST_CAMERAS = 96
    STREAM_CAMERA = 97
    STREAM_VIEWPORT = 98
    IMAGE_FRAME = 99
    DEBUG_DRAW = 112


@dataclass(frozen=True)
class Command:
    """One message.

    Args:
        correlation_id: pairs an answer with its request; 0: no answer is wanted.
        method: a Method, or a number of the game's own from 1000 on.
        payload: an object of ue_rl/generated/command.py, or None.
        error: in an answer: why it could not be done; None: it was.
    """

    correlation_id: int
    method: int
    payload: Any = None
    error: str | None = None


def messages() -> ModuleType:
    """The generated classes.

    Raises:
        ConfigurationError: the package flatbuffers is not installed.
    """
    try:
        return importlib.import_module("ue_rl.generated.command")
    except ImportError as error:
        raise ConfigurationError(
            "commands over shared memory need the package flatbuffers", fault="caller", got=str(error),
            cure="pip install flatbuffers",
        ) from error  # fmt: skip


def _flatbuffers() -> Any:
    return importlib.import_module("flatbuffers")


def encode(method: int, payload: Any = None, correlation_id: int = 0, error: str | None = None) -> bytes:
    """The ring entry's content: a size-prefixed FlatBuffer without its prefix, which is the entry's length.

    Raises:
        ConfigurationError: no payload class of the schema, or a field of a wrong type.
    """
    m, flatbuffers = messages(), _flatbuffers()

    envelope = m.EnvelopeT()
    envelope.correlationId, envelope.method, envelope.errorMessage = correlation_id, int(method), error
    try:
        if payload is not None:
            envelope.payloadType = getattr(m.Payload, type(payload).__name__.removesuffix("T"))
            envelope.payload = payload
        builder = flatbuffers.Builder(256)
        builder.FinishSizePrefixed(envelope.Pack(builder))
        return bytes(builder.Output())[4:]
    except _BROKEN as wrong:
        raise ConfigurationError(
            "a command cannot be written", fault="caller", field=type(payload).__name__, got=str(wrong),
            expected="a class of ue_rl/generated/command.py, with fields of its types",
        ) from wrong  # fmt: skip


def decode(data: bytes) -> Command:
    """The message in a ring entry.

    Raises:
        MalformedMessage: not an envelope of the schema.
    """
    m = messages()
    try:
        if len(data) < 8:
            raise ValueError(f"{len(data)} bytes")
        envelope = m.EnvelopeT.InitFromPackedBuf(data, 0)
        error = envelope.errorMessage
        return Command(
            int(envelope.correlationId), int(envelope.method), envelope.payload,
            None if error is None else error.decode("utf-8", "replace") if isinstance(error, bytes) else str(error),
        )  # fmt: skip
    except _BROKEN as wrong:
        raise MalformedMessage(
            "a command cannot be read", fault="engine", field="Envelope", expected="ue_rl/schema/command.fbs",
            got=f"{len(data)} bytes: {wrong}",
        ) from wrong  # fmt: skip


def text(value: Any) -> str:
    """A string field, as the generated classes give it."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def write_within(
    ring: Ring, data: bytes, seconds: float, nudge: Callable[[], None], meanwhile: Callable[[], object] | None = None
) -> None:
    """Writes, waiting for room if need be.

    Args:
        seconds: how long. nudge: wakes the reader. meanwhile: called while waiting; reads the other ring, so that
            two writers with full rings do not wait for each other.

    Raises:
        RingFull: no room within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not ring.try_write(data):
        nudge()
        if meanwhile is not None:
            meanwhile()
        if time.monotonic() > deadline:
            raise RingFull(
                "the other side does not read its commands", fault="engine", field=ring.name,
                expected=f"room for {len(data)} bytes within {seconds:g} s",
                cure="is it paused, or does it not poll its command ring?",
            )  # fmt: skip
        time.sleep(2e-4)
    nudge()


Handler = Callable[[Any, Command], Any]


class Dispatcher:
    """Answers requests: handlers by method.

    A handler gets (payload, command) and returns the answer's payload, or None for an empty one. What it raises becomes
    the answer's error message: an error in one command must not end the game.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Handler] = {}

    def register(self, method: int, handler: Handler) -> None:
        """Sets the handler of `method`, a Method or a number of your own from 1000 on."""
        self._handlers[int(method)] = handler

    @property
    def methods(self) -> list[int]:
        """What has a handler."""
        return sorted(self._handlers)

    def answer(self, data: bytes) -> bytes | None:
        """The answer to one ring entry; None where none is wanted.

        Raises:
            MalformedMessage: the entry is no envelope.
        """
        command = decode(data)
        handler = self._handlers.get(command.method)
        payload, problem = None, None
        if handler is None:
            problem = f"this engine does not know method {command.method}"
        else:
            try:
                payload = handler(command.payload, command)
            except UeRlError as error:
                problem = str(error)
            except Exception as error:  # noqa: BLE001 - the game's own code: the requester is told, the game goes on
                _log.exception("the handler of method %d failed", command.method)
                problem = f"{type(error).__name__}: {error}"
        if not command.correlation_id:
            if problem is not None:
                _log.warning("a command without an answer failed: %s", problem)
            return None
        return encode(command.method, payload, command.correlation_id, problem)
