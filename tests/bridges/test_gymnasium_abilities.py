"""What hosted Gymnasium envs offer beside reset and step, and how a GymnasiumBridge makes and resets them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from tests.support.steps import advance, begin
from ue_rl.bridges import GymnasiumBridge
from ue_rl.bridges.hosting import GetsParameters, ListsParameters, SetsParameters
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.protocol.calls.asking import EngineCalls
from ue_rl.protocol.spec import EnvType, Parameter
from ue_rl.system import errors

BOX = spaces.Box(-1, 1, (2,), np.float32)


class Small(gym.Env[Any, Any]):
    """Three steps an episode."""

    def __init__(self, action: spaces.Space[Any] | None = None, render_mode: str | None = None) -> None:
        self.observation_space: spaces.Space[Any] = BOX
        self.action_space = action or spaces.Discrete(3)
        self.render_mode = render_mode
        self.gravity, self.lives, self.body = 9.0, 3, self.Body()

    class Body:
        mass = 1.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seed, self.options, self.steps = seed, options, 0
        return np.zeros(2, np.float32), {"action_mask": np.array([0, 1, 1], np.int8)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return np.zeros(2, np.float32), 0.0, self.steps == 3, False, {"action_mask": np.array([1, 0, 1], np.int8)}

    def render(self) -> Any:
        return np.full((4, 5, 3), self.steps, np.uint8)


class Masked(Small):
    """As sb3-contrib asks for masks; says nothing about a state in which no action is taken any more."""

    def action_masks(self) -> Any:
        assert self.steps < 3
        return [self.steps == 0, True, self.steps == 1]


def opened(bridge: GymnasiumBridge) -> MemoryTransport:
    return MemoryTransport(bridge, through_codec=False)


def act(transport: MemoryTransport) -> Any:
    advance(transport, 1)
    return transport.bridge.outbox


def reset(transport: MemoryTransport, **given: Any) -> Any:
    begin(transport, **given)
    return transport.bridge.outbox


# -- masks


@pytest.mark.parametrize("wrapped", [False, True])
def test_masks_of_action_masks_follow_every_reset_and_step(wrapped: bool) -> None:
    bridge = GymnasiumBridge(lambda: TimeLimit(Masked(), 9) if wrapped else Masked(), 2)
    assert "MASK" in bridge.spec.features
    transport = opened(bridge)
    assert reset(transport).masks.tolist() == [[1, 1, 0]] * 2
    assert act(transport).masks.tolist() == [[0, 1, 1]] * 2
    assert act(transport).masks.tolist() == [[0, 1, 0]] * 2
    last = act(transport)
    assert last.dones.all()
    assert last.masks.all()  # no action follows
    assert reset(transport, env_ids=[1]).masks.tolist() == [[1, 1, 1], [1, 1, 0]]


def test_masks_in_infos_are_sent_where_that_is_wanted() -> None:
    assert "MASK" not in GymnasiumBridge(Small).spec.features
    transport = opened(GymnasiumBridge(Small, masks=True))
    assert reset(transport).masks.tolist() == [[0, 1, 1]]
    assert act(transport).masks.tolist() == [[1, 0, 1]]
    assert "MASK" not in GymnasiumBridge(Masked, masks=False).spec.features
    assert "MASK" not in GymnasiumBridge(Masked, env_type=EnvType.RLBASE).spec.features


@pytest.mark.parametrize(
    ("space", "mask", "flags"),
    [
        (spaces.MultiDiscrete([2, 3]), np.array([True, False, True, True, False]), [1, 0, 1, 1, 0]),
        (spaces.MultiDiscrete([2, 3]), (np.array([1, 0], np.int8), np.array([0, 0, 1], np.int8)), [1, 0, 0, 0, 1]),
        (spaces.MultiBinary(2), [True, False, True, True], [1, 0, 1, 1]),
        (spaces.Dict({"a": BOX, "b": spaces.Discrete(2, start=5)}), [0, 1], [0, 1]),
    ],
    ids=["multi-discrete", "tuple", "flags", "hybrid"],
)
def test_masks_of_other_spaces(space: spaces.Space[Any], mask: Any, flags: list[int]) -> None:
    class Given(Small):
        def action_masks(self) -> Any:
            return mask

    assert reset(opened(GymnasiumBridge(lambda: Given(space)))).masks.tolist() == [flags]


def test_wrong_masks_are_named() -> None:
    class Wrong(Small):
        def action_masks(self) -> Any:
            return [True, False]

    with pytest.raises(errors.ConfigurationError, match=r"action mask has a wrong size \(env 0, field MASK\).*3 flags"):
        reset(opened(GymnasiumBridge(Wrong)))
    with pytest.raises(errors.ConfigurationError, match="an action mask needs choices"):
        GymnasiumBridge(lambda: Small(BOX), masks=True)
    bridge = GymnasiumBridge("CartPole-v1", masks=True)
    with pytest.raises(errors.ConfigurationError, match="gave no action mask"):
        reset(opened(bridge))


# -- pictures, goals, parameters


def test_pictures_are_offered_where_the_env_draws_them() -> None:
    bridge = GymnasiumBridge(Small, 2, render_mode="rgb_array")
    assert "RENDER" in bridge.spec.features
    transport = opened(bridge)
    reset(transport)
    act(transport)
    picture = bridge.render(1)
    assert (picture.shape, picture.dtype, int(picture[0, 0, 0])) == ((4, 5, 3), np.uint8, 1)
    other = GymnasiumBridge(Small)
    assert "RENDER" not in other.spec.features
    assert not hasattr(other, "render")


class Goals(Small):
    """Rewards of many goals at once."""

    def __init__(self) -> None:
        super().__init__()
        goal = spaces.Box(-1, 1, (2,), np.float64)
        self.observation_space = spaces.Dict({"observation": BOX, "achieved_goal": goal, "desired_goal": goal})

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        assert achieved.dtype == desired.dtype == np.float64
        assert achieved.shape[1:] == (2,)
        assert len(info) == len(achieved)
        return -np.abs(achieved - desired).sum(axis=-1)


@pytest.mark.parametrize("wrapped", [False, True])
def test_goal_envs_compute_reward(wrapped: bool) -> None:
    bridge = GymnasiumBridge(lambda: TimeLimit(Goals(), 9) if wrapped else Goals())
    assert "GOAL_REWARD" in bridge.spec.features
    achieved, desired = np.array([[0, 1], [2, 2], [3, 0]], np.float32), np.array([[0, 0], [2, 2], [1, 1]], np.float32)
    rewards = bridge.compute_reward(achieved, desired)
    assert rewards.dtype == np.float32
    assert rewards.tolist() == [-1, 0, -3]
    assert not hasattr(GymnasiumBridge(Small), "compute_reward")


def test_goal_envs_that_compute_one_reward_at_a_time() -> None:
    class OneByOne(Goals):
        def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
            return -float(np.abs(achieved - desired).sum())

    bridge = GymnasiumBridge(OneByOne)
    assert bridge.compute_reward(np.eye(2, dtype=np.float32), np.zeros((2, 2), np.float32)).tolist() == [-1, -1]


def test_attributes_become_parameters() -> None:
    given = {"gravity": (9.8, 1, 20), "lives": (2, 1, 5), "body.mass": (0.5, 0, 1)}
    bridge = GymnasiumBridge(lambda: TimeLimit(Small(), 9), 2, parameters=given)
    assert bridge.spec.parameters == tuple(Parameter(name, *map(float, values)) for name, values in given.items())
    assert all(isinstance(bridge, kind) for kind in (ListsParameters, SetsParameters, GetsParameters))
    envs = [env.unwrapped for env in bridge.envs]
    assert [(env.gravity, env.lives, env.body.mass) for env in envs] == [(9.8, 2, 0.5)] * 2  # type: ignore[attr-defined]
    bridge.set_parameter("lives", 4.0, 1)
    bridge.set_parameter("body.mass", 0.75, -1)
    assert [env.lives for env in envs] == [2, 4]  # type: ignore[attr-defined]
    assert isinstance(envs[1].lives, int)  # type: ignore[attr-defined]
    assert bridge.get_parameter("lives", 1) == 4
    assert bridge.list_parameters() == {"gravity": (9.8, 1, 20), "lives": (2, 1, 5), "body.mass": (0.75, 0, 1)}
    bridge.initialize_environments(3)
    assert bridge.envs[2].unwrapped.gravity == 9.8  # type: ignore[attr-defined]
    assert not isinstance(GymnasiumBridge(Small), (ListsParameters, SetsParameters, GetsParameters))
    with pytest.raises(errors.ConfigurationError, match=r"no such attribute .field parameters.*body\.weight"):
        GymnasiumBridge(Small, parameters={"body.weight": (1, 0, 2)})
    with pytest.raises(errors.ConfigurationError, match="value in its range"):
        GymnasiumBridge(Small, parameters={"gravity": (0, 1, 20)})


def test_an_env_may_have_parameters_of_its_own() -> None:
    class Own(Small):
        def list_parameters(self) -> dict[str, tuple[float, float, float]]:
            return {"pull": (self.gravity, 0, 20)}

        def set_parameter(self, name: str, value: float) -> None:
            assert name == "pull"
            self.gravity = value

    bridge = GymnasiumBridge(Own, 2)
    assert bridge.spec.parameters == (Parameter("pull", 9, 0, 20),)
    bridge.set_parameter("pull", 3.5, 1)
    assert [bridge.get_parameter("pull", env) for env in (0, 1)] == [9, 3.5]


# -- resets


class WithoutOptions(Small):
    """As many envs are written that never heard of options."""

    def reset(self, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


class WithoutAnything(Small):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class NoNone(gym.Wrapper[Any, Any, Any, Any]):
    """Takes options, but counts on them where they are given."""

    def reset(self, **given: Any) -> Any:
        assert given.get("options", {}) is not None
        return super().reset(**given)


def test_envs_whose_reset_takes_no_options_are_hosted() -> None:
    bridge = GymnasiumBridge(WithoutOptions)
    assert bridge.spec.features & {"SEED", "OPTIONS"} == {"SEED"}
    transport = opened(bridge)
    reset(transport, seeds=[7])
    assert bridge.envs[0].seed == 7  # type: ignore[attr-defined]
    with pytest.raises(errors.UnsupportedByEngine, match="OPTIONS"):
        transport.reset(options=[{"a": 1}])
    bridge = GymnasiumBridge(WithoutAnything)
    assert not bridge.spec.features & {"SEED", "OPTIONS"}
    reset(opened(bridge))


def test_options_are_passed_where_they_were_given() -> None:
    bridge = GymnasiumBridge(lambda: NoNone(Small()), 2)
    transport = opened(bridge)
    reset(transport)
    reset(transport, options=[None, {"a": 1}])
    assert [env.unwrapped.options for env in bridge.envs] == [None, {"a": 1}]  # type: ignore[attr-defined]


# -- which envs


@pytest.mark.parametrize("wrapped", [False, True])
def test_one_env_object_for_two_envs_is_refused(wrapped: bool) -> None:
    env = Small()
    with pytest.raises(errors.ConfigurationError, match=r"same env object .* two envs.*\(env 1, field env\)"):
        GymnasiumBridge(lambda: TimeLimit(env, 5) if wrapped else env, 2)


def test_envs_with_different_spaces_are_refused() -> None:
    sizes = iter((2, 2, 3))
    with pytest.raises(
        errors.ConfigurationError, match=r"have the same spaces, but.*env 2.*expected \{'action_space': Discrete\(2\)\}"
    ):
        GymnasiumBridge(lambda: Small(spaces.Discrete(next(sizes))), 3)


def test_every_env_may_have_a_callable_of_its_own() -> None:
    bridge = GymnasiumBridge([Small, Masked])
    assert [type(env) for env in bridge.envs] == [Small, Masked]
    bridge.initialize_environments(3)
    assert [type(env) for env in bridge.envs] == [Small, Masked, Small]
    with pytest.raises(errors.ConfigurationError, match="no env is given"):
        GymnasiumBridge([])


# -- asked by a trainer


@pytest.mark.parametrize("through_codec", [True, False])
def test_a_trainer_asks_for_all_of_it(through_codec: bool) -> None:
    """Pictures, rewards of goals and parameters, by the calls beside the steps and beside a reset."""
    bridge = GymnasiumBridge(Drawn, 2, parameters={"gravity": (9.8, 1, 20)})
    transport = MemoryTransport(bridge, through_codec=through_codec)
    transport.connect()
    calls = EngineCalls(transport)
    transport.draw_parameters = lambda env: {"gravity": 2.0 + env}
    reset(transport)
    assert [env.gravity for env in bridge.envs] == [2, 3]  # type: ignore[attr-defined]
    calls.set_parameters({"gravity": 5}, env_id=1)
    assert [calls.get_parameters(["gravity"], env_id=env) for env in (0, 1)] == [{"gravity": 2}, {"gravity": 5}]
    assert calls.render(1).tolist() == Drawn().render().tolist()
    assert calls.compute_reward(np.zeros((2, 2)), np.eye(2)).tolist() == [-1, -1]


class Drawn(Goals):
    def __init__(self) -> None:
        super().__init__()
        self.render_mode, self.steps = "rgb_array", 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        _, info = super().reset(seed=seed)
        return {"observation": np.zeros(2), "achieved_goal": np.zeros(2), "desired_goal": np.ones(2)}, info


def test_an_env_whose_module_lacks_a_package_is_refused_by_name() -> None:
    """Gymnasium lets the import's error through, and what lacks is the env's, not one of ours."""
    gym.register("ue_rl/Lacks-v0", entry_point="no_such_package:Env")
    try:
        with pytest.raises(errors.ConfigurationError, match="Gymnasium cannot make 'ue_rl/Lacks-v0'") as refused:
            GymnasiumBridge("ue_rl/Lacks-v0", 1)
    finally:
        del gym.registry["ue_rl/Lacks-v0"]
    assert "No module named 'no_such_package'" in str(refused.value)
    assert "install what the env needs" in str(refused.value.cure)
