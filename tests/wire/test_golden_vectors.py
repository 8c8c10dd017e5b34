"""Every example of docs/protocol.md: decoded whole, byte by byte, with data behind it; encoded; refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from ue_rl import errors
from ue_rl.buffers import ActionBatch, StepBuffers
from ue_rl.spec import ImageSpec
from ue_rl.wire import Codec, decode_handshake, encode_handshake
from ue_rl.wire.lines import LineBuffer

PROTOCOL = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"
VECTORS: list[dict[str, Any]] = [
    yaml.safe_load(block) for block in re.findall(r"```yaml golden\n(.*?)```", PROTOCOL.read_text("utf-8"), re.S)
]


def of(*keys: str, reject: bool = False) -> Any:
    chosen = [v for v in VECTORS if any(k in v for k in keys) and ("reject" in v) == reject]
    return pytest.mark.parametrize("vector", chosen, ids=[v["name"] for v in chosen])


@pytest.fixture(params=[True, False], ids=["compiled", "pure"])
def compiled(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_there_are_vectors_of_every_kind() -> None:
    assert len({v["name"] for v in VECTORS}) == len(VECTORS) > 50
    for key in ("spec", "asks", "states", "reject"):
        assert sum(key in v for v in VECTORS) >= 6, key


@of("spec")
def test_handshake_decodes(vector: dict[str, Any]) -> None:
    spec = decode_handshake(vector["config"].encode() + b"\r\n")
    for key, value in vector["spec"].items():
        if key == "action_kind":
            assert spec.action_spec.kind.value == value
        elif key in ("low", "high", "counts"):
            np.testing.assert_array_equal(getattr(spec.action_spec, key), value)
        elif key == "features":
            assert sorted(spec.features) == value
        elif key == "image":
            assert spec.image == ImageSpec(**value)
        else:
            got = getattr(spec, key)
            got = getattr(got, "value", got)
            assert (list(got) if isinstance(got, tuple) else got) == value, key
    assert decode_handshake(encode_handshake(spec)) == spec


@pytest.mark.parametrize(
    "name",
    [
        "handshake-multi",
        "handshake-single",
        "handshake-extended",
        "handshake-discrete",
        "handshake-image-beside-numbers",
        "handshake-image-only",
    ],
)
def test_handshake_encodes(name: str) -> None:
    text = next(v["config"] for v in VECTORS if v["name"] == name)
    assert encode_handshake(decode_handshake(text.encode())) == text.encode() + b"\n"


@pytest.mark.parametrize(
    "vector",
    [v for v in VECTORS if "reject" in v and not {"reply", "request"} & set(v)],
    ids=lambda v: v["name"],
)
def test_handshake_is_refused(vector: dict[str, Any]) -> None:
    with pytest.raises(getattr(errors, vector["reject"])):
        decode_handshake(vector["config"].encode())


def check_states(vector: dict[str, Any], buffers: StepBuffers) -> None:
    assert [i for i, p in enumerate(buffers.pending) if not p] == sorted(s["env"] for s in vector["states"])
    for state in vector["states"]:
        env = state["env"]
        np.testing.assert_array_equal(buffers.obs[env], np.array(state["obs"], np.float32))
        assert buffers.rewards[env] == np.float32(state["reward"])
        assert buffers.dones[env] == state["done"]
        assert buffers.truncated[env] == state.get("truncated", 0)
        assert buffers.infos.get(env) == state.get("info")


def fresh(vector: dict[str, Any], compiled: bool) -> tuple[Codec, StepBuffers]:
    spec = decode_handshake(vector["config"].encode())
    buffers = StepBuffers(spec.num_envs, spec.obs_size)
    buffers.pending[:] = 1
    return Codec(spec, compiled=compiled), buffers


@of("states")
@pytest.mark.parametrize("form", ["whole", "newline", "bytewise", "trailing"])
def test_reply_decodes(vector: dict[str, Any], form: str, compiled: bool) -> None:
    codec, buffers = fresh(vector, compiled)
    line = vector["reply"].encode()
    if form == "whole":
        rows = codec.decode_states(line.rstrip(b"\r"), buffers)
    elif form == "newline":
        rows = codec.decode_states(line + b"\n", buffers)
    else:
        lines = LineBuffer(codec.max_line)
        data = b"\r\n\n" + line + b"\n" + (b"OBS=half a li" if form == "trailing" else b"")
        for at in range(0, len(data), 1 if form == "bytewise" else len(data)):
            assert lines.next_span() is None
            lines.feed(data[at : at + (1 if form == "bytewise" else len(data))])
        span = lines.next_span()
        assert span is not None
        rows = codec.decode_states(lines.data, buffers, None, *span)
        assert lines.next_span() is None
        assert len(lines) == (13 if form == "trailing" else 0)
    assert rows == len(vector["states"])
    check_states(vector, buffers)


@of("states")
def test_reply_encodes(vector: dict[str, Any], compiled: bool) -> None:
    """Written from the expected states: reads back the same, and to the letter where the example is canonical."""
    codec, buffers = fresh(vector, compiled)
    truncated = np.zeros_like(buffers.dones)
    infos = {}
    for state in vector["states"]:
        env = state["env"]
        buffers.obs[env], buffers.rewards[env] = state["obs"], state["reward"]
        buffers.dones[env], truncated[env] = state["done"], state.get("truncated", 0)
        if "info" in state:
            infos[env] = state["info"]
    ids = [s["env"] for s in vector["states"]]
    line = codec.encode_states(buffers.obs, buffers.rewards, buffers.dones, truncated, ids, infos)
    assert line.endswith(b"\n")
    if vector.get("canonical"):
        assert line == vector["reply"].encode() + b"\n"
    again = StepBuffers(*buffers.obs.shape)
    again.pending[:] = 1
    assert codec.decode_states(line, again) == len(ids)
    check_states(vector, again)


@of("asks")
def test_request_decodes_and_encodes(vector: dict[str, Any], compiled: bool) -> None:
    codec, _ = fresh(vector, compiled)
    spec = codec.spec
    batch = ActionBatch(spec.num_envs, spec.act_size)
    assert codec.decode_requests(vector["request"].encode(), batch) == len(vector["asks"])
    asked = {ask["env"]: ask for ask in vector["asks"]}
    for env in range(spec.num_envs):
        ask = asked.get(env)
        if ask is None:
            assert batch.command[env] == batch.NOTHING
        elif ask.get("reset"):
            assert batch.command[env] == batch.RESET
            assert batch.seeds[env] == ask.get("seed", -1)
            assert batch.options.get(env) == ask.get("options")
        else:
            assert batch.command[env] == batch.STEP
            np.testing.assert_array_equal(batch.actions[env], np.array(ask["action"], np.float32))
    if vector.get("canonical"):
        ids = [ask["env"] for ask in vector["asks"]]
        if vector["asks"][0].get("reset"):
            line = codec.encode_resets(
                ids, [a.get("seed") for a in vector["asks"]], [a.get("options") for a in vector["asks"]]
            )
        else:
            line = codec.encode_actions(batch.actions, ids)
        assert line == vector["request"].encode() + b"\n"


@of("reply", "request", reject=True)
def test_message_is_refused(vector: dict[str, Any], compiled: bool) -> None:
    codec, buffers = fresh(vector, compiled)
    kind = getattr(errors, vector["reject"])
    with pytest.raises(kind) as caught:
        if "reply" in vector:
            codec.decode_states(vector["reply"].encode(), buffers)
        else:
            codec.decode_requests(vector["request"].encode(), ActionBatch(codec.spec.num_envs, codec.spec.act_size))
    assert type(caught.value) is kind
    assert "got" in str(caught.value)
