"""MASK, AGENT and SET through the Codec, compiled and pure: what is read, what is written, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ue_rl.protocol.buffers import ActionBatch, Resets, StepBuffers
from ue_rl.protocol.spaces.actions import ActionSpec
from ue_rl.protocol.spaces.tree import Branch, Leaf, LeafKind, box
from ue_rl.protocol.spec import AgentGroup, EnvSpec, Parameter
from ue_rl.protocol.text import Codec
from ue_rl.system import errors

MASK = frozenset({"MASK"})


def masked(action: ActionSpec, num_envs: int = 2) -> EnvSpec:
    return EnvSpec(1, action.size, num_envs=num_envs, action=action, features=MASK)


def teams(num_envs: int = 2, mask: bool = False, **more: Any) -> EnvSpec:
    """Two strikers with 2 observations and 2 actions, one goalie with 3 observations and a choice out of 3."""
    groups = (
        AgentGroup("striker", 2, EnvSpec(2, 2)),
        AgentGroup("goalie", 1, EnvSpec(3, 1, action=ActionSpec.discrete(3))),
    )
    return EnvSpec(3, 2, num_envs=num_envs, groups=groups, features=MASK if mask else frozenset(), **more)


def asked(spec: EnvSpec, pending: int = 1) -> StepBuffers:
    buffers = StepBuffers.of(spec)
    buffers.pending[:] = pending
    return buffers


def refused(codec: Codec, line: bytes, buffers: StepBuffers | None = None) -> errors.ProtocolError:
    with pytest.raises(errors.ProtocolError) as caught:
        codec.decode_states(line, asked(codec.spec) if buffers is None else buffers)
    return caught.value


# -- masks


@pytest.mark.parametrize(
    ("action", "flags"),
    [
        (ActionSpec.discrete(4), "0110"),
        (ActionSpec.multi_discrete((2, 3)), "01100"),
        (ActionSpec.multi_binary(2), "0110"),
    ],
)
def test_a_mask_is_read_and_written_for_every_kind_of_choice(action: ActionSpec, flags: str, compiled: bool) -> None:
    codec = Codec(masked(action), compiled=compiled)
    buffers = asked(codec.spec)
    buffers.masks[:] = 7
    line = f"OBS=1;REW=0;DONE=0;ENV=1;MASK={flags}||OBS=2;REW=0;DONE=0;ENV=0\n".encode()
    assert codec.decode_states(line, buffers) == 2
    assert buffers.masks.tolist() == [[1] * len(flags), [int(flag) for flag in flags]]
    written = codec.encode_states(
        buffers.obs, buffers.rewards, buffers.dones, buffers.truncated, [1, 0], masks=buffers.masks
    )
    assert written == line
    infos = codec.encode_states(
        buffers.obs, buffers.rewards, buffers.dones, buffers.truncated, [1], {1: {"a": 1}}, buffers.masks
    )
    assert infos.startswith(line.split(b"||")[0] + b";INFO=")
    none = codec.encode_states(buffers.obs, buffers.rewards, buffers.dones)
    assert b"MASK" not in none


@pytest.mark.parametrize(
    ("mask", "kind", "says"),
    [
        ("011", errors.WrongCount, "4 flags"),
        ("01100", errors.WrongCount, "4 flags"),
        ("0000", errors.MalformedMessage, "without a choice"),
        ("", errors.MalformedMessage, "flag"),
        ("0120", errors.MalformedMessage, "flag"),
        ("0110 1", errors.MalformedMessage, "flag"),
        ("0110;MASK=0110", errors.MalformedMessage, "twice"),
    ],
)
def test_a_mask_that_is_wrong_is_refused_and_its_row_not_written(
    mask: str, kind: Any, says: str, compiled: bool
) -> None:
    codec = Codec(masked(ActionSpec.discrete(4)), compiled=compiled)
    buffers = asked(codec.spec)
    error = refused(codec, f"OBS=5;REW=0;DONE=0;ENV=0||OBS=5;REW=0;DONE=0;ENV=1;MASK={mask}".encode(), buffers)
    assert (type(error), error.field, error.env_id) == (kind, "MASK", 1)
    assert says in str(error)
    assert buffers.obs.tolist() == [[5], [0]]
    assert buffers.masks.tolist() == [[1] * 4] * 2
    assert buffers.pending.tolist() == [0, 1]


def test_a_number_without_a_choice_is_named_by_its_place_in_the_row(compiled: bool) -> None:
    tree = Branch((("where", box((2,), -1, 1)), ("what", Leaf(LeafKind.DISCRETE, (), counts=(3,)))))
    codec = Codec(masked(ActionSpec.of(tree), 1), compiled=compiled)
    buffers = asked(codec.spec)
    assert codec.decode_states(b"OBS=1;REW=0;DONE=0;ENV=0;MASK=010", buffers) == 1
    assert buffers.masks.tolist() == [[0, 1, 0]]
    error = refused(codec, b"OBS=1;REW=0;DONE=0;ENV=0;MASK=000")
    assert "number 2" in str(error), "as over shared memory"


def test_no_choice_is_needed_where_the_episode_is_over(compiled: bool) -> None:
    codec = Codec(masked(ActionSpec.multi_discrete((2, 2)), 1), compiled=compiled)
    buffers = asked(codec.spec)
    assert codec.decode_states(b"OBS=1;REW=0;DONE=1;ENV=0;MASK=0000", buffers) == 1
    assert buffers.masks.tolist() == [[0] * 4]
    error = refused(codec, b"OBS=1;REW=0;DONE=0;ENV=0;MASK=0100")
    assert "number 1" in str(error)


def test_a_mask_that_was_not_announced_is_skipped(compiled: bool) -> None:
    for action in (ActionSpec.discrete(2), ActionSpec.box(1)):
        codec = Codec(EnvSpec(1, 1, action=action), compiled=compiled)
        assert codec.decode_states(b"OBS=1;REW=0;DONE=0;ENV=0;MASK=7;MASK=8", asked(codec.spec)) == 1


def test_observations_alone_have_masks_where_somebody_takes_them(compiled: bool) -> None:
    codec = Codec(masked(ActionSpec.discrete(3)), compiled=compiled)
    obs, resets, masks = np.zeros((2, 1), np.float32), np.zeros(2, np.uint8), np.zeros((2, 3), np.uint8)
    envs = codec.decode_observations(b"OBS=1;ENV=1;MASK=010||OBS=2;ENV=0", obs, resets, masks=masks)
    assert envs.tolist() == [1, 0]
    assert masks.tolist() == [[1, 1, 1], [0, 1, 0]]
    assert codec.decode_observations(b"OBS=1;ENV=1;MASK=9", obs, resets).tolist() == [1]


# -- agents

GOOD = (
    b"OBS=1,2;REW=0.5;DONE=0;ENV=1;AGENT=0||OBS=3,4;REW=1;DONE=1;ENV=1;AGENT=1;TRUNC=1"
    b"||OBS=5,6,7;REW=2;DONE=0;ENV=1;AGENT=2;MASK=101\n"
)


def test_rows_of_agents_are_read_and_written(compiled: bool) -> None:
    codec = Codec(teams(mask=True), compiled=compiled)
    buffers = asked(codec.spec)
    assert codec.decode_states(GOOD, buffers) == 1  # env
    assert buffers.obs[3:].tolist() == [[1, 2, 0], [3, 4, 0], [5, 6, 7]]
    assert buffers.rewards.tolist() == [0, 0, 0, 0.5, 1, 2]
    assert buffers.dones.tolist() == [0, 0, 0, 0, 1, 0]
    assert buffers.truncated.tolist() == [0, 0, 0, 0, 1, 0]
    assert buffers.masks[5].tolist() == [1, 0, 1]
    assert buffers.pending.tolist() == [1, 1, 1, 0, 0, 0]
    written = codec.encode_states(
        buffers.obs, buffers.rewards, buffers.dones, buffers.truncated, [3, 4, 5], masks=buffers.masks
    )
    assert written == GOOD


def test_who_is_there_is_who_came(compiled: bool) -> None:
    codec = Codec(teams(), compiled=compiled)
    buffers = asked(codec.spec, 2)
    reset = b"OBS=1,2;REW=9;DONE=1;ENV=0;AGENT=1||OBS=1,2,3;REW=0;DONE=0;ENV=1;AGENT=2"
    assert codec.decode_states(reset, buffers) == 2
    assert buffers.present.tolist() == [0, 1, 0, 0, 0, 1]
    assert not buffers.pending.any()
    assert (buffers.rewards[1], buffers.dones[1]) == (0, 0)  # they mean nothing: it was not asked
    # the striker acts and ends; another one comes; one that has ended may come back
    for line, present, dones in (
        (b"OBS=1,2;REW=1;DONE=1;ENV=0;AGENT=1||OBS=0,0;REW=0;DONE=1;ENV=0;AGENT=0", [1, 1, 0], [0, 1, 0]),
        (b"OBS=1,2;REW=1;DONE=0;ENV=0;AGENT=0||OBS=7,8;REW=3;DONE=0;ENV=0;AGENT=1", [1, 1, 0], [0, 0, 0]),
    ):
        live = (buffers.present != 0) & (buffers.dones == 0)
        buffers.pending[:3] = np.where(live, 1, 2)[:3]
        assert codec.decode_states(line, buffers) == 1
        assert buffers.present[:3].tolist() == present
        assert buffers.dones[:3].tolist() == dones
    assert buffers.obs[1].tolist() == [7, 8, 0]
    assert buffers.rewards[1] == 0


@pytest.mark.parametrize(
    ("line", "kind", "field", "env", "says"),
    [
        (b"OBS=1,2;REW=0;DONE=0;ENV=1;AGENT=0", errors.MalformedMessage, "AGENT", 1, "striker_1"),
        (b"OBS=1,2;REW=0;DONE=0;ENV=1", errors.MalformedMessage, "AGENT", 1, "missing"),
        (b"OBS=1,2;REW=0;DONE=0;ENV=1;AGENT=3", errors.UnknownEnv, "AGENT", 1, "0 to 2"),
        (b"OBS=1,2;REW=0;DONE=0;ENV=2;AGENT=0", errors.UnknownEnv, "ENV", None, "0 to 1"),
        (b"OBS=1,2,3;REW=0;DONE=0;ENV=1;AGENT=1", errors.WrongCount, "OBS", 1, "2 numbers"),
        (b"OBS=1,2;REW=0;DONE=0;ENV=1;AGENT=2", errors.WrongCount, "OBS", 1, "agent goalie"),
        (b"OBS=1,2,3,4;REW=0;DONE=0;ENV=1;AGENT=2", errors.WrongCount, "OBS", 1, "4 came"),
        (b"AGENT=2;OBS=1,2,nan;REW=0;DONE=0;ENV=1", errors.NonFiniteValue, "OBS", 1, "goalie"),
        (GOOD[:-1] + b"||" + GOOD, errors.RepeatedEnv, "AGENT", 1, "striker_0"),
        (b"OBS=1,2;REW=0;DONE=0;ENV=1;AGENT=0;MASK=1", errors.WrongCount, "MASK", 1, "0 flags"),
        (b"OBS=1,2,3;REW=0;DONE=0;ENV=1;AGENT=2;MASK=000", errors.MalformedMessage, "MASK", 1, "goalie"),
        (b"OBS=1,2;REW=0;DONE=0;ENV=1;AGENT=-1", errors.MalformedMessage, "AGENT", 1, "integer"),
    ],
)
def test_an_answer_that_is_wrong_names_env_and_agent(
    line: bytes, kind: Any, field: str, env: int | None, says: str, compiled: bool
) -> None:
    error = refused(Codec(teams(mask=True), compiled=compiled), line)
    assert (type(error), error.field, error.env_id) == (kind, field, env)
    assert says in str(error)


def test_agents_that_can_act_are_asked_and_no_others(compiled: bool) -> None:
    codec = Codec(teams(3), compiled=compiled)
    spec = codec.spec
    buffers = asked(spec, 0)
    buffers.present[[1, 4]] = 0
    buffers.dones[[2]] = 1
    actions = np.arange(18, dtype=np.float32).reshape(9, 2)
    actions[[1, 2, 4]] = np.nan  # of nobody who is asked
    line = codec.encode_request(actions, None, buffers)
    assert line == (
        b"ACT=0,1;ENV=0;AGENT=0||ACT=6,7;ENV=1;AGENT=0||ACT=10;ENV=1;AGENT=2"
        b"||ACT=12,13;ENV=2;AGENT=0||ACT=14,15;ENV=2;AGENT=1||ACT=16;ENV=2;AGENT=2\n"
    )
    mixed = codec.encode_request(actions, Resets([1]), buffers)
    assert mixed == (
        b"ACT=0,1;ENV=0;AGENT=0||ACT=12,13;ENV=2;AGENT=0||ACT=14,15;ENV=2;AGENT=1||ACT=16;ENV=2;AGENT=2"
        b"||ACT=RESET;ENV=1\n"
    )
    batch = ActionBatch.of(spec)
    assert codec.decode_requests(mixed, batch) == 5
    assert batch.command.tolist() == [1, 0, 0, 2, 2, 2, 1, 1, 1]
    assert batch.actions[[0, 6, 7, 8]].tolist() == [[0, 1], [12, 13], [14, 15], [16, 0]]
    actions[3, 1] = np.inf
    with pytest.raises(errors.ActionError) as caught:
        codec.encode_request(actions, None, buffers)
    assert (caught.value.env_id, "striker_0" in str(caught.value)) == (1, True)


def test_a_reset_of_an_env_with_agents_is_one_ask(compiled: bool) -> None:
    spec = EnvSpec(
        3,
        2,
        num_envs=2,
        groups=teams().groups,
        features=frozenset({"SEED", "OPTIONS"}),
        parameters=(Parameter("gravity", 9.8), Parameter("Wind & rain", 0.0)),
    )
    codec, batch = Codec(spec, compiled=compiled), ActionBatch.of(spec)
    line = codec.encode_resets([1], [7], [{"a": 1}], [{"gravity": 3.5, "Wind & rain": 1e-7}])
    assert line == (b"ACT=RESET;ENV=1;SEED=7;OPTIONS=%7B%22a%22%3A1%7D;SET=gravity:3.5,Wind%20%26%20rain:1e-07\n")
    assert codec.decode_requests(line, batch) == 1
    assert batch.command.tolist() == [0, 0, 0, 2, 2, 2]
    assert batch.seeds.tolist() == [-1, -1, -1, 7, -1, -1]
    assert (batch.options, batch.parameters) == ({3: {"a": 1}}, {3: {"gravity": 3.5, "Wind & rain": 1e-7}})
    assert codec.encode_resets() == b"ACT=RESET;ENV=0||ACT=RESET;ENV=1\n"


@pytest.mark.parametrize(
    ("line", "kind", "field", "says"),
    [
        (b"ACT=RESET;ENV=1;AGENT=0", errors.MalformedMessage, "AGENT", "cannot be reset alone"),
        (b"ACT=1,2;ENV=1", errors.MalformedMessage, "AGENT", "missing"),
        (b"ACT=1,2;ENV=1;AGENT=9", errors.UnknownEnv, "AGENT", "0 to 2"),
        (b"ACT=1,2;ENV=1;AGENT=2", errors.WrongCount, "ACT", "1 numbers"),
        (b"ACT=1,2;ENV=1;AGENT=0||ACT=RESET;ENV=1", errors.RepeatedEnv, "AGENT", "asked again"),
        (b"ACT=RESET;ENV=1||ACT=1,2;ENV=1;AGENT=1", errors.RepeatedEnv, "AGENT", "asked again"),
    ],
)
def test_a_request_to_agents_that_is_wrong_is_refused(
    line: bytes, kind: Any, field: str, says: str, compiled: bool
) -> None:
    codec = Codec(teams(), compiled=compiled)
    with pytest.raises(errors.ProtocolError) as caught:
        codec.decode_requests(line, ActionBatch.of(codec.spec))
    assert (type(caught.value), caught.value.field, caught.value.env_id) == (kind, field, 1)
    assert says in str(caught.value)


# -- parameters on a reset

PARAMETERS = (Parameter("gravity", 9.8, 0, 20), Parameter("wind", 0.0))


def test_parameters_go_with_a_reset(compiled: bool) -> None:
    codec = Codec(EnvSpec(1, 1, num_envs=3, parameters=PARAMETERS), compiled=compiled)
    line = codec.encode_resets([2, 0], None, None, [{"gravity": np.float32(0.5)}, None])
    assert line == b"ACT=RESET;ENV=2;SET=gravity:0.5||ACT=RESET;ENV=0\n"
    batch = ActionBatch.of(codec.spec)
    assert codec.decode_requests(line, batch) == 2
    assert batch.parameters == {2: {"gravity": 0.5}}
    batch.clear()
    assert codec.decode_requests(b"ACT=1;ENV=2;SET=gravity:1||ACT=RESET;SET= wind : 1e3 ;ENV=1", batch) == 2
    assert batch.parameters == {1: {"wind": 1000}}  # beside numbers it is ignored


def test_a_set_that_was_not_announced_is_skipped(compiled: bool) -> None:
    codec = Codec(EnvSpec(1, 1), compiled=compiled)
    batch = ActionBatch.of(codec.spec)
    assert codec.decode_requests(b"ACT=RESET;ENV=0;SET=x;SET=y", batch) == 1
    assert batch.parameters == {}


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("gravity", errors.MalformedMessage),
        ("", errors.MalformedMessage),
        ("gravity:", errors.MalformedMessage),
        ("gravity:two", errors.MalformedMessage),
        ("gravity:1_0", errors.MalformedMessage),
        ("gravity:1,gravity:2", errors.MalformedMessage),
        ("%FF:1", errors.MalformedMessage),
        (":1", errors.MalformedMessage),
        ("speed:1", errors.MalformedMessage),
        ("gravity:nan", errors.NonFiniteValue),
        ("gravity:1e999", errors.NonFiniteValue),
        ("gravity:1;SET=gravity:1", errors.MalformedMessage),
    ],
)
def test_settings_that_are_wrong_are_refused(value: str, kind: Any, compiled: bool) -> None:
    codec = Codec(EnvSpec(1, 1, num_envs=2, parameters=PARAMETERS), compiled=compiled)
    with pytest.raises(errors.ProtocolError) as caught:
        codec.decode_requests(f"ACT=RESET;ENV=1;SET={value}".encode(), ActionBatch.of(codec.spec))
    assert (type(caught.value), caught.value.field, caught.value.env_id) == (kind, "SET", 1)


@pytest.mark.parametrize("given", [{"speed": 1.0}, {"gravity": 21.0}, {"gravity": float("nan")}, {"wind": "strong"}])
def test_parameters_that_the_engine_has_not_are_not_sent(given: Any, compiled: bool) -> None:
    codec = Codec(EnvSpec(1, 1, parameters=PARAMETERS), compiled=compiled)
    kind = errors.UnsupportedByEngine if "speed" in given else errors.ConfigurationError
    with pytest.raises(kind) as caught:
        codec.encode_resets([0], None, None, [given])
    assert caught.value.field == "SET"


# -- the end of a session, said by the engine


def test_an_error_line_instead_of_an_answer_is_the_engines_end(compiled: bool) -> None:
    for spec in (EnvSpec(1, 1, num_envs=2), teams(), masked(ActionSpec.discrete(2))):
        with pytest.raises(errors.EngineDisconnected) as caught:
            Codec(spec, compiled=compiled).decode_states(b"ERROR=out%20of%20memory\n", asked(spec))
        assert (caught.value.fault, caught.value.field) == ("engine", "ERROR")
        assert caught.value.message == "the engine ended the session: out of memory"


def test_envs_that_rest_are_not_named() -> None:
    spec = EnvSpec(1, 1, num_envs=3)
    codec, buffers, actions = Codec(spec), StepBuffers.of(spec), np.float32([[1], [2], [3]])
    assert codec.encode_request(actions, Resets([], resting=[1]), buffers, 7) == b"ACT=1;ENV=0||ACT=3;ENV=2;SEQ=7\n"
    mixed = codec.encode_request(actions, Resets([0], resting=[1]), buffers, 8)
    assert mixed == b"ACT=3;ENV=2||ACT=RESET;ENV=0;SEQ=8\n"
