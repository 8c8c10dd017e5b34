"""Every example of docs/protocol.md: decoded whole, byte by byte, with data behind it; encoded; refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ue_rl import errors
from ue_rl.buffers import ActionBatch, StepBuffers
from ue_rl.spec import ImageSpec
from ue_rl.testing import GoldenVector, find_protocol, load_golden
from ue_rl.wire import Codec, decode_handshake, encode_handshake
from ue_rl.wire.lines import LineBuffer

VECTORS = load_golden(find_protocol(Path(__file__).parent))


def of(*kinds: str, reject: bool = False) -> Any:
    chosen = [v for v in VECTORS if v.kind in kinds and (v.reject is not None) == reject]
    return pytest.mark.parametrize("vector", chosen, ids=[v.name for v in chosen])


@pytest.fixture(params=[True, False], ids=["compiled", "pure"])
def compiled(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_there_are_vectors_of_every_kind() -> None:
    assert len(VECTORS) > 50  # load_golden refuses a name that comes twice
    for key in ("spec", "asks", "states", "reject"):
        assert sum(bool(getattr(v, key)) for v in VECTORS) >= 6, key


@of("handshake")
def test_handshake_decodes(vector: GoldenVector) -> None:
    spec = decode_handshake(vector.config.encode() + b"\r\n")
    assert vector.spec is not None
    for key, value in vector.spec.items():
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
    text = next(v.config for v in VECTORS if v.name == name)
    assert encode_handshake(decode_handshake(text.encode())) == text.encode() + b"\n"


@of("handshake", reject=True)
def test_handshake_is_refused(vector: GoldenVector) -> None:
    assert vector.reject is not None
    with pytest.raises(getattr(errors, vector.reject)):
        decode_handshake(vector.config.encode())


def check_states(vector: GoldenVector, buffers: StepBuffers) -> None:
    assert [i for i, p in enumerate(buffers.pending) if not p] == sorted(state.env for state in vector.states)
    for state in vector.states:
        env = state.env
        np.testing.assert_array_equal(buffers.obs[env], np.array(state.obs, np.float32))
        assert buffers.rewards[env] == np.float32(state.reward)
        assert buffers.dones[env] == state.done
        assert buffers.truncated[env] == state.truncated
        assert buffers.infos.get(env) == state.info


def fresh(vector: GoldenVector, compiled: bool) -> tuple[Codec, StepBuffers]:
    spec = decode_handshake(vector.config.encode())
    buffers = StepBuffers(spec.num_envs, spec.obs_size)
    buffers.pending[:] = 1
    return Codec(spec, compiled=compiled), buffers


@of("reply")
@pytest.mark.parametrize("form", ["whole", "newline", "bytewise", "trailing"])
def test_reply_decodes(vector: GoldenVector, form: str, compiled: bool) -> None:
    codec, buffers = fresh(vector, compiled)
    assert vector.reply is not None
    line = vector.reply.encode()
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
    assert rows == len(vector.states)
    check_states(vector, buffers)


@of("reply")
def test_reply_encodes(vector: GoldenVector, compiled: bool) -> None:
    """Written from the expected states: reads back the same, and to the letter where the example is canonical."""
    codec, buffers = fresh(vector, compiled)
    truncated = np.zeros_like(buffers.dones)
    infos = {}
    for state in vector.states:
        env = state.env
        buffers.obs[env], buffers.rewards[env] = state.obs, state.reward
        buffers.dones[env], truncated[env] = state.done, state.truncated
        if state.info is not None:
            infos[env] = state.info
    ids = [state.env for state in vector.states]
    line = codec.encode_states(buffers.obs, buffers.rewards, buffers.dones, truncated, ids, infos)
    assert line.endswith(b"\n")
    if vector.canonical:
        assert vector.reply is not None
        assert line == vector.reply.encode() + b"\n"
    again = StepBuffers(*buffers.obs.shape)
    again.pending[:] = 1
    assert codec.decode_states(line, again) == len(ids)
    check_states(vector, again)


@of("request")
def test_request_decodes_and_encodes(vector: GoldenVector, compiled: bool) -> None:
    codec, _ = fresh(vector, compiled)
    spec = codec.spec
    batch = ActionBatch(spec.num_envs, spec.act_size)
    assert vector.request is not None
    assert codec.decode_requests(vector.request.encode(), batch) == len(vector.asks)
    asked = {ask.env: ask for ask in vector.asks}
    for env in range(spec.num_envs):
        ask = asked.get(env)
        if ask is None:
            assert batch.command[env] == batch.NOTHING
        elif ask.reset:
            assert batch.command[env] == batch.RESET
            assert batch.seeds[env] == (-1 if ask.seed is None else ask.seed)
            assert batch.options.get(env) == ask.options
        else:
            assert batch.command[env] == batch.STEP
            np.testing.assert_array_equal(batch.actions[env], np.array(ask.action, np.float32))
    if vector.canonical:
        ids = [ask.env for ask in vector.asks]
        if vector.asks[0].reset:
            line = codec.encode_resets(ids, [a.seed for a in vector.asks], [a.options for a in vector.asks])
        else:
            line = codec.encode_actions(batch.actions, ids)
        assert line == vector.request.encode() + b"\n"


@of("reply", "request", reject=True)
def test_message_is_refused(vector: GoldenVector, compiled: bool) -> None:
    codec, buffers = fresh(vector, compiled)
    assert vector.reject is not None
    kind = getattr(errors, vector.reject)
    with pytest.raises(kind) as caught:
        if vector.reply is not None:
            codec.decode_states(vector.reply.encode(), buffers)
        else:
            assert vector.request is not None
            codec.decode_requests(vector.request.encode(), ActionBatch(codec.spec.num_envs, codec.spec.act_size))
    assert type(caught.value) is kind
    assert "got" in str(caught.value)
