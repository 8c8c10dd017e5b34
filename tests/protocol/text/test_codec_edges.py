"""What a Codec says of a line: limits, windows of a buffer, and every part of an error."""

from __future__ import annotations

from urllib.parse import quote

import numpy as np
import pytest

from ue_rl.protocol.buffers import ActionBatch, StepBuffers
from ue_rl.protocol.spaces.actions import ActionSpec
from ue_rl.protocol.spec import AgentGroup, EnvSpec, EnvType, Parameter
from ue_rl.protocol.text import Codec, decode_handshake, line_limit
from ue_rl.system import errors

_MASK = frozenset({"MASK"})
MULTI, SINGLE, RLBASE = EnvType.MULTI, EnvType.SINGLE, EnvType.RLBASE


def made(compiled: bool, obs: int = 2, act: int = 2, form: EnvType = MULTI, envs: int = 3) -> tuple[Codec, StepBuffers]:
    buffers = StepBuffers(envs, obs)
    buffers.pending[:] = 1
    return Codec(EnvSpec(obs, act, form, envs), compiled=compiled), buffers


def row(env: int, more: str = "") -> str:
    return f"OBS=1,2;REW=0.5;DONE=0;ENV={env}{more}"


@pytest.mark.parametrize(
    ("spec", "limit"),
    [
        (EnvSpec(2, 2, MULTI, 3), 1024 + 48 * 9 + 64 * 3),  # an observation and its reward are longer than an action
        (EnvSpec(2, 3, MULTI, 3), 1024 + 48 * 9 + 64 * 3),
        (EnvSpec(2, 7, MULTI, 3), 1024 + 48 * 21 + 64 * 3),
        (EnvSpec(1, 1, SINGLE, 1), 1024 + 48 * 2 + 64),
        (EnvSpec(2, 2, MULTI, 3, features=frozenset({"INFO"})), 1024 + 48 * 9 + 65_536 * 3),
        (EnvSpec(2, 2, MULTI, 3, features=frozenset({"OPTIONS"})), 1024 + 48 * 9 + 65_536 * 3),
        (EnvSpec(2, 2, MULTI, 3, features=frozenset({"TRUNC"})), 1024 + 48 * 9 + 64 * 3),
        # masks, agents, parameters
        (EnvSpec(2, 1, MULTI, 3, ActionSpec.discrete(9)), 1024 + 48 * 9 + 64 * 3),
        (EnvSpec(2, 1, MULTI, 3, ActionSpec.discrete(9), features=_MASK), 1024 + 48 * 9 + (64 + 9) * 3),
        (EnvSpec(2, 2, MULTI, 3, groups=(AgentGroup("a", 5, EnvSpec(2, 2)),)), 1024 + 48 * 45 + 64 * 15),
        (EnvSpec(2, 2, MULTI, 3, parameters=(Parameter("g", 1.0),)), 1024 + 48 * 9 + 65_536 * 3),
        # whatever is announced
        (EnvSpec(255, 2, MULTI, 65_536), 2**29),
        (EnvSpec(255, 2, MULTI, 65_536, features=frozenset({"INFO"})), 2**29),
    ],
)
def test_the_longest_line_is_that_of_the_protocol(spec: EnvSpec, limit: int) -> None:
    """docs/protocol.md, section 9."""
    assert line_limit(spec) == Codec(spec).max_line == limit
    assert line_limit(spec, rows=spec.agents_per_env) == Codec(spec).max_env_line <= limit


def test_more_flags_than_a_step_may_have_are_refused_before_any_memory_is_taken() -> None:
    handshake = (
        b"CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=60000;VERSION=1;ACT_SPACE=DISCRETE(16777216);FEATURES=MASK"
    )
    with pytest.raises(errors.HandshakeError, match="mask flags") as caught:
        decode_handshake(handshake)
    assert caught.value.field == "ACT_SPACE"
    assert decode_handshake(handshake.replace(b";FEATURES=MASK", b"")).mask_size == 0


@pytest.mark.parametrize("spec", [EnvSpec(2, 1, MULTI, 7, ActionSpec.discrete(300), features=frozenset({"MASK"})),
                                  EnvSpec(2, 3, MULTI, 7, groups=(AgentGroup("a", 30, EnvSpec(2, 3)),))])  # fmt: skip
def test_the_longest_lines_that_are_written_keep_to_the_limit(spec: EnvSpec, compiled: bool) -> None:
    codec, buffers = Codec(spec, compiled=compiled), StepBuffers.of(spec)
    buffers.obs[:], buffers.rewards[:] = -1.17549435e-38, -1.17549435e-38
    buffers.dones[:] = buffers.truncated[:] = 1
    buffers.masks[:] = 0
    ones = (buffers.obs, buffers.rewards, buffers.dones, buffers.truncated)
    assert len(codec.encode_states(*ones, masks=buffers.masks)) <= codec.max_line
    actions = np.full((spec.num_rows, spec.act_size), -1.17549435e-38, np.float32)
    assert len(codec.encode_actions(actions)) <= codec.max_line


def test_the_kernels_are_named(compiled: bool) -> None:
    codec, _ = made(compiled)
    assert codec.kernels == ("compiled" if compiled else "pure")
    assert codec.spec.num_envs == 3


# -- requests


def test_resets_in_every_combination(compiled: bool) -> None:
    codec, _ = made(compiled)
    assert codec.encode_resets() == b"ACT=RESET;ENV=0||ACT=RESET;ENV=1||ACT=RESET;ENV=2\n"
    assert codec.encode_resets() is codec.encode_resets()  # written once
    assert codec.encode_resets([2, 0]) == b"ACT=RESET;ENV=2||ACT=RESET;ENV=0\n"
    assert (
        codec.encode_resets(None, [7, None, 0]) == b"ACT=RESET;ENV=0;SEED=7||ACT=RESET;ENV=1||ACT=RESET;ENV=2;SEED=0\n"
    )
    assert codec.encode_resets([2, 0], np.array([7, 8])) == b"ACT=RESET;ENV=2;SEED=7||ACT=RESET;ENV=0;SEED=8\n"
    assert codec.encode_resets([1], None, [{"a": 1}]) == b"ACT=RESET;ENV=1;OPTIONS=%7B%22a%22%3A1%7D\n"
    assert codec.encode_resets(None, None, [None, {}, None]).count(b"OPTIONS=%7B%7D") == 1
    assert codec.encode_resets([1], [3], [{"a": 1}]) == b"ACT=RESET;ENV=1;SEED=3;OPTIONS=%7B%22a%22%3A1%7D\n"
    assert codec.encode_reset_line() == b"ACT=RESET\n"
    assert codec.encode_reset_line(5, {}) == b"ACT=RESET;SEED=5;OPTIONS=%7B%7D\n"
    assert codec.encode_resets() == b"ACT=RESET;ENV=0||ACT=RESET;ENV=1||ACT=RESET;ENV=2\n"
    assert made(compiled, form=SINGLE, envs=1)[0].encode_resets() == b"ACT=RESET\n"
    assert made(compiled, form=SINGLE, envs=1)[0].encode_resets([0], [4]) == b"ACT=RESET;SEED=4\n"
    assert made(compiled, form=RLBASE, envs=1)[0].encode_resets() == b"RESET\n"
    assert made(compiled, form=RLBASE, envs=1)[0].encode_resets([0], [4]) == b"RESET\n"


def test_options_that_json_cannot_carry_are_refused(compiled: bool) -> None:
    codec, _ = made(compiled)
    with pytest.raises(ValueError):
        codec.encode_resets([0], None, [{"a": float("nan")}])


def test_actions_in_one_line_or_one_line_each(compiled: bool) -> None:
    codec, _ = made(compiled)
    actions = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    assert codec.encode_actions(actions) == b"ACT=1,2;ENV=0||ACT=3,4;ENV=1||ACT=5,6;ENV=2\n"
    assert codec.encode_actions(actions, [2, 0]) == b"ACT=5,6;ENV=2||ACT=1,2;ENV=0\n"
    assert codec.encode_action_lines(actions) == [b"ACT=1,2\n", b"ACT=3,4\n", b"ACT=5,6\n"]


@pytest.mark.parametrize("separate", [False, True])
def test_an_action_that_is_not_finite_is_named_with_its_place(compiled: bool, separate: bool) -> None:
    codec, _ = made(compiled)
    actions = np.zeros((3, 2), np.float32)
    actions[1, 1] = np.inf
    with pytest.raises(errors.ActionError) as caught:
        _ = codec.encode_action_lines(actions) if separate else codec.encode_actions(actions)
    error = caught.value
    assert (error.env_id, error.field, error.fault) == (1, "ACT", "policy")
    assert (error.expected, error.got) == ("finite float32", "inf at index 1")


# -- states


def test_a_state_that_is_not_finite_is_named_with_its_place(compiled: bool) -> None:
    codec, buffers = made(compiled)
    obs, rewards, dones = np.zeros((3, 2), np.float32), np.zeros(3, np.float32), buffers.dones
    obs[2, 1] = np.nan
    with pytest.raises(errors.NonFiniteValue) as caught:
        codec.encode_states(obs, rewards, dones)
    assert (caught.value.env_id, caught.value.field, caught.value.fault) == (2, "OBS", "engine")
    assert (caught.value.expected, caught.value.got) == ("finite float32", "nan at index 1")
    obs[2, 1], rewards[1] = 0, -np.inf
    with pytest.raises(errors.NonFiniteValue) as caught:
        codec.encode_states(obs, rewards, dones, infos={1: {"a": 1}})
    assert (caught.value.env_id, caught.value.field) == (1, "REW")
    assert str(caught.value.got).startswith("-inf")


def test_infos_are_written_where_there_are_any_and_the_form_has_them(compiled: bool) -> None:
    codec, _ = made(compiled, obs=1)
    obs, rewards = np.array([[1], [2], [3]], np.float32), np.array([4, 5, 6], np.float32)
    dones, truncated = np.array([0, 1, 1], np.uint8), np.array([0, 1, 0], np.uint8)
    line = codec.encode_states(obs, rewards, dones, truncated, [2, 1], {1: {"a": [1, "b"]}, 2: {}})
    assert line == (
        b"OBS=3;REW=6;DONE=1;ENV=2||OBS=2;REW=5;DONE=1;ENV=1;TRUNC=1;INFO=%7B%22a%22%3A%5B1%2C%22b%22%5D%7D\n"
    )
    assert codec.encode_states(obs, rewards, dones, env_ids=[1]) == b"OBS=2;REW=5;DONE=1;ENV=1\n"
    assert codec.encode_states(obs, rewards, dones, infos={}).count(b"INFO") == 0
    single, _ = made(compiled, obs=1, form=RLBASE, envs=1)
    plain = single.encode_states(obs[:1], rewards[:1], dones[:1])
    assert single.encode_states(obs[:1], rewards[:1], dones[:1], infos={0: {"a": 1}}) == plain


def test_a_line_is_read_from_its_place_in_a_buffer(compiled: bool) -> None:
    """With or without its newline; whatever stands around it is not read."""
    codec, buffers = made(compiled)
    line = f"{row(0)}||{row(2)}".encode()
    for before in (b"", b"junk\n"):
        for ending in (b"", b"\n", b"\r\n"):
            for behind in (b"", b"OBS=9"):
                data = before + line + ending + behind
                buffers.pending[:] = 1
                end = len(before + line + ending)
                assert codec.decode_states(data, buffers, None, len(before), end) == 2
                assert buffers.pending.tolist() == [0, 1, 0]
                batch = ActionBatch(3, 2)
                ask = b"ACT=RESET;ENV=1"
                data = before + ask + ending + behind
                end = len(before + ask + ending)
                assert codec.decode_requests(data, batch, None, len(before), end) == 1
                assert batch.command.tolist() == [batch.NOTHING, batch.RESET, batch.NOTHING]
    buffers.pending[:] = 1
    assert codec.decode_states(line + b"\n", buffers) == 2


@pytest.mark.parametrize("line", [b"", b"\n", b"\r\n"])
def test_an_empty_line_is_refused(compiled: bool, line: bytes) -> None:
    codec, buffers = made(compiled)
    with pytest.raises(errors.MalformedMessage):
        codec.decode_states(line, buffers)
    with pytest.raises(errors.MalformedMessage):
        codec.decode_states(b"OBS=1,2\n" + line, buffers, None, 8, 8)
    with pytest.raises(errors.MalformedMessage):
        codec.decode_requests(line, ActionBatch(3, 2))
    assert buffers.pending.all()


def refused(codec: Codec, line: str, buffers: StepBuffers, only: int | None = None) -> errors.ProtocolError:
    with pytest.raises(errors.ProtocolError) as caught:
        codec.decode_states(line.encode(), buffers, only)
    error = caught.value
    assert error.fault == "engine"
    assert error.got is not None
    return error


def test_each_refusal_names_env_field_and_what_was_expected(compiled: bool) -> None:
    codec, buffers = made(compiled)

    def says(line: str, only: int | None = None) -> tuple[object, ...]:
        buffers.pending[:] = 1
        error = refused(codec, line, buffers, only)
        return type(error), error.env_id, error.field, error.expected

    good = row(0)
    assert says("OBS=1;REW=0;DONE=0;ENV=0") == (errors.WrongCount, 0, "OBS", "2 numbers")
    assert says(f"{good}||OBS=1,2,3;REW=0;DONE=0;ENV=1") == (errors.WrongCount, 1, "OBS", "2 numbers")
    assert says("OBS=nan,2;REW=0;DONE=0;ENV=0") == (errors.NonFiniteValue, 0, "OBS", None)
    assert says("OBS=1,2;REW=0;DONE=0;ENV=2;TRUNC=1") == (errors.MalformedMessage, 2, "TRUNC", None)
    assert says(row(3)) == (errors.UnknownEnv, None, "ENV", "0 to 2")
    assert says(row(2), only=1) == (errors.UnknownEnv, 1, "ENV", "ENV=1 or no ENV")
    assert says(f"{good}||{good}")[:2] == (errors.RepeatedEnv, 0)
    assert says("OBS=x,2;REW=0;DONE=0;ENV=3")[1] is None  # the env that such a row names does not exist
    assert says("OBS=x,2;REW=0;DONE=0")[1] is None
    assert says("OBS=x,2;REW=0;DONE=0;ENV=0||OBS=1,2;REW=0;DONE=0;ENV=1")[1] == 0
    assert says(f"{row(2)}||OBS=x,2;REW=0;DONE=0;env = 1 ||{good}")[1] == 1
    assert says(f"{row(2)}||ENV=1;OBS=x,2;REW=0;DONE=0||{good}")[1] == 1
    assert says(f"{row(2)}||OBS=x,2;REW=0;DONE=0||{good}")[1] is None  # neither its neighbours'
    for only in range(3):  # on a socket of its own, the env is known without its id
        assert says("OBS=x,2;REW=0;DONE=0", only)[1] == only
    single, one = made(compiled, form=SINGLE, envs=1)
    assert refused(single, "OBS=x,2;REW=0;DONE=0", one).env_id in (None, 0)


def test_the_text_says_how_many_numbers_came_and_what_to_look_for(compiled: bool) -> None:
    codec, buffers = made(compiled)
    error = refused(codec, "OBS=1,2,3;REW=0;DONE=0;ENV=0", buffers)
    assert error.message.endswith(": 3 came")
    assert error.cure is not None
    assert "handshake's OBS and ACT" in error.cure
    assert refused(codec, row(7), buffers).message.endswith("does not exist: 7")
    assert refused(codec, row(2), buffers, 1).message.endswith("it names env 2")
    nan = refused(codec, "OBS=1,2;REW=inf;DONE=0;ENV=0", buffers)
    assert nan.cure is not None
    assert "game's state or reward" in nan.cure
    batch = ActionBatch(3, 2)
    with pytest.raises(errors.NonFiniteValue, match="unset value in the policy") as caught:
        codec.decode_requests(b"ACT=1,nan;ENV=1", batch)
    assert (caught.value.fault, caught.value.env_id, caught.value.field) == ("trainer", 1, "ACT")
    with pytest.raises(errors.WrongCount) as count:
        Codec(EnvSpec(5, 2, MULTI, 3), compiled=compiled).decode_requests(b"ACT=1;ENV=1", batch)
    assert (count.value.expected, count.value.message[-8:]) == ("2 numbers", ": 1 came")


def test_an_env_asked_twice_and_an_env_that_answers_twice_are_told_apart(compiled: bool) -> None:
    codec, buffers = made(compiled)
    batch = ActionBatch(3, 2)
    codec.decode_requests(b"ACT=RESET;ENV=1", batch)
    with pytest.raises(errors.RepeatedEnv, match="asked again before it had answered") as caught:
        codec.decode_requests(b"ACT=RESET;ENV=1", batch)
    assert caught.value.fault == "trainer"
    codec.decode_states(row(1).encode(), buffers)
    assert "answered twice" in refused(codec, row(1), buffers).message


@pytest.mark.parametrize("only", [None, 0, 2])
def test_on_a_socket_of_its_own_a_row_needs_no_env(compiled: bool, only: int | None) -> None:
    codec, buffers = made(compiled)
    batch = ActionBatch(3, 2)
    if only is None:
        assert refused(codec, "OBS=1,2;REW=0;DONE=0", buffers).field == "ENV"
        with pytest.raises(errors.ProtocolError):
            codec.decode_requests(b"ACT=1,2", batch)
        return
    assert codec.decode_states(b"OBS=1,2;REW=0;DONE=0", buffers, only) == 1
    assert buffers.pending.tolist() == [int(env != only) for env in range(3)]
    assert codec.decode_requests(b"ACT=1,2", batch, only) == 1
    assert [env for env in range(3) if batch.command[env] == batch.STEP] == [only]


def test_the_part_of_a_long_line_that_matters_is_shown(compiled: bool) -> None:
    """From 40 bytes before the fault on, and where that is; a line that begins there is shown from its start."""
    codec, buffers = made(compiled)
    for filler in (0, 5, 6, 7, 60):
        line = f"{'x' * filler}=1;OBS=1,2;REW=0;DONE=Q;ENV=1" if filler else "OBS=1,2;REW=0;DONE=Q;ENV=1"
        at = line.index("Q")
        got = str(refused(codec, line, buffers).got)
        if at <= 40:
            assert got == line
        else:
            assert got == f"...{line[at - 40 :]} (from byte {at - 40} of {len(line)})"
    for at in (40, 41):
        line = f"OBS=1,2;REW=0;{'y' * (at - 22)}=1;DONE=Q;ENV=1"
        assert line.index("Q") == at
        got = str(refused(codec, line, buffers).got)
        assert got == (line if at == 40 else f"...{line[1:]} (from byte 1 of {len(line)})")
    data = b"something before\n" + line.encode()
    with pytest.raises(errors.MalformedMessage) as caught:
        codec.decode_states(data, buffers, None, 17)
    assert caught.value.got == got
    assert caught.value.env_id == 1
    data = b"before\n" * 9 + f"OBS=x,2;REW=0;DONE=0;ENV=1||{row(0)}".encode()
    with pytest.raises(errors.MalformedMessage) as caught:
        codec.decode_states(data, buffers, None, 63)
    assert caught.value.env_id == 1  # places count from the line's start, wherever it stands


def test_rlbase_says_how_many_numbers_came_where_that_can_be_told(compiled: bool) -> None:
    codec, buffers = made(compiled, form=RLBASE, envs=1)
    assert refused(codec, "0.5;1", buffers).message.endswith(": 0 came")
    assert refused(codec, "1,2,3,4;1", buffers).message.endswith("wrong number of numbers")


@pytest.mark.parametrize("info", ["%7B%22a%22%3A", "[1]", "null", "%7B%22a%22%3ANaN%7D", "%FF", "3"])
def test_an_info_that_is_no_json_object_is_refused_and_forgotten(compiled: bool, info: str) -> None:
    codec, buffers = made(compiled)
    error = refused(codec, row(1, f";INFO={info}"), buffers)
    assert (type(error), error.env_id, error.field) == (errors.MalformedMessage, 1, "INFO")
    assert error.got == info.encode()
    buffers.pending[:] = 1
    buffers.infos.clear()
    assert codec.decode_states(row(0, ";INFO=%7B%7D").encode(), buffers) == 1  # no trace of env 1's
    assert buffers.infos == {0: {}}


def test_zeros_of_an_info_keep_their_signs(compiled: bool) -> None:
    """JSON's -0 is a number with a sign, which Python's own reader takes for the whole number 0."""
    codec, buffers = made(compiled)
    info = quote('{"a":-0,"b":[-0.0,-0e1,0,-10]}', safe="")
    assert codec.decode_states(row(0, f";INFO={info}").encode(), buffers) == 1
    assert str(buffers.infos[0]) == "{'a': -0.0, 'b': [-0.0, -0.0, 0, -10]}"


def test_infos_and_options_belong_to_their_line_alone(compiled: bool) -> None:
    codec, buffers = made(compiled)
    line = f"{row(0, ';INFO=%7B%22a%22%3A1%7D')}||{row(1)}||{row(2, ';INFO=%7B%22b%22%3A2%7D')}".encode()
    assert codec.decode_states(line, buffers) == 3
    assert buffers.infos == {0: {"a": 1}, 2: {"b": 2}}
    buffers.infos.clear()
    buffers.pending[:] = 1
    assert codec.decode_states(row(1, ";INFO=%7B%7D").encode(), buffers) == 1
    assert buffers.infos == {1: {}}
    # a refused line leaves nothing behind for the next one
    buffers.infos.clear()
    buffers.pending[:] = 1
    refused(codec, f"{row(0, ';INFO=%7B%22a%22%3A1%7D')}||nonsense", buffers)
    assert codec.decode_states(row(1, ";INFO=%7B%7D").encode(), buffers) == 1
    assert buffers.infos == {1: {}}
    batch = ActionBatch(3, 2)
    assert codec.decode_requests(b"ACT=RESET;ENV=0;OPTIONS=%7B%22x%22%3A2%7D||ACT=RESET;ENV=2", batch) == 2
    assert batch.options == {0: {"x": 2}}
    asked = b"ACT=RESET;ENV=1;OPTIONS=%7B%22b%22%3A2%7D"
    batch.clear()
    assert codec.decode_requests(asked, batch) == 1
    assert batch.options == {1: {"b": 2}}
    batch.clear()
    with pytest.raises(errors.MalformedMessage) as caught:
        codec.decode_requests(b"ACT=RESET;ENV=0;OPTIONS=7", batch)
    assert (caught.value.fault, caught.value.field, caught.value.env_id) == ("trainer", "OPTIONS", 0)
    assert codec.decode_requests(asked, batch) == 1
    assert batch.options == {1: {"b": 2}}


# -- the lines of all env sockets at once


def read_lines(codec: Codec, texts: list[str], buffers: StepBuffers) -> int:
    """Those of all envs, each in its place of one buffer."""
    stride = 80
    data, fill = bytearray(b"#" * (stride * len(texts))), np.zeros(len(texts), np.int32)
    for env, text in enumerate(texts):
        fill[env] = len(text)
        data[env * stride : env * stride + len(text)] = text.encode()
    return codec.decode_state_lines(data, stride, fill, buffers)


def test_the_lines_of_all_env_sockets_are_read_at_once() -> None:
    codec, buffers = made(True)
    if codec._decode_state_lines is None:
        pytest.skip("these kernels read no sockets")
    good = "OBS=1,2;REW=0.5;DONE=0\n"
    assert read_lines(codec, [good, "", good], buffers) == 2
    assert buffers.pending.tolist() == [0, 1, 0]
    buffers.pending[:] = 1
    info = good.replace("\n", ";INFO=%7B%22a%22%3A1%7D\n")
    assert read_lines(codec, [good, info, good], buffers) == 3
    assert buffers.infos == {1: {"a": 1}}
    buffers.infos.clear()
    buffers.pending[:] = 1
    assert read_lines(codec, [good, good, good], buffers) == 3
    assert buffers.infos == {}
    buffers.pending[:] = 1
    bad = "OBS=1,2;REW=0.125;DONE=7\n"  # longer than the others: its end is told by its own length
    with pytest.raises(errors.MalformedMessage) as caught:
        read_lines(codec, [good, good, bad], buffers)
    assert (caught.value.env_id, caught.value.field, caught.value.fault) == (2, "DONE", "engine")
    assert caught.value.got == bad.rstrip()
    assert buffers.pending.tolist() == [0, 0, 1]


def test_a_seed_that_is_true_is_1_as_gymnasium_takes_it() -> None:
    spec = EnvSpec(1, 1, num_envs=2, features=frozenset({"SEED"}))
    assert Codec(spec).encode_resets([0, 1], [True, np.int64(2)]) == b"ACT=RESET;ENV=0;SEED=1||ACT=RESET;ENV=1;SEED=2\n"
