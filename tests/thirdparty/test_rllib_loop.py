"""What RLlib's stock env runner records over UnrealVectorEnv equals what it records over SyncVectorEnv.

RLlib's SingleAgentEnvRunner wraps the vector env in DictInfoToList, relies on NEXT_STEP autoreset, and keeps an episode
for each env: the first observation of an episode is its reset, every later one a step. `record` is that loop without
Ray; what it records is compared value by value. Rewards are float32 on the wire, so that the reference's are rounded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import DictInfoToList

from ue_rl import UnrealVectorEnv
from ue_rl.bridges import GymnasiumBridge, run_in_thread, run_shm_in_thread
from ue_rl.bridges.shm.upgrade import ShmUpgrader
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.protocol.transport import Transport

NUM_ENVS, STEPS, SEED = 3, 400, 7


class Walk(gym.Env[Any, Any]):
    """A random walk with terminal states, a time limit, and infos of numbers, flags, texts and arrays."""

    def __init__(self, observation_space: gym.Space[Any]) -> None:
        self.observation_space = observation_space
        self.action_space = spaces.Discrete(3, start=-1)
        self.position = self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins anywhere near the middle."""
        super().reset(seed=seed)
        self.position, self.steps = int(self.np_random.integers(-2, 3)), 0
        return self._observe(), {"start": self.position}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Moves by `action` and by chance."""
        self.position += int(action) + int(self.np_random.integers(-1, 2))
        self.steps += 1
        info: dict[str, Any] = {"steps": self.steps, "trace": np.array([self.position, self.steps])}
        if self.position > 2:
            info["side"] = "right"
        return self._observe(), self.position / 8, abs(self.position) > 4, self.steps >= 12, info

    def _observe(self) -> Any:
        vector = np.array([self.position, self.steps], np.float32)
        if isinstance(self.observation_space, spaces.Dict):
            return {"at": self.position + 8, "vector": vector}
        return vector


BOX = spaces.Box(-99, 99, (2,), np.float32)
ENVS: dict[str, Callable[[], gym.Env[Any, Any]]] = {
    "box": functools.partial(Walk, BOX),
    "dict": functools.partial(Walk, spaces.Dict({"at": spaces.Discrete(17), "vector": BOX})),
    "pendulum": functools.partial(gym.make, "Pendulum-v1", max_episode_steps=30),
}


@dataclass
class Episode:
    """As ray.rllib.env.single_agent_episode.SingleAgentEpisode."""

    observations: list[Any] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    infos: list[dict[str, Any]] = field(default_factory=list)
    terminated: bool = False
    truncated: bool = False


def record(env: VectorEnv[Any, Any, Any]) -> list[Episode]:
    """The episodes of STEPS vector steps in the order in which they end, unfinished ones last."""
    wrapped = DictInfoToList(env)
    done: list[Episode] = []
    episodes = [Episode() for _ in range(env.num_envs)]
    observations, infos = wrapped.reset(seed=SEED)
    for n, episode in enumerate(episodes):
        episode.observations.append(pick(observations, n))
        episode.infos.append(infos[n])
    env.single_action_space.seed(SEED)
    for _ in range(STEPS):
        actions = np.stack([env.single_action_space.sample() for _ in episodes])
        observations, rewards, terminated, truncated, infos = wrapped.step(actions)
        for n, episode in enumerate(episodes):
            if episode.observations:  # otherwise this step was its reset
                episode.actions.append(actions[n])
                episode.rewards.append(float(np.float32(rewards[n])))
                episode.terminated, episode.truncated = bool(terminated[n]), bool(truncated[n])
            episode.observations.append(pick(observations, n))
            episode.infos.append(infos[n])
            if episode.terminated or episode.truncated:
                done.append(episode)
                episodes[n] = Episode()
    wrapped.close()
    return done + episodes


def pick(observations: Any, n: int) -> Any:
    """A copy of one env's observation."""
    if isinstance(observations, dict):
        return {key: part[n].copy() for key, part in observations.items()}
    return observations[n].copy()


@pytest.fixture
def hosted() -> Iterator[Callable[[str, str], Transport]]:
    """Hosts an env over a carrier; what it opened is closed at the end."""
    with ExitStack() as stack:

        def host(env: str, carrier: str) -> Transport:
            bridge = GymnasiumBridge(ENVS[env], NUM_ENVS, send_info=True)
            stack.callback(bridge.close)
            if carrier == "memory":
                return MemoryTransport(bridge)
            if carrier == "shm by name":
                return open_transport(stack.enter_context(run_shm_in_thread(bridge)).url)
            upgrader = ShmUpgrader() if carrier == "shm" else None
            url = stack.enter_context(run_in_thread(bridge, upgrader=upgrader)).url
            if carrier == "shm":
                return open_transport(url, transport="shm")
            return open_transport(url, transport="tcp", channel="per_env" if carrier == "tcp per env" else "shared")

        yield host


@pytest.mark.parametrize(
    ("carrier", "env"),
    [  # each carrier and each env once in each run
        pytest.param(carrier, env, marks=() if at % len(ENVS) == number else pytest.mark.exhaustive)
        for at, carrier in enumerate(("memory", "tcp", "tcp per env", "shm", "shm by name"))
        for number, env in enumerate(ENVS)
    ],
)
def test_the_stock_runner_records_the_same(hosted: Callable[[str, str], Transport], env: str, carrier: str) -> None:
    expected = record(SyncVectorEnv([ENVS[env]] * NUM_ENVS, autoreset_mode=AutoresetMode.NEXT_STEP))
    recorded = record(UnrealVectorEnv(hosted(env, carrier)))
    assert len(recorded) == len(expected) > 2 * NUM_ENVS
    for got, want in zip(recorded, expected, strict=True):
        assert (got.terminated, got.truncated) == (want.terminated, want.truncated)
        assert len(got.observations) == len(want.observations) == len(got.rewards) + 1
        assert got.rewards == want.rewards
        same(got.observations, want.observations)
        same(got.actions, want.actions)
        same(got.infos, want.infos)


def same(got: Any, want: Any) -> None:
    """Equal in structure, dtype, shape and every value."""
    if isinstance(want, dict):
        assert got.keys() == want.keys()
        for key, value in want.items():
            same(got[key], value)
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for ours, theirs in zip(got, want, strict=True):
            same(ours, theirs)
    elif isinstance(want, np.ndarray):
        assert isinstance(got, np.ndarray)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert np.array_equal(got, want)
    else:
        assert type(got) is type(want)
        assert got == want
