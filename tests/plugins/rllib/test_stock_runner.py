"""RLlib's stock runner and UnrealEnvRunner over engines, against RLlib over Gymnasium's SyncVectorEnv, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed: .ci/run runs these in a venv of their own")

import torch
import tree
from gymnasium import spaces
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.connectors.env_to_module import FlattenObservations
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.tune.registry import register_env

import ue_rl.plugins.rllib
from ue_rl.bridges import GymnasiumBridge, ShmUpgrader, run_in_thread, run_shm_in_thread
from ue_rl.connections.shm.connection import SharedMemoryConnection
from ue_rl.connections.tcp.kinds import MultiTcpConnection
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.vector_env import UnrealVectorEnv
from ue_rl.plugins.rllib import UnrealEnvRunner
from ue_rl.protocol.spec import Channel

torch.set_num_threads(1)
ENVS = 3
OBS: dict[str, gym.Space[Any]] = {
    "box": spaces.Box(-np.inf, np.inf, (4,), np.float32),
    "discrete": spaces.Discrete(7),
    "multi_discrete": spaces.MultiDiscrete([3, 4]),
    "dict": spaces.Dict({"a": spaces.Box(-9, 9, (2, 2), np.float32), "b": spaces.Discrete(3)}),
}
ACTIONS: dict[str, gym.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "box": spaces.Box(np.array([-2, 0], np.float32), np.array([2, 5], np.float32)),
    "unbounded": spaces.Box(-np.inf, np.inf, (2,), np.float32),
}


class Numbers(gym.Env[Any, Any]):
    """Random numbers that the last action moves; episodes of 1 to 9 steps that end in both ways."""

    def __init__(self, obs: str = "box", action: str = "discrete") -> None:
        self.observation_space, self.action_space = OBS[obs], ACTIONS[action]
        self._steps = 0

    def _observe(self, moved: float) -> Any:
        if isinstance(self.observation_space, spaces.Box):
            values = self.np_random.normal(size=self.observation_space.shape) + moved
            return values.astype(np.float32)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observe(0.0), {"begun": 1}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        assert self.action_space.contains(action), action
        moved = float(np.float32(np.sum(action)))
        reward = float(np.float32(moved / 3 + self.np_random.normal()))
        terminated = bool(self.np_random.random() < 0.15)
        truncated, info = self._steps == 9 and not terminated, {"step": self._steps} if moved > 1 else {}
        return self._observe(moved), reward, terminated, truncated, info


@contextmanager
def hosted(carrier: str, bridge: GymnasiumBridge) -> Iterator[dict[str, Any]]:
    """The env_config of an engine."""
    if carrier == "shared memory by name":
        with run_shm_in_thread(bridge) as engine:
            yield {"url": engine.url}
        return
    bridge.configure(replace(bridge.spec, channel=Channel.PER_ENV if carrier == "env sockets" else Channel.SHARED))
    upgrades = {"upgrader": ShmUpgrader()} if carrier == "shared memory" else {}
    with run_in_thread(bridge, **upgrades) as engine:
        yield {"url": engine.url, "transport": "shm" if upgrades else "tcp"}


CARRIERS = ("text", "env sockets", "shared memory", "shared memory by name", "in memory")


def sampled(runner: Any, plan: list[dict[str, Any]]) -> list[list[Any]]:
    """The episodes of each call, with weights and random numbers that are always the same."""
    torch.manual_seed(5)
    state = {name: torch.randn(value.shape) / 4 for name, value in sorted(runner.module.state_dict().items())}
    runner.module.load_state_dict(state)
    runner.env.action_space.seed(6)
    torch.manual_seed(7)
    return [runner.sample(**call) for call in plan]


# RLlib's own runner cannot change the kind of its actions within an episode.
PLAN: list[dict[str, Any]] = [
    {"num_timesteps": 40},
    {"num_timesteps": 20},
    {"num_timesteps": 31, "explore": False, "force_reset": True},
    {"num_timesteps": 12, "random_actions": True, "force_reset": True},
    {"num_episodes": 4, "explore": False},
    {"num_timesteps": 20},
    {},
]


def config_of(kind: Any, cls: Any, env: str, env_config: dict[str, Any], **runner: Any) -> Any:
    config = kind().environment(env, env_config=env_config).debugging(seed=11)
    return config.env_runners(
        num_env_runners=0, num_envs_per_env_runner=ENVS, env_runner_cls=cls, rollout_fragment_length=5, **runner
    )


def connectors(obs: str) -> dict[str, Any]:
    return {} if obs == "box" else {"env_to_module_connector": lambda *_, **__: FlattenObservations()}


@cache
def reference(obs: str, action: str, kind: Any = PPOConfig) -> Any:
    """RLlib over SyncVectorEnv: its episodes, and its metrics."""
    register_env("numbers", lambda given: Numbers(given["obs"], given["action"]))
    given = {"obs": obs, "action": action}
    config = config_of(kind, SingleAgentEnvRunner, "numbers", given, **connectors(obs))
    runner = SingleAgentEnvRunner(config=config, worker_index=0)
    assert isinstance(runner.env.unwrapped, gym.vector.SyncVectorEnv)
    episodes = sampled(runner, PLAN)
    metrics = runner.get_metrics()
    runner.stop()
    return episodes, metrics


def compare(got: list[list[Any]], wanted: list[list[Any]]) -> None:
    assert [len(episodes) for episodes in got] == [len(episodes) for episodes in wanted]
    for one, other in zip(chain(*got), chain(*wanted), strict=True):
        assert (one.t_started, one.t, one.is_terminated, one.is_truncated) == (
            other.t_started,
            other.t,
            other.is_terminated,
            other.is_truncated,
        )
        one.validate()
        assert one.is_numpy
        assert one.get_infos() == other.get_infos()
        assert sorted(one.extra_model_outputs) == sorted(other.extra_model_outputs)
        for get in (
            lambda e: e.get_observations(),
            lambda e: e.get_actions(),
            lambda e: e.get_rewards(),
            *(lambda e, key=key: e.get_extra_model_outputs(key) for key in other.extra_model_outputs),
        ):
            for a, b in zip(tree.flatten(get(one)), tree.flatten(get(other)), strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(a, b)
    ids = [[episode.id_ for episode in episodes] for episodes in got]
    assert len(set(ids[0]) & set(ids[1])) == len([e for e in wanted[1] if e.t_started])


@pytest.fixture
def count_requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each request that goes to an engine."""
    asked: list[str] = []

    def counting(what: str, ask: Callable[..., Any], self: Any, *args: Any) -> Any:
        asked.append(what)
        return ask(self, *args)

    for connection in (MultiTcpConnection, SharedMemoryConnection, MemoryTransport):
        for name in ("_ask", "_ask_resets"):
            patched = partial(counting, name, getattr(connection, name))
            monkeypatch.setattr(connection, name, lambda self, *args, ask=patched: ask(self, *args))
    return asked


def run(cls: Any, carrier: str, obs: str, action: str, asked: list[str], kind: Any = PPOConfig) -> Any:
    """The runner's episodes and metrics; it is checked that each step of its env is one request."""
    bridge = partial(GymnasiumBridge, partial(Numbers, obs, action), ENVS, send_info=True)
    register_env("in memory", lambda _: UnrealVectorEnv(MemoryTransport(bridge())))
    ue_rl.plugins.rllib.register()
    with nullcontext({}) if carrier == "in memory" else hosted(carrier, bridge()) as given:
        name = "in memory" if carrier == "in memory" else "ue_rl"
        runner = cls(
            config=config_of(kind, cls, name, given, gym_env_vectorize_mode="vector_entry_point", **connectors(obs)),
            worker_index=0,
        )
        env, calls = runner.env.unwrapped, []
        step, reset = env.step, env.reset
        env.step = lambda *args: (calls.append("step"), step(*args))[1]
        env.reset = lambda **options: (calls.append("reset"), reset(**options))[1]
        episodes = sampled(runner, PLAN)
        assert len(asked) == len(calls) > 40
        metrics = runner.get_metrics()
        runner.stop()
    return runner, episodes, metrics


@pytest.mark.parametrize("carrier", CARRIERS)
def test_the_stock_runner_over_every_carrier(carrier: str, count_requests: list[str]) -> None:
    _, episodes, _ = run(SingleAgentEnvRunner, carrier, "box", "discrete", count_requests)
    compare(episodes, reference("box", "discrete")[0])


@pytest.mark.parametrize(
    ("obs", "carrier"),
    [
        ("dict", "text"),
        ("discrete", "shared memory"),
        ("multi_discrete", "text"),
        *(
            pytest.param(obs, carrier, marks=pytest.mark.exhaustive)
            for obs, carrier in (
                ("dict", "shared memory"),
                ("discrete", "text"),
                ("multi_discrete", "shared memory"),
            )
        ),
    ],
)
def test_the_stock_runner_with_other_observations(obs: str, carrier: str, count_requests: list[str]) -> None:
    _, episodes, _ = run(SingleAgentEnvRunner, carrier, obs, "discrete", count_requests)
    compare(episodes, reference(obs, "discrete")[0])


@pytest.mark.parametrize(
    ("action", "carrier"),
    [
        ("discrete", "text"),
        *(pytest.param("discrete", carrier, marks=pytest.mark.exhaustive) for carrier in CARRIERS[1:-1]),
        *((action, "shared memory by name") for action in ACTIONS if action != "discrete"),
    ],
)
def test_the_batched_loop_gives_the_same_episodes(action: str, carrier: str, count_requests: list[str]) -> None:
    runner, episodes, _ = run(UnrealEnvRunner, carrier, "box", action, count_requests)
    assert runner.batched
    compare(episodes, reference("box", action)[0])


@pytest.mark.parametrize(("kind", "action"), [(SACConfig, "box"), (DQNConfig, "discrete")])
def test_other_algorithms(kind: Any, action: str, count_requests: list[str]) -> None:
    runner, episodes, _ = run(UnrealEnvRunner, "shared memory", "box", action, count_requests, kind)
    assert runner.batched
    compare(episodes, reference("box", action, kind)[0])


def flat(metrics: Any, at: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not isinstance(metrics, dict):
        return {at: metrics.peek()}
    return {key: value for name, inner in metrics.items() for key, value in flat(inner, (*at, name)).items()}


def test_metrics_are_the_stock_runners(count_requests: list[str]) -> None:
    _, _, metrics = run(UnrealEnvRunner, "text", "box", "discrete", count_requests)
    got, wanted = flat(metrics), flat(reference("box", "discrete")[1])
    pieces = {key for key in wanted if "timers" in key}  # of connectors that the batched loop does without
    assert set(got) == set(wanted) - pieces
    measured = {key for key in wanted if any("timer" in part or "_sec_" in part for part in key)}
    measured |= {key for key in wanted if key[0] in ("sample", "time_between_sampling")}
    rough = {key for key in wanted if "sum_episodes_length" in key[0]}  # an average over steps, or over samples
    for key in set(got) - measured - rough:
        assert got[key] == pytest.approx(wanted[key], rel=1e-6), key
    assert all(got[key] > 0 for key in set(got) & measured)
    assert all(got[key] > 0 for key in rough)
