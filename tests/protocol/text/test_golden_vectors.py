"""Every vector of docs/protocol-vectors.json: decoded whole, byte by byte, with data behind it; encoded; refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ue_rl.bridges.calls import check_env
from ue_rl.connections.tcp.numbers import AnswerNumbers
from ue_rl.devtools.testing import GoldenVector, find_protocol, load_golden
from ue_rl.devtools.testing.golden import RequestRow, StateRow
from ue_rl.protocol.buffers import ActionBatch, Resets, StepBuffers
from ue_rl.protocol.spaces.actions import ActionKind
from ue_rl.protocol.spec import AgentGroup, EnvSpec, ImageSpec
from ue_rl.protocol.text import Codec, calls, decode_handshake, encode_handshake
from ue_rl.protocol.text import kernels_pure as k
from ue_rl.protocol.text.lines import LineBuffer
from ue_rl.protocol.text.notices import busy_line, error_line, notice_of
from ue_rl.protocol.text.space_text import space_text
from ue_rl.system import errors

VECTORS = load_golden(find_protocol(Path(__file__).parent))


def of(*kinds: str, reject: bool = False) -> Any:
    chosen = [v for v in VECTORS if v.kind in kinds and (v.reject is not None) == reject]
    return pytest.mark.parametrize("vector", chosen, ids=[v.name for v in chosen])


def test_there_are_vectors_of_every_kind() -> None:
    assert len(VECTORS) > 50  # load_golden refuses a name that comes twice
    for key in ("spec", "asks", "states", "reject"):
        assert sum(bool(getattr(v, key)) for v in VECTORS) >= 6, key


@of("handshake")
def test_handshake_decodes(vector: GoldenVector) -> None:
    spec = decode_handshake(vector.config.encode() + b"\r\n")
    assert vector.spec is not None
    for key, value in vector.spec.items():
        if key in ("low", "high") and spec.action_spec.kind is ActionKind.HYBRID:
            np.testing.assert_array_equal(spec.action_spec.bounds[key == "high"], value)
        elif key in ("low", "high", "counts"):
            np.testing.assert_array_equal(getattr(spec.action_spec, key), value)
        elif key == "features":
            assert sorted(spec.features) == value
        elif key == "image":
            assert spec.image == ImageSpec(**value)
        elif key == "groups":
            assert [group_as(group, list(wanted)) for group, wanted in zip(spec.groups, value, strict=True)] == value
        elif key == "parameters":
            assert [[one.name, one.value, one.low, one.high] for one in spec.parameters] == value
        else:
            got = said(spec, key)
            assert (list(got) if isinstance(got, tuple) else got) == value, key
    assert decode_handshake(encode_handshake(spec)) == spec


def said(spec: EnvSpec, key: str) -> Any:
    """What a spec says under a golden vector's key."""
    if key == "action_kind":
        return spec.action_spec.kind.value
    if key in ("obs_space", "act_space"):
        space = spec.obs_space if key == "obs_space" else spec.action_spec.space
        return None if space is None else space_text(space)
    got = spec.action_spec.starts if key == "starts" else getattr(spec, key)
    return getattr(got, "value", got)


def group_as(group: AgentGroup, keys: list[str]) -> dict[str, Any]:
    return {key: getattr(group, key) if key in ("name", "count") else said(group.spec, key) for key in keys}


@pytest.mark.parametrize(
    "name",
    [
        "handshake-multi",
        "handshake-single",
        "handshake-extended",
        "handshake-discrete",
        "handshake-image-beside-numbers",
        "handshake-image-only",
        "handshake-choices-that-start-elsewhere",
        "handshake-names-and-units",
        "handshake-parameters",
        "handshake-agents-of-one-kind",
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


def row_of(spec: EnvSpec, row: RequestRow | StateRow) -> int:
    return row.env * spec.agents_per_env + (row.agent or 0)


def envs_of(vector: GoldenVector) -> int:
    return len({row.env for row in vector.states})


def check_states(vector: GoldenVector, spec: EnvSpec, buffers: StepBuffers) -> None:
    answered = buffers.pending.reshape(-1, spec.agents_per_env) == 0
    assert sorted({state.env for state in vector.states}) == np.flatnonzero(answered.any(axis=1)).tolist()
    assert (answered.any(axis=1) == answered.all(axis=1)).all()
    if spec.groups:
        there = np.flatnonzero(buffers.present & (buffers.pending == 0)).tolist()
        assert there == sorted(row_of(spec, state) for state in vector.states)
    for state in vector.states:
        env = row_of(spec, state)
        np.testing.assert_array_equal(buffers.obs[env, : len(state.obs)], np.array(state.obs, np.float32))
        if state.mask is not None:
            assert "".join(map(str, buffers.masks[env, : len(state.mask)])) == state.mask
        assert buffers.rewards[env] == np.float32(state.reward)
        assert buffers.dones[env] == state.done
        assert buffers.truncated[env] == state.truncated
        assert buffers.infos.get(env) == state.info


def fresh(vector: GoldenVector, compiled: Any) -> tuple[Codec, StepBuffers]:
    spec = decode_handshake(vector.config.encode())
    buffers = StepBuffers.of(spec)
    buffers.pending[:] = 1 if vector.after == "step" else 2
    if isinstance(compiled, bool):
        return Codec(spec, compiled=compiled), buffers
    return Codec(spec, kernels=compiled), buffers


def decoded(codec: Codec, vector: GoldenVector, buffers: StepBuffers, data: Any, start: int, end: int) -> int:
    """The rows of a reply; the number behind them must be the vector's."""
    rows, number = codec.decode_states(data, buffers, None, start, end, vector.seq or 0), vector.seq
    if not rows and number is not None:
        AnswerNumbers(codec).end_of_rows(data, start, end, number)  # raises
    return rows


@of("reply")
@pytest.mark.parametrize("form", ["whole", "newline", "bytewise", "trailing"])
def test_reply_decodes(vector: GoldenVector, form: str, compiled: Any) -> None:
    codec, buffers = fresh(vector, compiled)
    assert vector.reply is not None
    line = vector.reply.encode()
    if form == "whole":
        line = line.rstrip(b"\r")
        rows = decoded(codec, vector, buffers, line, 0, len(line))
    elif form == "newline":
        line += b"\n"
        rows = decoded(codec, vector, buffers, line, 0, len(line))
    else:
        lines = LineBuffer(codec.max_line)
        data = b"\r\n\n" + line + b"\n" + (b"OBS=half a li" if form == "trailing" else b"")
        for at in range(0, len(data), 1 if form == "bytewise" else len(data)):
            assert lines.next_span() is None
            lines.feed(data[at : at + (1 if form == "bytewise" else len(data))])
        span = lines.next_span()
        assert span is not None
        rows = decoded(codec, vector, buffers, lines.data, *span)
        assert lines.next_span() is None
        assert len(lines) == (13 if form == "trailing" else 0)
    assert rows == envs_of(vector)
    check_states(vector, codec.spec, buffers)


@of("reply")
def test_reply_encodes(vector: GoldenVector, compiled: Any) -> None:
    """Written from the expected states: reads back the same, and to the letter where the example is canonical."""
    codec, buffers = fresh(vector, compiled)
    truncated = np.zeros_like(buffers.dones)
    infos = {}
    for state in vector.states:
        env = row_of(codec.spec, state)
        buffers.obs[env, : len(state.obs)], buffers.rewards[env] = state.obs, state.reward
        if state.mask is not None:
            buffers.masks[env, : len(state.mask)] = [int(flag) for flag in state.mask]
        buffers.dones[env], truncated[env] = state.done, state.truncated
        if state.info is not None:
            infos[env] = state.info
    ids = [row_of(codec.spec, state) for state in vector.states]
    line = codec.encode_states(
        buffers.obs, buffers.rewards, buffers.dones, truncated, ids, infos, buffers.masks, vector.seq or 0
    )
    assert line.endswith(b"\n")
    if vector.canonical:
        assert vector.reply is not None
        assert line == vector.reply.encode() + b"\n"
    again = fresh(vector, compiled)[1]
    assert codec.decode_states(line, again, number=vector.seq or 0) == envs_of(vector)
    check_states(vector, codec.spec, again)


@of("request")
def test_request_decodes_and_encodes(vector: GoldenVector, compiled: Any) -> None:
    codec, _ = fresh(vector, compiled)
    spec = codec.spec
    batch, per_env = ActionBatch.of(spec), spec.agents_per_env
    assert vector.request is not None
    assert codec.decode_requests(vector.request.encode(), batch, number=vector.seq or 0) == len(vector.asks)
    asked = {row_of(spec, ask): ask for ask in vector.asks}
    resets = {ask.env for ask in vector.asks if ask.reset}
    for row in range(spec.num_rows):
        ask = asked.get(row)
        if row // per_env in resets:
            assert batch.command[row] == batch.RESET
        elif ask is None:
            assert batch.command[row] == batch.NOTHING
        if ask is not None and ask.reset:
            assert batch.seeds[row] == (-1 if ask.seed is None else ask.seed)
            assert batch.options.get(row) == ask.options
            assert batch.parameters.get(row) == ask.set
        elif ask is not None:
            assert batch.command[row] == batch.STEP
            assert ask.action is not None
            np.testing.assert_array_equal(batch.actions[row, : len(ask.action)], np.array(ask.action, np.float32))
    if vector.canonical:
        assert written(codec, vector, batch) == vector.request.encode() + b"\n"


def written(codec: Codec, vector: GoldenVector, batch: ActionBatch) -> bytes:
    """What a trainer writes for the asks: resets, a step, or, through `encode_request`, both."""
    spec, resets = codec.spec, [ask for ask in vector.asks if ask.reset]
    steps = [row_of(spec, ask) for ask in vector.asks if not ask.reset]
    if not resets and not spec.groups:
        return codec.encode_actions(batch.actions, steps, vector.seq or 0)
    buffers = StepBuffers.of(spec)
    if spec.groups:
        buffers.present[:] = 0
        buffers.present[steps] = 1
    given = Resets(
        [ask.env for ask in resets],
        [ask.seed for ask in resets],
        [ask.options for ask in resets],
        [ask.set for ask in resets],
    )
    return codec.encode_request(batch.actions if steps else None, given if resets else None, buffers, vector.seq or 0)


@of("reply", "request", reject=True)
def test_message_is_refused(vector: GoldenVector, compiled: Any) -> None:
    codec, buffers = fresh(vector, compiled)
    assert vector.reject is not None
    kind = getattr(errors, vector.reject)
    with pytest.raises(kind) as caught:
        if vector.reply is not None:
            line = vector.reply.encode()
            decoded(codec, vector, buffers, line, 0, len(line))
        else:
            assert vector.request is not None
            codec.decode_requests(vector.request.encode(), ActionBatch.of(codec.spec), number=vector.seq or 0)
    assert type(caught.value) is kind
    assert "got" in str(caught.value)


# -- calls and notices


def asked_text(asked: dict[str, Any]) -> str:
    """The call as a trainer writes it."""
    name, env = asked["name"], asked.get("env")
    if name == "GET":
        return calls.write_get(asked.get("names", ()), env)
    if name == "SET":
        return calls.write_set(asked["settings"], env)
    if name == "GOALS":
        return calls.write_goals(*(np.array(asked[key], np.float32) for key in ("achieved", "desired")))
    if name == "RENDER":
        return calls.write_render(env)
    return calls.write_pause(asked["value"]) if name == "PAUSE" else calls.write_time_scale(asked["value"])


def check_answer(call: str, answer: str, answered: dict[str, Any], canonical: bool) -> None:
    ((key, value),) = answered.items()
    if key == "refused":
        with pytest.raises(errors.CommandFailed) as caught:
            calls.understood(call, answer.encode())
        assert caught.value.got == value
        again = calls.write_refused(value)
    else:
        text = calls.understood(call, answer.encode())
        if key == "ok":
            calls.read_ok(text)
            again = calls.OK
        elif key == "values":
            assert calls.read_values(text) == value
            again = calls.write_values(value)
        elif key == "picture":
            np.testing.assert_array_equal(calls.read_picture(text), value)
            again = calls.write_picture(np.array(value, np.uint8))
        else:
            np.testing.assert_array_equal(calls.read_rewards(text, len(value)), np.array(value, np.float32))
            again = calls.write_rewards(np.array(value, np.float32))
    assert again == answer or not canonical


def without_number(vector: GoldenVector, line: str | None) -> str:
    raw = (line or "").encode()
    end, number = k.find_number(raw, 0, len(raw))
    assert line is None or number == (vector.seq or 0)
    return raw[:end].decode()


@of("call")
def test_call_and_answer(vector: GoldenVector) -> None:
    assert vector.call is not None
    assert vector.asked is not None
    assert calls.is_call(vector.call.encode())
    text, answer = without_number(vector, vector.call), without_number(vector, vector.answer)
    call = calls.read_call(text.encode())
    for key in ("name", "names", "settings", "env", "value"):
        if key in vector.asked:
            got = getattr(call, key)
            assert (list(got) if isinstance(got, tuple) else got) == vector.asked[key]
    for key in ("achieved", "desired"):
        if key in vector.asked:
            np.testing.assert_array_equal(getattr(call, key), np.array(vector.asked[key], np.float32))
    if vector.canonical:
        assert asked_text(dict(vector.asked)) == text
    if vector.answer is not None:
        check_answer(text, answer, dict(vector.answered or {}), vector.canonical)


@of("call", reject=True)
def test_call_is_refused(vector: GoldenVector) -> None:
    spec = decode_handshake(vector.config.encode())
    assert vector.reject is not None
    assert vector.call is not None
    with pytest.raises(getattr(errors, vector.reject)) as caught:
        check_env(spec.num_envs, calls.read_call(vector.call.encode()).env or 0)
    assert type(caught.value).__name__ == vector.reject


@of("notice")
def test_notice(vector: GoldenVector) -> None:
    assert vector.notice is not None
    assert vector.means is not None
    kind, text, fields = vector.means["kind"], vector.means.get("text", ""), vector.means.get("fields", {})
    assert notice_of(vector.notice.encode() + b"\r\n") == (kind, text, fields)
    if vector.canonical:
        since, peer = fields.get("SINCE"), fields.get("PEER")
        line = error_line(text) if kind == "ERROR" else busy_line(None if since is None else float(since), peer)
        assert line == vector.notice.encode() + b"\n"


def test_infinite_bounds_are_numbers() -> None:
    spec = next(v for v in VECTORS if v.name == "handshake-extended").spec
    assert spec is not None
    assert spec["obs_low"] == [-np.inf, 0]


def test_the_lines_that_the_page_shows_are_vectors() -> None:
    """Lists of docs/protocol.md: a line of the protocol, and what it is, what answers it, or which error it gives."""
    page = (find_protocol(Path(__file__).parent).parent / "protocol.md").read_text("utf-8")
    rows = re.findall(r"^- `([A-Z]+[=:;][^`]*|[-\d.,;]+)`:((?:.*\n)(?:  .*\n)*)", page, re.M)
    forms = re.compile(r"numbers|name:value|\.\.|^[A-Z]+=[A-Z]+$|ENV=i")  # of which a line is an example
    rows = [(line, said) for line, said in rows if not forms.search(line)]
    assert len(rows) > 8
    for line, said in rows:
        meaning = " ".join(said.split())
        found = [v for v in VECTORS if line in (v.config, v.request, v.reply, v.call, v.notice)]
        assert found, line
        assert any(
            (v.reject is None or f"`{v.reject}`" in meaning) and (v.answer is None or f"`{v.answer}`" in meaning)
            for v in found
        ), (line, meaning)
