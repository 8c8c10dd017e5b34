"""Parameters, randomisation, pictures, pause and goal rewards, through every env class and over every carrier."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import RecordEpisodeStatistics
from stable_baselines3 import DQN, PPO, HerReplayBuffer
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import ue_rl
from ue_rl.bridges import GymnasiumBridge
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.protocol.calls.parameters import Randomizer
from ue_rl.system import errors

N = 3
PARAMETERS = {"gravity": (9.8, 1.0, 20.0), "wind": (0.0, -5.0, 5.0)}


class Windy(gym.Env[Any, Any]):
    """Shows its parameters as its observation, and as a picture."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)
    gravity, wind = 9.8, 0.0
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._obs(), 0.0, self.steps >= 4, False, {}

    def render(self) -> Any:
        return np.full((4, 6, 3), int(self.gravity), np.uint8)

    def _obs(self) -> Any:
        return np.array([self.gravity, self.wind], np.float32)


def windy(opened: Callable[..., Any], **options: Any) -> Any:
    bridge_options = {"parameters": PARAMETERS, "render_mode": "rgb_array"}
    return opened(Windy, bridge_options=bridge_options, **options)


def test_parameters_are_listed_read_and_set(opened: Any) -> None:
    env = windy(opened)
    assert {name: (p.value, p.low, p.high) for name, p in env.list_params().items()} == {
        name: pytest.approx(values) for name, values in PARAMETERS.items()
    }
    assert env.set_params({"gravity": 3.0}) == {"gravity": 3.0}
    assert env.set_params({"wind": -1.5}, env_id=1) == {"wind": -1.5}
    assert env.get_params(["wind"], env_id=1) == {"wind": -1.5}
    assert env.reset().tolist() == [[3, 0], [3, -1.5], [3, 0]]
    assert env.get_attr("wind") == [0, -1.5, 0]
    env.set_attr("wind", 2.0, [0, 2])
    assert env.get_attr("wind", [0, 1]) == [2, -1.5]
    env.set_attr("wind", 2.5, [0, -1, 0])  # three indices, two envs
    assert env.get_attr("wind", [0, 1, -1]) == [2.5, -1.5, 2.5]
    with pytest.raises(TypeError, match="flatnonzero"):
        env.get_attr("wind", np.array([True, False, True]))  # flags are no indices
    assert env.env_method("get_params", indices=-1) == [{"gravity": 3, "wind": 2.5}]
    env.set_attr("wind", 2.0, [0, 2])
    assert env.env_method("get_params", indices=[1]) == [{"gravity": 3, "wind": -1.5}]
    assert env.env_method("set_params", {"wind": 1}, indices=[1]) == [{"wind": 1}]
    assert env.has_attr("gravity")
    assert VecNormalize(env).get_params(["gravity"]) == {"gravity": 3}
    with pytest.raises(errors.ConfigurationError, match=r"out of range.*gravity.*1 to 20.*99"):
        env.set_params({"gravity": 99})
    with pytest.raises(AttributeError, match="no such parameter"):
        env.set_params({"friction": 1})
    env.step(np.zeros(N, np.int64))  # none of these harmed the connection


def test_each_episode_draws_its_parameters(opened: Any) -> None:
    env = windy(opened)
    drawn = env.randomize({"gravity": (5, 15), "wind": 1}, seed=3)
    seen = [env.reset()]
    assert [drawn.values[i]["gravity"] for i in range(N)] == pytest.approx(seen[0][:, 0].tolist())
    for step in range(1, 12):
        obs, _, dones, _ = env.step(np.zeros(N, np.int64))
        assert dones.all() == (step % 4 == 0)
        if dones.all():
            seen.append(obs)
            assert [drawn.values[i]["gravity"] for i in range(N)] == pytest.approx(obs[:, 0].tolist())
        else:
            np.testing.assert_array_equal(obs, seen[-1])
    every = np.array(seen)
    assert len(np.unique(every[..., 0])) == every[..., 0].size
    assert ((every[..., 0] >= 5) & (every[..., 0] <= 15)).all()
    assert (every[..., 1] == 1).all()
    again = Randomizer(env.engine_spec, {"gravity": (5, 15), "wind": 1}, seed=3)
    firsts = [again(env_id)["gravity"] for env_id in reversed(range(N))]  # whichever env is reset first
    assert firsts[::-1] == pytest.approx(every[0, :, 0].tolist())
    env.randomize(None)
    np.testing.assert_array_equal(env.reset(), every[-1])
    for wrong, match in (
        ({"gravity": (5, 99)}, "out of range: gravity.*1 to 20"), ({"gravity": (7, 6)}, "not a value"),
        ({"gravity": "x"}, "not a value"), ({"gravity": (1, float("nan"))}, "not a value"),
        ({"mass": (0, 1)}, "no such parameter.*gravity, wind"),
    ):  # fmt: skip
        with pytest.raises((errors.ConfigurationError, errors.UnsupportedByEngine), match=match):
            env.randomize(wrong)


def test_randomisation_reaches_resets_within_a_step() -> None:
    env = ue_rl.UnrealVectorEnv(MemoryTransport(GymnasiumBridge(Windy, N, parameters=PARAMETERS)))
    drawn = env.randomize({"wind": (-5, 5)}, seed=0)
    assert drawn is not None
    first = env.reset()[0]
    for _ in range(5):
        obs = env.step(np.zeros(N, np.int64))[0]
    assert not np.isin(obs[:, 1], first[:, 1]).any()
    assert [drawn.values[i]["wind"] for i in range(N)] == pytest.approx(obs[:, 1].tolist())


def test_pictures(opened: Any) -> None:
    env = windy(opened, render_mode="rgb_array")
    env.set_params({"gravity": 7}, env_id=1)
    pictures = env.get_images()
    assert [picture.shape for picture in pictures] == [(4, 6, 3)] * N
    assert [int(picture[0, 0, 0]) for picture in pictures] == [9, 7, 9]
    assert env.render().shape == (8, 12, 3)  # tiled
    assert env.metadata["render_modes"] == ["human", "rgb_array"]
    assert env.env_method("render", indices=[1])[0].max() == 7
    env.set_attr("render_mode", None)
    assert env.get_images() == [None] * N


class Blinking(Windy):
    """Shows nothing at every other step, and env 1 never anything."""

    def __init__(self, number: int, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.number = number

    def render(self) -> Any:
        return None if self.number == 1 or self.steps % 2 else super().render()


def test_an_env_without_a_picture_neither_ends_learning_nor_hides_the_others(opened: Any) -> None:
    numbers = itertools.cycle(range(N))
    made = lambda render_mode=None: Blinking(next(numbers), render_mode)  # noqa: E731
    env = opened(made, bridge_options={"render_mode": "rgb_array"}, render_mode="rgb_array")
    env.reset()
    with pytest.warns(UserWarning, match=r"env 1 has no picture.*said once") as told:
        pictures = env.get_images()
        assert [int(picture.max()) for picture in pictures] == [9, 0, 9]
        assert env.render().shape == (8, 12, 3)
        assert env.env_method("render")[1] is None
        env.step(np.zeros(N, np.int64))
        assert env.get_images() == [None] * N
        assert env.render() is None
    assert len(told) == 1
    frames: list[Any] = []
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=8, n_epochs=1, device="cpu")
    model.learn(8 * N, callback=lambda *_: frames.append(env.render()) or True)
    assert [frame is None for frame in frames] == [True, False, True, False] * 2


def test_pictures_of_an_engine_that_has_none_are_refused_by_name(opened: Any) -> None:
    with pytest.raises(errors.UnsupportedByEngine, match=r"sends no pictures.*render_mode.*FEATURES=RENDER"):
        opened("CartPole-v1", render_mode="rgb_array")
    env = opened("CartPole-v1")
    with pytest.raises(errors.ConfigurationError, match="draws its own window"):
        env.set_attr("render_mode", "human")
    for call, match in (
        (lambda: env.set_params({"gravity": 1}), "no parameters"), (env.pause, "PAUSE"),
        (lambda: env.set_time_scale(4), "TIME_SCALE"), (lambda: env.randomize({"a": (0, 1)}), "no parameters"),
        (lambda: env.env_method("render"), "inside the engine"),
    ):  # fmt: skip
        with pytest.raises(errors.UnsupportedByEngine, match=match):
            call()
    assert env.list_params() == {}


def test_gymnasiums_envs_have_them_too() -> None:
    bridge = GymnasiumBridge(Windy, N, parameters=PARAMETERS, render_mode="rgb_array")
    envs = ue_rl.UnrealVectorEnv(MemoryTransport(bridge), render_mode="rgb_array")
    envs.set_params({"wind": 3}, env_id=2)
    assert envs.reset()[0][:, 1].tolist() == [0, 0, 3]
    frames = envs.render()
    assert frames is not None
    assert [frame.shape for frame in frames] == [(4, 6, 3)] * N
    envs.close()
    one = ue_rl.UnrealEnv(MemoryTransport(GymnasiumBridge(Windy, 1, render_mode="rgb_array")), render_mode="rgb_array")
    wrapped = RecordEpisodeStatistics(one)
    wrapped.reset()
    assert wrapped.render().shape == (4, 6, 3)  # type: ignore[union-attr]
    assert ue_rl.UnrealEnv(MemoryTransport(GymnasiumBridge(Windy, 1))).render() is None


# -- goals


def flipping() -> BitFlippingEnv:
    return BitFlippingEnv(n_bits=4, continuous=False, max_steps=4)


def relabelled(env: Any) -> list[Any]:
    model = DQN(
        "MultiInputPolicy",
        env,
        seed=1,
        device="cpu",
        learning_starts=50,
        buffer_size=600,  # of three envs 200 steps: sampling looks at all of it
        policy_kwargs={"net_arch": [32]},
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"n_sampled_goal": 4},
    )
    model.learn(200)
    assert model.replay_buffer is not None
    np.random.seed(0)
    sample = model.replay_buffer.sample(64)
    weights = [p.detach().numpy() for p in model.policy.parameters()]
    return [sample.rewards.numpy(), *(part.numpy() for part in sample.observations.values()), *weights]  # type: ignore[attr-defined]


@functools.cache
def relabelled_by_dummy_vec_env() -> list[Any]:
    return relabelled(DummyVecEnv([flipping] * N))


@pytest.mark.parametrize(
    ("opened", "answered_by"),
    [
        ("memory", "function"), ("shared", "engine"), ("shm", "engine"),
        *(pytest.param(name, "engine", marks=pytest.mark.exhaustive) for name in ("memory", "per_env", "upgraded")),
    ],
    indirect=["opened"],
)  # fmt: skip
def test_hindsight_relabelling_is_bit_equal_to_dummy_vec_env(opened: Any, answered_by: str) -> None:
    reward = flipping().compute_reward if answered_by == "function" else None
    env = opened(flipping, compute_reward=reward)
    assert env.has_attr("compute_reward")
    mine, theirs = relabelled(env), relabelled_by_dummy_vec_env()
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(a, b)
    assert 0 < (mine[0] == 0).mean() < 1  # some goals were reached


def test_a_goal_env_alone_is_one_for_sb3() -> None:
    env = ue_rl.UnrealEnv(MemoryTransport(GymnasiumBridge(flipping, 1)))
    obs, _ = env.reset(seed=0)
    after, reward, *_ = env.step(env.action_space.sample())
    assert env.compute_reward(after["achieved_goal"], after["desired_goal"], {}) == reward
    pairs = np.array([obs["achieved_goal"], after["desired_goal"]]), np.array([obs["desired_goal"]] * 2)
    assert env.compute_reward(*pairs, None).shape == (2,)
    assert not hasattr(ue_rl.UnrealEnv(MemoryTransport(GymnasiumBridge("CartPole-v1", 1))), "compute_reward")
