"""The offer in a handshake and the segment behind it: the same line in both, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ue_rl
from tests.support.games import Sum
from tests.support.steps import begin
from ue_rl.bridges import ShmUpgrader, run_in_thread
from ue_rl.connections import SharedMemoryConnection, open_engine
from ue_rl.connections.shm.upgrade import difference
from ue_rl.protocol.spaces.tree import Branch, Leaf, LeafKind, box
from ue_rl.protocol.spec import ActionSpec, AgentGroup, EnvSpec, ImageSpec, Parameter
from ue_rl.protocol.text.handshake import decode_handshake, encode_handshake
from ue_rl.system import errors

TREE = Branch((("arm", box((2,), -1, 1)), ("door", Leaf(LeafKind.DISCRETE, (), counts=(3,)))))
FULL = EnvSpec(
    3,
    3,
    num_envs=2,
    action=ActionSpec.of(TREE),
    obs_space=TREE,
    features=frozenset({"MASK", "SEED", "RENDER"}),
    obs_names=("x[m]", "y[m]", "door"),
    act_names=("a", "b", "c"),
    parameters=(Parameter("wind", 0.5, -1, 1),),
)
TEAM = EnvSpec(
    4, 2, num_envs=2, features=frozenset({"MASK"}),
    groups=(
        AgentGroup("striker", 2, EnvSpec(4, 2, act_names=("run", "turn"))),
        AgentGroup("goalie", 1, EnvSpec(2, 1, action=ActionSpec.discrete(3))),
    ),
)  # fmt: skip
PICTURES = EnvSpec(1, 1, image=ImageSpec(8, 9), num_envs=2)


@pytest.mark.parametrize(
    "spec", [FULL, TEAM, PICTURES, EnvSpec(5, 2, num_envs=3)], ids=["tree", "team", "image", "flat"]
)
def test_whatever_a_handshake_says_the_session_goes_over(spec: EnvSpec) -> None:
    with run_in_thread(Sum(spec), upgrader=ShmUpgrader()) as server:
        with SharedMemoryConnection(engine=("127.0.0.1", server.port), timeout=10) as connection:
            assert connection.spec.obs_space == spec.obs_space
            assert connection.spec.groups == spec.groups
            assert connection.memory.header.num_envs == spec.num_rows
            assert begin(connection).obs.shape == (spec.num_rows, spec.obs_size)


CHANGES: dict[str, tuple[EnvSpec, dict[str, Any], tuple[str, str, str]]] = {
    "names": (FULL, {"obs_names": ("x[m]", "z[m]", "door")}, ("OBS_NAMES", "'y[m]' at 1", "'z[m]' at 1")),
    "no names": (FULL, {"act_names": ()}, ("ACT_NAMES", "('a', 'b', 'c')", "()")),
    "features": (FULL, {"features": frozenset({"MASK"})}, ("FEATURES", "MASK,RENDER,SEED", "MASK")),
    "no features": (FULL, {"features": frozenset()}, ("FEATURES", "MASK,RENDER,SEED", "none")),
    "count": (EnvSpec(1, 1, num_envs=2), {"num_envs": 3}, ("ENV_COUNT", "2", "3")),
    "bounds": (
        EnvSpec(2, 1, obs_low=(0, 0), obs_high=(1, 1)), {"obs_high": (1, 2)}, ("OBS_SPACE", "1 at 1", "2 at 1")
    ),
    "parameter": (
        FULL, {"parameters": (Parameter("wind", 0.5, -1, 2),)},
        ("PARAMS", "Parameter(name='wind', value=0.5, low=-1, high=1) at 0",
         "Parameter(name='wind', value=0.5, low=-1, high=2) at 0"),
    ),
    "a group's own": (
        TEAM,
        {"groups": (AgentGroup("striker", 2, EnvSpec(4, 2, act_names=("run", "jump"))), TEAM.groups[1])},
        ("ACT_NAMES.striker", "'turn' at 1", "'jump' at 1"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_the_difference_is_named(change: str) -> None:
    spec, changes, expected = CHANGES[change]
    assert difference(spec, replace(spec, **changes)) == expected


def test_the_offer_and_what_nobody_knows_are_not_compared() -> None:
    line = encode_handshake(FULL)
    offered = decode_handshake(line[:-1] + b";SHM=a:" + b"0" * 32 + b";COLOUR=blue\n")
    assert offered.unknown == ("COLOUR",)
    assert difference(offered, decode_handshake(line)) is None


class Liar(ShmUpgrader):
    """Offers the segment of another game.

    Args:
        other: that game.
    """

    def __init__(self, other: Sum) -> None:
        super().__init__()
        self._other = other

    def offer(self, bridge: Any) -> str | None:
        return super().offer(self._other)


@pytest.fixture
def liar() -> Iterator[Any]:
    """A server whose segments say something else than its handshake, far behind in the line."""
    names = tuple(f"number_{i}" for i in range(200))
    other = Sum(EnvSpec(200, 1, obs_names=(*names[:-1], "another")))
    with run_in_thread(Sum(EnvSpec(200, 1, obs_names=names)), upgrader=Liar(other)) as server:
        yield server


def test_a_refusal_names_the_field_that_differs(liar: Any, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(errors.UnsupportedByEngine) as caught:
        open_engine("127.0.0.1", liar.port, transport="shm", timeout=10)
    error = caught.value
    assert (error.fault, error.field) == ("engine", "OBS_NAMES")
    assert (error.expected, error.got) == ("'number_199' at 199", "'another' at 199")
    assert "'number_199' at 199" in str(error)
    assert "'another' at 199" in str(error)
    with caplog.at_level("INFO"), open_engine("127.0.0.1", liar.port, timeout=10) as connection:
        assert "OBS_NAMES" in caplog.text
        assert connection.describe()["transport"] == "tcp"
        assert "OBS_NAMES" in connection.describe()["shared memory"]
    env = ue_rl.connect(f"tcp://127.0.0.1:{liar.port}", timeout=10)
    try:
        assert env.reset().shape == (1, 200)
        env.step(np.zeros((1, 1), np.float32))
    finally:
        env.close()
