"""UnrealVecEnv over hosted Gymnasium envs: what SB3 expects of a VecEnv, and rollouts equal to DummyVecEnv's."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.env_checker import check_env as sb3_check_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecCheckNan,
    VecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
)

import ue_rl
from tests.envs.conftest import CARRIERS, assert_same_steps, memory_and_all_carriers, trained
from tests.support.same import assert_same
from ue_rl.bridges import GymnasiumBridge
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.protocol.spec import EnvType
from ue_rl.system import errors

N = 3


class Coded(gym.Env[Any, Any]):
    """A small deterministic env for any action space: sums up what it is told, ends sooner or later in both ways."""

    def __init__(self, action_space: spaces.Space[Any], observation_space: spaces.Space[Any] | None = None) -> None:
        self.action_space = action_space
        self.observation_space = observation_space or spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.total = float(self.np_random.normal()) + (options or {}).get("start", 0)
        self.steps = 0
        return self._obs(), {"start": self.total}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.steps += 1
        self.total += float(np.asarray(action, np.float64).sum()) / 7 + float(self.np_random.normal()) / 10
        terminated, truncated = abs(self.total) > 4, self.steps >= 9
        return self._obs(), self.total / 3, terminated, truncated, {"steps": self.steps, "odd": object()}

    def _obs(self) -> Any:
        if isinstance(self.observation_space, spaces.Box):
            return np.array([self.total, self.steps, 1 / (1 + self.steps)], np.float32)
        return {"a": np.array([self.total], np.float32), "b": self.steps % 4}


ACTION_SPACES = {
    "box": spaces.Box(-1, 1, (2,), np.float32),
    "asymmetric": spaces.Box(np.array([-2, 0], np.float32), np.array([0.5, 3], np.float32)),
    "matrix-float64": spaces.Box(-1, 1, (2, 2), np.float64),
    "discrete": spaces.Discrete(3),
    "discrete-start": spaces.Discrete(3, start=-1),
    "multi-discrete": spaces.MultiDiscrete([2, 5]),
    "multi-binary": spaces.MultiBinary(4),
}


def maker(name: str) -> Callable[[], gym.Env[Any, Any]]:
    return lambda: Coded(ACTION_SPACES[name])


def sample(space: spaces.Space[Any], rng: np.random.Generator, n: int = N) -> np.ndarray:
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
        return rng.uniform(low, high, (n, *space.shape)).astype(np.float32)
    if isinstance(space, spaces.Discrete):
        return rng.integers(0, space.n, n)
    counts = space.nvec if isinstance(space, spaces.MultiDiscrete) else np.full(space.shape, 2)
    return rng.integers(0, counts, (n, len(counts)))


@memory_and_all_carriers(ACTION_SPACES, "multi-discrete")
def test_rollouts_equal_dummy_vec_env_for_every_action_space(opened: Any, name: str) -> None:
    env, reference = opened(maker(name)), DummyVecEnv([maker(name)] * N)
    env.seed(11)
    reference.seed(11)
    shift, draw = -1 if name == "discrete-start" else 0, functools.partial(sample, env.action_space)
    assert assert_same_steps(env, reference, draw, 60, shift) > 5
    env.seed(4)
    reference.seed(4)
    assert assert_same_steps(env, reference, draw, 60, shift) > 5


# The carriers of each run; the rest is exhaustive: carriers differ no more for these than for PPO, and one algorithm
# with a replay buffer stands for the others.
BIT_EQUAL: list[tuple[Any, str, dict[str, Any], tuple[str, ...]]] = [
    (PPO, "CartPole-v1", {"n_steps": 32, "batch_size": 48, "n_epochs": 1}, CARRIERS),
    (A2C, "Pendulum-v1", {}, ()),
    (SAC, "Pendulum-v1", {"learning_starts": 100, "batch_size": 32, "policy_kwargs": {"net_arch": [16]}}, ()),
    (DQN, "CartPole-v1", {"learning_starts": 50, "train_freq": 4, "policy_kwargs": {"net_arch": [16]}}, ("shared",)),
]  # fmt: skip


def trained_of(number: int, env: VecEnv) -> list[Any]:
    algorithm, _, options, _ = BIT_EQUAL[number]
    return trained(algorithm, "MlpPolicy", env, 192, seed=3, **options)


@functools.cache
def trained_over_dummy_vec_env(number: int) -> list[Any]:
    return trained_of(number, DummyVecEnv([lambda: gym.make(BIT_EQUAL[number][1])] * N))


@pytest.mark.parametrize(
    ("opened", "number"),
    [
        pytest.param(
            carrier,
            number,
            id=f"{carrier}-{algorithm.__name__}",
            marks=() if carrier in each_run else pytest.mark.exhaustive,
        )
        for number, (algorithm, _, _, each_run) in enumerate(BIT_EQUAL)
        for carrier in CARRIERS
    ],
    indirect=["opened"],
)
def test_training_is_bit_equal_to_dummy_vec_env(opened: Any, number: int) -> None:
    """Same seed, same run: every parameter after training is the same."""
    assert_same(trained_of(number, opened(BIT_EQUAL[number][1])), trained_over_dummy_vec_env(number))


def test_observations_given_out_are_copies(opened: Any) -> None:
    """SB3 keeps the last observation: handing out the transport's buffer would shift the rollout by one step."""
    env = opened("CartPole-v1")
    first = env.reset()
    kept = first.copy()
    second, rewards, _, _ = env.step(np.zeros(N, np.int64))
    kept_second, kept_rewards = second.copy(), rewards.copy()
    env.step(np.ones(N, np.int64))
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(second, kept_second)
    np.testing.assert_array_equal(rewards, kept_rewards)


def test_seeding(opened: Any) -> None:
    env = opened("CartPole-v1")
    assert env.seed(42) == [42, 43, 44]
    first = env.reset()
    again = env.reset()  # seeds are used up
    assert not np.array_equal(first, again)
    env.seed(42)
    np.testing.assert_array_equal(env.reset(), first)


def test_options_and_reset_infos(opened: Any) -> None:
    env = opened(maker("box"), send_info=True)
    env.seed(1)
    env.set_options({"start": 2.5})
    obs = env.reset()
    assert [info["start"] for info in env.reset_infos] == pytest.approx(obs[:, 0].tolist())
    env.seed(1)
    plain = env.reset()  # options are used up
    np.testing.assert_allclose(obs[:, 0] - plain[:, 0], 2.5, rtol=1e-6)
    env.set_options([{"start": 1.0}, {}, {"start": 3.0}])
    env.seed(1)
    np.testing.assert_allclose((env.reset() - plain)[:, 0], [1, 0, 3], atol=1e-6)


def test_infos_arrive_without_what_json_cannot_carry(opened: Any) -> None:
    env = opened(maker("box"), send_info=True)
    env.reset()
    for expected in (1, 2):
        infos = env.step(np.zeros((N, 2), np.float32))[3]
        assert [info["steps"] for info in infos] == [expected] * N
        assert all("odd" not in info for info in infos)


def test_client_side_time_limit_equals_gymnasiums(opened: Any) -> None:
    def make() -> gym.Env[Any, Any]:
        return gym.make("Pendulum-v1", max_episode_steps=1000)

    env = opened(make, max_episode_steps=7)
    reference = DummyVecEnv([lambda: TimeLimit(gym.make("Pendulum-v1"), 7)] * N)
    env.seed(2)
    reference.seed(2)
    assert assert_same_steps(env, reference, functools.partial(sample, env.action_space), 30) == 12
    env.set_attr("max_episode_steps", 3)
    assert env.get_attr("max_episode_steps") == [3] * N
    with pytest.raises(errors.ConfigurationError, match="at least one step"):
        env.set_attr("max_episode_steps", 0)
    for wrong in (2.5, float("nan"), float("inf"), "3"):
        with pytest.raises(errors.ConfigurationError, match="a whole number from 1 on"):
            env.set_attr("max_episode_steps", wrong)
    with pytest.raises(errors.UnsupportedByEngine):
        env.set_attr("max_episode_steps", 5, [0] * N)  # one env, named N times


def test_episode_statistics(opened: Any) -> None:
    env = opened(maker("box"))
    monitored = VecMonitor(DummyVecEnv([maker("box")] * N))
    env.seed(6)
    monitored.seed(6)
    env.reset()
    monitored.reset()
    rng = np.random.default_rng(0)
    for _ in range(40):
        actions = sample(env.action_space, rng)
        for mine, theirs in zip(env.step(actions)[3], monitored.step(actions)[3], strict=True):
            assert ("episode" in mine) == ("episode" in theirs)
            if "episode" in mine:
                assert mine["episode"]["r"] == pytest.approx(theirs["episode"]["r"], abs=1e-4)
                assert mine["episode"]["l"] == theirs["episode"]["l"]


@pytest.mark.parametrize(
    "opened",
    [
        "memory",
        "shm",
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("shared", "per_env", "upgraded")),
    ],
    indirect=True,
)
def test_wrappers_of_sb3_work(opened: Any) -> None:
    env = VecCheckNan(VecFrameStack(VecNormalize(VecMonitor(opened("CartPole-v1"))), 2))
    assert env.reset().shape == (N, 8)
    ended = 0
    for _ in range(20):
        obs, _, dones, infos = env.step(np.ones(N, np.int64))
        assert obs.shape == (N, 8)
        ended += sum("episode" in info for info in infos)
        assert all("episode" in info for done, info in zip(dones, infos, strict=True) if done)
    assert ended
    model = PPO("MlpPolicy", env, n_steps=16, batch_size=16, n_epochs=1, device="cpu")
    model.learn(48)
    mean, _ = evaluate_policy(model, env, n_eval_episodes=3)
    assert mean > 0


def pendulum() -> gym.Env[Any, Any]:
    return gym.make("Pendulum-v1", max_episode_steps=50)


def evaluated(env: VecEnv) -> tuple[list[float], list[int]]:
    env.seed(3)
    normalized = VecNormalize(env, training=False)
    normalized.ret_rms.var = np.float64(100)
    model = PPO("MlpPolicy", normalized, seed=1, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # "not wrapped with a Monitor wrapper"
        returns, lengths = evaluate_policy(model, normalized, n_eval_episodes=3, return_episode_rewards=True)
    assert isinstance(returns, list)
    assert isinstance(lengths, list)
    return returns, lengths


@functools.cache
def evaluated_over_dummy_vec_env() -> tuple[list[float], list[int]]:
    return evaluated(DummyVecEnv([lambda: Monitor(pendulum())] * N))


def test_evaluation_reports_the_return_of_the_game(opened: Any) -> None:
    """Behind VecNormalize the rewards are scaled: what is reported comes from the statistics in the infos."""
    returns, lengths = evaluated(opened(pendulum))
    expected = evaluated_over_dummy_vec_env()
    assert returns == pytest.approx(expected[0], rel=1e-5)
    assert lengths == expected[1]


def test_attributes_and_methods(opened: Any) -> None:
    env = opened("CartPole-v1")
    assert env.get_attr("render_mode") == [None] * N
    assert env.get_attr("spec", 0) == [None]
    assert env.get_attr("action_space", [0, 2]) == [env.action_space] * 2
    assert env.env_is_wrapped(gym.Wrapper) == [False] * N
    assert env.env_is_wrapped(gym.Wrapper, [1]) == [False]
    assert env.env_is_wrapped(Monitor, [1, 2]) == [True] * 2
    assert env.has_attr("engine_spec")
    assert not env.has_attr("gravity")
    with pytest.raises(AttributeError, match="inside the engine"):
        env.get_attr("gravity")
    with pytest.raises(errors.UnsupportedByEngine, match="set_options"):
        env.set_attr("gravity", 1)
    with pytest.raises(errors.UnsupportedByEngine, match="env_method"):
        env.env_method("jump")
    with pytest.raises(IndexError):
        env.get_attr("spec", 99)
    assert env.get_images() == [None] * N
    assert env.unwrapped is env


def test_wrong_actions_are_refused_and_the_env_lives_on(opened: Any) -> None:
    env = opened("CartPole-v1")
    env.reset()
    for bad, match in (
        (np.zeros(N + 1, np.int64), "wrong shape"),
        (np.zeros((N, 1), np.int64), "wrong shape"),
        (np.full(N, 2), "not a choice.*env 0.*0 to 1"),
        (np.array([0, 0.5, 1]), "not a choice.*env 1"),
        (np.array([0, 1, np.nan]), "not a choice.*env 2"),
        (np.array(["a"] * N), "must be numeric"),
    ):
        with pytest.raises(errors.ActionError, match=match):
            env.step(bad)
    env.step(np.zeros(N, np.int64))


def test_a_policy_that_gives_nan_is_named(opened: Any) -> None:
    env = opened("Pendulum-v1")
    env.reset()
    with pytest.raises(errors.ActionError, match=r"not a finite number \(env 1, field ACT\).*nan.*diverged"):
        env.step(np.array([[0], [np.nan], [0]], np.float32))
    env.step(np.zeros((3, 1), np.float32))  # nothing was sent: the env lives on


def test_close_is_idempotent_and_final(opened: Any) -> None:
    env = opened("CartPole-v1")
    env.reset()
    env.close()
    env.close()
    with pytest.raises(errors.ConnectionUnusable):
        env.reset()


def test_dict_observations_stay_dicts(opened: Any) -> None:
    space = spaces.Dict({"a": spaces.Box(-np.inf, np.inf, (1,), np.float32), "b": spaces.Discrete(4)})
    env = opened(lambda: Coded(spaces.Discrete(2), space))
    assert env.observation_space == space
    obs = env.reset()
    assert obs["a"].shape == (N, 1)
    assert obs["b"].tolist() == [0] * N
    assert env.step(np.zeros(N, np.int64))[0]["b"].tolist() == [1] * N


def test_wrong_options_are_refused() -> None:
    with pytest.raises(errors.ConfigurationError, match="at least one step"):
        UnrealVecEnv(MemoryTransport(GymnasiumBridge("CartPole-v1", 1)), max_episode_steps=0)
    with pytest.raises(errors.ConfigurationError, match="Gymnasium cannot make 'NoSuchEnv-v0'"):
        GymnasiumBridge("NoSuchEnv-v0")


# -- Gymnasium's own classes


@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("env_type", [EnvType.SINGLE, EnvType.MULTI])
def test_single_env_passes_both_checkers(env_type: EnvType) -> None:
    env = ue_rl.UnrealEnv(MemoryTransport(GymnasiumBridge("Pendulum-v1", 1, env_type=env_type)))
    gymnasium_check_env(env, skip_render_check=True, skip_close_check=True)
    sb3_check_env(env)
    env.close()


def test_single_env_equals_the_hosted_env() -> None:
    env, reference = ue_rl.UnrealEnv(MemoryTransport(GymnasiumBridge(maker("box"), 1))), maker("box")()
    np.testing.assert_array_equal(env.reset(seed=9)[0], reference.reset(seed=9)[0])
    for _ in range(9):
        action = np.array([0.3, -0.7], np.float32)
        got, want = env.step(action), reference.step(action)
        np.testing.assert_array_equal(got[0], want[0])
        assert got[1] == np.float32(want[1])
        assert got[2:4] == (want[2], want[3] and not want[2])
    with pytest.raises(errors.ConfigurationError, match="is one env"):
        ue_rl.UnrealEnv(MemoryTransport(GymnasiumBridge(maker("box"), 2)))


def test_vector_env_resets_by_mask_where_autoreset_is_off() -> None:
    env = ue_rl.UnrealVectorEnv(
        MemoryTransport(GymnasiumBridge(maker("box"), N)), autoreset_mode=AutoresetMode.DISABLED
    )
    np.testing.assert_array_equal(env.reset(seed=np.int64(1))[0], env.reset(seed=np.array([1, 2, 3]))[0])
    before = env.reset(seed=[1, 2, 3])[0]
    after = env.reset(seed=[1, 7, 8], options={"reset_mask": np.array([True, False, True])})[0]
    np.testing.assert_array_equal(after[:2], before[:2])
    assert after[2, 0] != before[2, 0]
    for bad in ({"seed": [1]}, {"options": {"reset_mask": np.array([1, 0, 1])}}):
        with pytest.raises(errors.ConfigurationError):
            env.reset(**bad)
    with pytest.raises(errors.ConfigurationError, match=r"no such autoreset mode.*NEXT_STEP, SAME_STEP, DISABLED"):
        ue_rl.UnrealVectorEnv(MemoryTransport(GymnasiumBridge(maker("box"), N)), autoreset_mode="sometimes")


class CutOff(MemoryTransport):
    """Ctrl-C comes while an answer is waited for, once `struck` is set."""

    struck = False

    def receive(self) -> Any:
        if self.struck:
            self.struck = False
            raise KeyboardInterrupt
        return super().receive()


@pytest.mark.parametrize("cls", [UnrealVecEnv, ue_rl.UnrealVectorEnv, ue_rl.UnrealEnv])
def test_a_step_that_ctrl_c_cut_off_from_its_answers_is_dropped_by_the_next_reset(cls: Any) -> None:
    n = 1 if cls is ue_rl.UnrealEnv else N
    transport = CutOff(GymnasiumBridge(maker("box"), n))
    env = cls(transport)
    action = np.zeros((2,) if n == 1 else (N, 2), np.float32)
    env.reset()
    transport.struck = True
    with pytest.raises(KeyboardInterrupt):
        env.step(action)
    with pytest.raises(errors.UnexpectedMessage, match="still unanswered"):
        env.step(action)
    env.reset()
    after = env.step(action)
    assert np.reshape(after[0], (n, 3))[:, 1].tolist() == [1] * n  # the first step of the new episodes
    env.close()
    with pytest.raises(errors.ConnectionUnusable, match="was closed"):
        env.reset()
