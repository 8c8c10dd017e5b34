"""Commands: the messages beside the steps, one FlatBuffers envelope per ring entry (docs/commands.md).

    ring.try_write(encode(Method.PING, messages().PingT(stamp=1), correlation_id=7))
    command = decode(ring.try_read())          command.payload.stamp == 1

Payloads are the classes of `messages()` whose names end in T; their fields are those of the two schemas (command.fbs,
physics.fbs) in camelCase. Needs the package `flatbuffers`; steps, and resets without options, do not.
`write_within` waits for room in a full ring. No I/O and no thread of its own.
"""

from __future__ import annotations

import copy
import functools
import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from types import ModuleType
from typing import Any

import numpy as np

from ue_rl.system.errors import ConfigurationError, MalformedMessage, RingFull

MAX_TEXT = 16 * 2**20  # bytes of all strings in one message: in a hostile one they may overlap, and each is copied


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


# The answers that are not Empty. What a request (or a message that wants no answer) carries has the method's own name.
_ANSWERS = {
    Method.PING: "Ping",
    Method.LIST_PARAMETERS: "Parameters",
    Method.GET_PARAMETERS: "Parameters",
    Method.GET_SCHEMA: "Schema",
    Method.JOINT_STATE: "JointState",
    Method.GET_TELEMETRY_SCHEMA: "TelemetrySchema",
    Method.GET_SCENE_INFO: "SceneInfo",
    Method.LIST_ENTITIES: "Entities",
    Method.GET_ENTITY: "Entity",
    Method.LIST_CAMERAS: "Cameras",
}
# (what a request carries, its answer): the tables of the schema, without the T.
PAYLOADS: dict[int, tuple[str, str]] = {
    method: (method.name.title().replace("_", ""), _ANSWERS.get(method, "Empty")) for method in Method
}

_LAST_OF_COMMAND_FBS = 13  # the highest payload number of its union; physics.fbs has those above

# Vectors of numbers that are not [float]; the generated code writes an array as it is, whatever its dtype.
_DTYPES = {"pixels": np.uint8, "methods": np.uint32, "envIds": np.int32}


@dataclass(frozen=True)
class Command:
    """One message.

    Args:
        correlation_id: pairs an answer with its request; 0: no answer is wanted.
        method: a Method, or a number of the game's own from 1000 on.
        payload: an object of `messages()`, or None.
        error: in an answer: why it could not be done; None: it was.
    """

    correlation_id: int
    method: int
    payload: Any = None
    error: str | None = None


@functools.cache
def messages() -> ModuleType:
    """The generated classes: ue_rl/protocol/commands/payloads.py.

    Raises:
        ConfigurationError: the package flatbuffers is not installed.
    """
    try:
        return importlib.import_module("ue_rl.protocol.commands.payloads")
    except ImportError as error:
        what = "commands over shared memory need the package flatbuffers"
        cure = "pip install flatbuffers"
        raise ConfigurationError(what, got=str(error), cure=cure) from error


def method_name(method: int) -> str:
    """For error messages: "PING", or the number of one that is not in Method."""
    try:
        return Method(method).name
    except ValueError:
        return str(int(method))


def encode(method: int, payload: Any = None, correlation_id: int = 0, error: str | None = None) -> bytes:
    """The ring entry's content: a size-prefixed FlatBuffer without its prefix, which is the entry's length.

    Args:
        payload: vectors of numbers may be lists, NumPy arrays of any shape whose numbers fit, or bytes (pixels).

    Raises:
        ConfigurationError: no payload class of the schema, or a field of a wrong type.
    """
    m = messages()
    flatbuffers = importlib.import_module("flatbuffers")
    physics = type(payload).__module__ == "ue_rl.protocol.commands.generated_physics"
    if physics:
        envelope = m.PhysicsEnvelopeT()
        union = m.PhysicsPayload
    else:
        envelope = m.EnvelopeT()
        union = m.Payload
    envelope.correlationId = correlation_id
    envelope.method = int(method)
    envelope.errorMessage = error
    try:
        if payload is not None:
            name = type(payload).__name__.removesuffix("T")
            if type(payload) is not getattr(m, f"{name}T", None) or not hasattr(union, name):
                raise TypeError(f"{type(payload).__name__} is no payload of the schemas")
            envelope.payloadType = getattr(union, name)
            envelope.payload = _flat_arrays(payload)
        builder = flatbuffers.Builder(256)
        builder.FinishSizePrefixed(envelope.Pack(builder))
        return bytes(builder.Output())[4:]
    except Exception as wrong:  # whatever the generated code raises: a field is wrong
        raise ConfigurationError(
            "a command cannot be written",
            field=type(payload).__name__,
            got=str(wrong),
            expected="a class of ue_rl.protocol.commands.messages(), with fields of its types",
        ) from wrong


def _flat_arrays(payload: Any) -> Any:
    """`payload`, or a copy of it whose arrays have the schema's dtypes and one dimension."""
    flat = payload
    for name, value in vars(payload).items():
        if isinstance(value, np.ndarray):
            dtype = _DTYPES.get(name, np.float32)
            array = value.astype(dtype, order="C", casting="same_kind", copy=False).reshape(-1)
            if array.dtype.kind != "f" and (array != value.reshape(-1)).any():
                raise ValueError(f"a number of {name} does not fit {array.dtype}")
        elif name == "pixels" and isinstance(value, (bytes, bytearray, memoryview)):
            if len(value):
                array = np.frombuffer(value, np.uint8)
            else:
                array = np.zeros(0, np.uint8)
        else:
            continue
        if flat is payload:
            flat = copy.copy(payload)
        setattr(flat, name, array)
    return flat


class _Entry(bytes):
    """A ring entry under the generated readers, which copy each string and cut one that ends outside."""

    room = MAX_TEXT

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            self.room -= at.stop - at.start
            if at.stop > len(self):
                raise IndexError("a string ends outside of the message")
            if self.room < 0:
                raise ValueError(f"its strings are longer than {MAX_TEXT} bytes")
        return super().__getitem__(at)


def decode(data: bytes, fault: str = "engine") -> Command:
    """The message in a ring entry.

    Args:
        fault: who wrote it, for the error.

    Raises:
        MalformedMessage: not an envelope of the schema.
    """
    m = messages()
    try:
        if len(data) < 8:
            raise ValueError("too short")
        envelope = m.EnvelopeT.InitFromPackedBuf(_Entry(data), 0)
        if envelope.payloadType > _LAST_OF_COMMAND_FBS:
            envelope = m.PhysicsEnvelopeT.InitFromPackedBuf(_Entry(data), 0)
        error = envelope.errorMessage
        return Command(
            int(envelope.correlationId), int(envelope.method), envelope.payload, None if error is None else text(error)
        )
    except Exception as wrong:  # whatever the generated code raises: these bytes are no envelope
        raise MalformedMessage(
            "a command cannot be read",
            fault=fault,
            field="Envelope",
            expected="ue_rl/protocol/commands/command.fbs",
            got=f"{len(data)} bytes: {wrong}",
        ) from wrong


def mismatch(method: int, payload: Any, answer: bool = False) -> str | None:
    """What is wrong with the payload of a message (or of an answer); None: it is the one that `method` has."""
    names = PAYLOADS.get(method)
    if names is None or names[answer] == "Empty":
        return None
    wanted = getattr(messages(), f"{names[answer]}T")
    if isinstance(payload, wanted) or (payload is None and not vars(wanted())):
        return None
    got = "no payload"
    if payload is not None:
        got = type(payload).__name__.removesuffix("T")
    return f"{method_name(method)}{' is answered with' if answer else ' carries'} {names[answer]}, got {got}"


def text(value: Any) -> str:
    """A string field, as the generated classes give it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    given = value or ""
    return str(given)


def write_within(
    try_write: Callable[[bytes], bool],
    data: bytes,
    seconds: float,
    name: str,
    meanwhile: Callable[[], object] | None = None,
) -> None:
    """Writes, waiting for room if need be.

    Args:
        try_write: appends to the ring and wakes its reader; False: it is full.
        seconds: how long. name: of the ring. meanwhile: called while waiting; it reads the other ring, so that two
            writers with full rings do not wait for each other, and checks that the reader is alive.

    Raises:
        RingFull: no room within `seconds`; nothing was written.
    """
    deadline = time.monotonic() + seconds
    while not try_write(data):
        if meanwhile is not None:
            meanwhile()
        if time.monotonic() >= deadline:
            fault = "trainer"
            if name == "cmd_c2s":
                fault = "engine"
            raise RingFull(
                "the other side does not read its commands",
                fault=fault,
                field=name,
                expected=f"room for {len(data)} bytes within {seconds:g} s",
                cure="is it paused, or does it not poll its command ring?",
            )
        time.sleep(2e-4)
