"""The envelope of the command rings, without a ring: every payload, hostile bytes, the schema."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.properties import examples
from ue_rl.protocol.commands import envelope as commands
from ue_rl.protocol.commands.dispatcher import Dispatcher
from ue_rl.protocol.commands.envelope import PAYLOADS, Command, Method, decode, encode, messages, text
from ue_rl.system import errors

ROOT = Path(__file__).resolve().parents[3]
BASE, PHYSICS = (
    (ROOT / "ue_rl" / "protocol" / "commands" / f"{name}.fbs").read_text("utf-8") for name in ("command", "physics")
)
SCHEMA = BASE + PHYSICS
M = messages()

FLOATS = {"float", "double"}
INTEGERS = {
    "ulong": (0, 2**64 - 1),
    "long": (-(2**63), 2**63 - 1),
    "uint": (0, 2**32 - 1),
    "int": (-(2**31), 2**31 - 1),
}
INTEGERS |= {"ubyte": (0, 255), "Mode": (0, 2)}
DTYPES = {"float": np.float32, "ubyte": np.uint8, "uint": np.uint32, "int": np.int32}


def bodies(kind: str) -> dict[str, dict[str, str]]:
    """Name to {field: type} of every table (or struct) of the schema."""
    plain = re.sub(r"//.*", "", SCHEMA)
    found = re.findall(rf"\b{kind}\s+(\w+)\s*{{(.*?)}}", plain, re.S)
    return {name: dict(re.findall(r"(\w+)\s*:\s*(\[?\w+\]?)", body)) for name, body in found}


TABLES, STRUCTS = bodies("table"), bodies("struct")


def union(schema: str) -> list[str]:
    """The names of its payloads, in order."""
    body = re.search(r"union \w+\s*{(.*?)}", re.sub(r"//.*", "", schema), re.S)
    assert body is not None
    return re.findall(r"[A-Z]\w+", body[1])


UNIONS = {"Payload": union(BASE), "PhysicsPayload": union(PHYSICS)}
UNION = [*UNIONS["Payload"], *UNIONS["PhysicsPayload"]]


def number(name: str) -> int:
    """A payload's in its union."""
    return int(getattr(M.PhysicsPayload if name in UNIONS["PhysicsPayload"] else M.Payload, name))


def camel(field: str) -> str:
    head, *rest = field.split("_")
    return head + "".join(part.capitalize() for part in rest)


def value_of(kind: str) -> st.SearchStrategy[Any]:
    """What a field of this type may hold, for hypothesis."""
    if kind.startswith("["):
        item = kind[1:-1]
        if item in DTYPES:
            return st.lists(value_of(item), max_size=5).map(lambda xs: np.array(xs, DTYPES[item]))
        return st.lists(value_of(item), max_size=4)
    if kind in FLOATS:
        return st.floats(width=32 if kind == "float" else 64, allow_nan=False)
    if kind in INTEGERS:
        return st.integers(*INTEGERS[kind])
    if kind == "bool":
        return st.booleans()
    if kind == "string":
        return st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
    return made(kind)


def made(name: str) -> st.SearchStrategy[Any]:
    """Objects of a table or struct with all fields set."""
    fields = {camel(field): value_of(kind) for field, kind in (TABLES | STRUCTS)[name].items()}
    return st.builds(getattr(M, f"{name}T"), **fields)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, str):
        return a == text(b)
    if isinstance(a, np.ndarray):
        return a.dtype == np.asarray(b).dtype and np.array_equal(a, b)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "__dict__"):
        return type(a) is type(b) and all(same(value, vars(b)[name]) for name, value in vars(a).items())
    return bool(a == b)


# -- the schema and what was generated from it


def test_generated_code_and_schema_agree() -> None:
    for name, fields in (TABLES | STRUCTS).items():
        wanted = {camel(field) for field in fields} | ({"payloadType"} if name.endswith("Envelope") else set())
        assert set(vars(getattr(M, f"{name}T")())) == wanted, name
        readers = {field[0].upper() + field[1:] for field in wanted}
        assert readers <= set(dir(getattr(M, name))), name
    for name, members in UNIONS.items():
        assert {n for n in vars(getattr(M, name)) if not n.startswith("_")} == {"NONE", *members}
    assert [number(name) for name in UNION] == list(range(1, len(UNION) + 1))
    assert len(UNIONS["Payload"]) == commands._LAST_OF_COMMAND_FBS
    generated = vars(import_module("ue_rl.protocol.commands.generated")) | vars(
        import_module("ue_rl.protocol.commands.generated_physics")
    )
    classes = {n[:-1] for n, c in generated.items() if isinstance(c, type) and n.endswith("T") and hasattr(c, "Pack")}
    assert classes == set(TABLES | STRUCTS)


def test_both_envelopes_are_the_same_on_the_wire() -> None:
    assert TABLES["PhysicsEnvelope"] == {**TABLES["Envelope"], "payload": "PhysicsPayload"}
    assert list(TABLES["PhysicsEnvelope"]) == list(TABLES["Envelope"]), "the order of fields is the layout"


def test_physics_is_loaded_when_it_is_used() -> None:
    code = (
        "import sys\nfrom ue_rl.protocol.commands import Method, decode, encode, messages\nm = messages()\n"
        "assert decode(encode(Method.PING, m.PingT(stamp=1))).payload.stamp == 1\n"
        "assert decode(encode(Method.PING)).payload is None\n"
        "assert 'ue_rl.protocol.commands.generated_physics' not in sys.modules\n"
        "assert decode(encode(Method.GET_ENTITY, m.GetEntityT(id=7))).payload.id == 7\n"
        "assert 'ue_rl.protocol.commands.generated_physics' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


OLD_PING = (
    "1400000000000e001e0010000c0000000b0004000e0000002000000000000002d2040000090000000000000000000000000006000c0004"
    "00060000000500000000000000"
)
OLD_GET_ENTITY = (
    "1400000000000e001e0010000c0000000b0004000e0000002000000000000018d2040000090000000000000000000000000006000c0004"
    "00060000000700000000000000"
)
OLD_TELEMETRY = (
    "1400000000000e001a0010000c0000000b0004000e0000002000000000000013d2040000090000000000000000000a0018000c00080004"
    "000a0000000300000010000000000000000000e03f00000000020000000000803f00000040"
)


def test_the_bytes_are_those_of_the_one_schema_that_there_was() -> None:
    """Written when all payloads stood in one union: older peers write and read them like this."""
    for payload, written in (
        (M.GetEntityT(id=7), OLD_GET_ENTITY),
        (M.TelemetryFrameT(time=0.5, values=np.array([1, 2], np.float32), envId=3), OLD_TELEMETRY),
        (M.PingT(stamp=5), OLD_PING),
    ):
        assert encode(1234, payload, 9) == bytes.fromhex(written)
        assert same(payload, decode(bytes.fromhex(written)).payload)


def test_defaults_are_those_of_the_schema() -> None:
    plain = re.sub(r"//.*", "", SCHEMA)
    found = re.findall(r"\btable\s+(\w+)\s*{(.*?)}", plain, re.S)
    checked = 0
    for name, body in found:
        for field, default in re.findall(r"(\w+)\s*:\s*\w+\s*=\s*(-?\w+)", body):
            value = getattr(getattr(M, f"{name}T")(), camel(field))
            assert value == {"true": True, "false": False}.get(
                default, default if value is None else type(value)(default)
            )
            checked += 1
    assert checked >= 8


def test_every_method_has_payloads_and_every_payload_a_method() -> None:
    assert set(PAYLOADS) == set(Method)
    assert all(method < 1000 for method in Method)
    used = {name for pair in PAYLOADS.values() for name in pair}
    assert used == set(UNION)


def test_vectors_of_numbers_have_their_dtype() -> None:
    """The generated code would write a float64 array into a [float] as it is."""
    for name, fields in TABLES.items():
        for field, kind in fields.items():
            if kind[1:-1] in DTYPES:
                assert name in UNION, "encode() looks at the payload's own fields only"
                assert commands._DTYPES.get(camel(field), np.float32) is DTYPES[kind[1:-1]]


def test_the_document_lists_every_method() -> None:
    page = (ROOT / "docs" / "commands.md").read_text("utf-8")
    rows = re.findall(r"^([A-Z_]+) +(\d+) (\w+) +(\w+|-)$", page, re.M)
    assert rows == [(m.name, str(m.value), PAYLOADS[m][0], PAYLOADS[m][1].replace("Empty", "-")) for m in Method]


# -- round trips


@examples(400)
@given(st.sampled_from(UNION).flatmap(made), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1))
def test_every_payload_comes_back(payload: Any, correlation_id: int, method: int) -> None:
    command = decode(encode(method, payload, correlation_id))
    assert (command.correlation_id, command.method, command.error) == (correlation_id, method, None)
    assert same(payload, command.payload)


@pytest.mark.parametrize("name", UNION)
def test_a_payload_of_defaults_comes_back(name: str) -> None:
    payload = getattr(M, f"{name}T")()
    back = decode(encode(1, payload)).payload
    assert type(back) is type(payload)
    assert vars(back) == vars(payload)


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_errors_come_back(message: str) -> None:
    assert decode(encode(1, None, 3, message)) == Command(3, 1, None, message)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, ">f4", np.float16])
def test_arrays_of_other_dtypes_become_those_of_the_schema(dtype: Any) -> None:
    values = np.arange(6).astype(dtype).reshape(2, 3)
    payload = M.TelemetryFrameT(values=values)
    back = decode(encode(Method.TELEMETRY_FRAME, payload)).payload.values
    assert back.dtype == np.float32
    assert back.tolist() == [0, 1, 2, 3, 4, 5]
    assert payload.values is values, "the caller's object was changed"


@pytest.mark.parametrize(
    "pixels", [bytes(range(12)), bytearray(range(12)), memoryview(bytes(range(12))), list(range(12))]
)
def test_pixels_may_be_bytes(pixels: Any) -> None:
    assert decode(encode(1, M.ImageFrameT(pixels=pixels))).payload.pixels.tolist() == list(range(12))
    assert len(decode(encode(1, M.ImageFrameT(pixels=pixels[:0]))).payload.pixels) == 0


def test_what_cannot_be_written_is_named() -> None:
    wrong = [
        M.PingT(stamp=-1), M.PingT(stamp="x"), M.PingT(stamp=2**64), M.CloseT(reason=5), M.ParameterT(), object(),
        M.Ping(),
        M.TelemetryFrameT(values=["a"]), M.TelemetryFrameT(values=5), M.TelemetryFrameT(values=np.array(["a"])),
        M.ImageFrameT(pixels=np.array([1.5])), M.ImageFrameT(pixels=np.array([300])),
        M.ResetAgentT(envIds=np.array([2**40])),
        M.SetEntityT(entity=5), M.GetParametersT(names=[None]), M.TelemetryFrameT(values=[1e300]),
    ]  # fmt: skip
    for payload in wrong:
        with pytest.raises(errors.ConfigurationError, match="cannot be written") as caught:
            encode(1, payload)
        assert caught.value.fault == "caller"
    with pytest.raises(errors.ConfigurationError):
        encode(-1)


# -- hostile bytes


def survives(data: bytes) -> bool:
    """Decoded, or refused by name; anything else is raised."""
    try:
        decode(data)
    except errors.MalformedMessage:
        return False
    return True


@examples(300)
@given(st.binary(max_size=300))
def test_random_bytes(data: bytes) -> None:
    if survives(data):
        answer = Dispatcher().answer(data)
        assert answer is None or decode(answer).error
    else:
        with pytest.raises(errors.MalformedMessage) as caught:
            Dispatcher().answer(data)
        assert caught.value.fault == "trainer"


NUMBERS = st.sampled_from([0, 1, 4, 8, 0x7FFFFFFF, 0x80000000, 0xFFFFFFF0, 0xFFFFFFFF]) | st.integers(0, 300)


@examples(600)
@given(st.sampled_from(UNION).flatmap(made), st.data())
def test_mutilated_messages(payload: Any, data: st.DataObject) -> None:
    """One or two words overwritten: offsets outside, or into other tables, huge lengths, other unions."""
    raw = bytearray(encode(1, payload, 5))
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(raw) // 4 - 1)) * 4
        struct.pack_into("<I", raw, at, data.draw(NUMBERS))
    survives(bytes(raw))
    survives(bytes(raw[: data.draw(st.integers(0, len(raw)))]))


def test_truncated_messages() -> None:
    raw = encode(Method.SET_PARAMETERS, M.SetParametersT(parameters=[M.ParameterT(name="gravity" * 9, value=1.0)]), 7)
    assert sum(not survives(raw[:end]) for end in range(len(raw))) > len(raw) // 2
    assert survives(raw)


@pytest.mark.parametrize("name", UNION)
def test_every_union_type_over_another_payload(name: str) -> None:
    """A table read as another one is refused or full of nonsense, never a crash; 0 and 200 are no payload."""
    raw = encode(1, M.DebugDrawT(lines=[M.DrawLineT(color=1)], texts=[M.DrawTextT(text="t")]), 5)
    at = [i for i, byte in enumerate(raw) if byte == M.PhysicsPayload.DebugDraw]
    assert at
    for i in at:
        for value in (number(name), 0, 200):
            survives(raw[:i] + bytes([value]) + raw[i + 1 :])


def vector_message(count: int, length: int, said: int | None = None) -> bytes:
    """GetParameters whose `count` names are one string of `length` bytes; the vector says `said`."""
    builder = flatbuffers.Builder(1024)
    string = builder.CreateString("x" * length)
    builder.StartVector(4, count, 4)
    for _ in range(count):
        builder.PrependUOffsetTRelative(string)
    names = builder.EndVector()
    if said is not None:
        struct.pack_into("<I", builder.Bytes, len(builder.Bytes) - names, said)
    M.GetParametersStart(builder)
    M.GetParametersAddNames(builder, names)
    payload = M.GetParametersEnd(builder)
    M.EnvelopeStart(builder)
    M.EnvelopeAddMethod(builder, Method.GET_PARAMETERS)
    M.EnvelopeAddPayloadType(builder, M.Payload.GetParameters)
    M.EnvelopeAddPayload(builder, payload)
    builder.Finish(M.EnvelopeEnd(builder))
    return bytes(builder.Output())


def test_strings_that_overlap_do_not_become_gigabytes() -> None:
    """30 000 names of 100 kB, all the same bytes, in 220 kB."""
    assert len(decode(vector_message(10, 100)).payload.names) == 10
    hostile = vector_message(30_000, 100_000)
    assert len(hostile) < 2**18
    with pytest.raises(errors.MalformedMessage, match="strings are longer"):
        decode(hostile)


@pytest.mark.parametrize("said", [1000, 2**20, 2**31, 2**32 - 1])
def test_vectors_that_say_more_than_they_hold(said: int) -> None:
    with pytest.raises(errors.MalformedMessage):
        decode(vector_message(10, 10, said))
