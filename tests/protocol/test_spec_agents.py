"""EnvSpec with agents, parameters, names and trees: what it derives, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ue_rl.protocol.spaces.tree import box
from ue_rl.protocol.spec import ActionSpec, AgentGroup, Channel, EnvSpec, EnvType, ImageSpec, Parameter
from ue_rl.protocol.text.handshake import decode_handshake, encode_handshake
from ue_rl.protocol.text.space_text import read_space
from ue_rl.system.errors import ConfigurationError, HandshakeError

STRIKER = EnvSpec(4, 2)
GOALIE = EnvSpec(6, 1, action=ActionSpec.discrete(3), obs_low=(-1.0,), obs_high=(1.0,), act_names=("side",))
TEAM = (AgentGroup("striker", 2, STRIKER), AgentGroup("goalie", 1, GOALIE))


def test_rows_and_names_of_agents() -> None:
    spec = EnvSpec(6, 2, num_envs=5, groups=TEAM, features=frozenset({"MASK"}))
    assert (spec.agents_per_env, spec.num_rows, spec.mask_size) == (3, 15, 3)
    assert spec.agent_names == ("striker_0", "striker_1", "goalie")
    one = spec.group_spec("striker")
    assert (one.num_envs, one.obs_size, one.act_size, one.mask_size, one.groups) == (10, 4, 2, 0, ())
    assert spec.group_spec("goalie").mask_size == 3
    with pytest.raises(ConfigurationError, match=r"no such group.*striker, goalie"):
        spec.group_spec("referee")


def test_an_env_that_is_one_agent_has_one_row() -> None:
    spec = EnvSpec(6, 2, num_envs=5)
    assert (spec.agents_per_env, spec.num_rows, spec.mask_size, spec.agent_names) == (1, 5, 0, ())


@pytest.mark.parametrize(
    "spec",
    [
        EnvSpec(6, 2, num_envs=5, groups=TEAM, features=frozenset({"MASK"})),
        EnvSpec(6, 1, num_envs=2, groups=(AgentGroup("goalie", 3, GOALIE),)),
        EnvSpec(6, 1, num_envs=2, groups=(AgentGroup("left", 1, GOALIE), AgentGroup("right", 2, GOALIE))),
        EnvSpec(4, 2, groups=(AgentGroup("ünder dog", 1, STRIKER), AgentGroup("cat", 1, replace(STRIKER, obs_size=3)))),
        EnvSpec(2, 2, num_envs=3, parameters=(Parameter("gravity", 9.8, 1, 20), Parameter("wind", 0.1))),
        EnvSpec(2, 2, obs_names=("x[m]", "speed[m/s]"), act_names=("left hand", "right,hand")),
        EnvSpec(5, 1, obs_space=read_space("DICT(a:BOX(0:1)[2,2],b:DISCRETE(3))")),
        EnvSpec(1, 2, obs_space=read_space("DICT(eye:IMAGE)"), image=ImageSpec(8, 8)),
        EnvSpec(6, 1, obs_space=box((2, 3))),
    ],
)
def test_the_handshake_says_it_all(spec: EnvSpec) -> None:
    line = encode_handshake(spec)
    assert line.isascii()
    assert decode_handshake(line) == spec


def test_a_plain_row_has_one_form() -> None:
    """A BOX of one dimension is what version 1 says without a shape, to the byte."""
    spec = EnvSpec(3, 2, obs_space=box((3,), -1, 1))
    assert spec == EnvSpec(3, 2, obs_low=(-1.0,), obs_high=(1.0,))
    assert b"OBS_SPACE=BOX(-1:1);" in encode_handshake(spec).replace(b"\n", b";")
    assert EnvSpec(3, 2, obs_space=box((3,))).obs_low == ()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"groups": TEAM}, "OBS is that of the group with the largest"),
        ({"groups": TEAM, "obs_size": 6, "act_size": 3}, "ACT is that of"),
        ({"groups": TEAM, "obs_size": 6, "channel": Channel.PER_ENV}, "shared channel"),
        ({"groups": TEAM, "obs_size": 6, "env_type": EnvType.SINGLE, "num_envs": 1}, "ENV_TYPE=MULTI"),
        ({"groups": (TEAM[0], TEAM[0])}, "name of its own"),
        ({"groups": (AgentGroup("a", 0, STRIKER),)}, "one agent or more"),
        ({"groups": (AgentGroup("a", 5000, STRIKER),)}, "too many agents"),
        ({"groups": (AgentGroup("a", 4000, STRIKER),), "num_envs": 17}, "more agents"),
        ({"obs_space": box((2, 3))}, "OBS_SPACE and OBS disagree"),
        ({"obs_space": read_space("DICT(a:IMAGE,b:BOX(0:1)[4])")}, "OBS_SPACE and IMAGE disagree"),
        ({"obs_names": ("a",)}, "one name for each"),
        ({"act_names": ("a", "")}, "one name for each"),
        ({"parameters": (Parameter("a", 1), Parameter("a", 2))}, "twice"),
    ],
)
def test_what_cannot_be_is_named(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        EnvSpec(**{"obs_size": 4, "act_size": 2, "num_envs": 2, **fields})
    assert says in str(caught.value)


@pytest.mark.parametrize("numbers", [(float("nan"),), (float("inf"),), (5.0, 0.0, 1.0), (0.5, 1.0, 0.0)])
def test_a_parameters_value_is_in_its_range(numbers: Any) -> None:
    with pytest.raises(ConfigurationError, match="in its range"):
        Parameter("gravity", *numbers)


@pytest.mark.parametrize(
    "key", ["AGENTS=a", "AGENTS=a:x", "AGENTS=:2", "AGENTS=a:2;OBS.a=x", "PARAMS=gravity", "PARAMS=g:1:2", "PARAMS=g:x"]
)
def test_broken_keys_are_refused_by_name(key: str) -> None:
    with pytest.raises(HandshakeError) as caught:
        decode_handshake(f"CONFIG:OBS=4;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=2;VERSION=1;{key}".encode())
    assert key.partition("=")[0] in str(caught.value)


def test_unknown_keys_are_remembered() -> None:
    line = b"CONFIG:OBS=4;ACT=2;ENV_TYPE=SINGLE;VERSION=1;ACTSPACE=DISCRETE(2);AGENTS=a:1;OBS.a=4;OBS.b=3"
    with pytest.raises(HandshakeError):
        decode_handshake(line)  # agents need MULTI
    spec = decode_handshake(line.replace(b"SINGLE", b"MULTI;ENV_COUNT=1"))
    assert spec.unknown == ("ACTSPACE", "OBS.B")
