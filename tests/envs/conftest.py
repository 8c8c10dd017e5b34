"""The five ways to an engine, and a run over one of them."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

from tests.support.carriers import over
from tests.support.same import assert_same
from ue_rl.bridges import BaseBridge, GymnasiumBridge
from ue_rl.envs.vec_env import UnrealVecEnv

N = 3
CARRIERS = ("memory", "shared", "per_env", "upgraded", "shm")


def memory_and_all_carriers(
    names: Iterable[str], mixed: str, over: Iterable[str] = CARRIERS, nightly: Iterable[str] = ()
) -> pytest.MarkDecorator:
    """The parameters opened and name: each over memory, and `mixed` over more carriers; the rest is exhaustive.

    Args:
        over: the carriers of `mixed`. nightly: names that are exhaustive over every carrier.
    """
    each_run = {("memory", name) for name in names if name not in nightly}
    each_run |= {(carrier, mixed) for carrier in over}
    cases = [
        pytest.param(carrier, name, marks=() if (carrier, name) in each_run else pytest.mark.exhaustive)
        for name in names
        for carrier in CARRIERS
    ]
    return pytest.mark.parametrize(("opened", "name"), cases, indirect=["opened"])


@pytest.fixture(params=CARRIERS)
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[..., UnrealVecEnv]]:
    """Opens an UnrealVecEnv over a GymnasiumBridge, or over any bridge, in one of five ways."""
    with contextlib.ExitStack() as stack:

        def open_env(
            env: Any, n: int = N, send_info: bool = False, bridge_options: dict[str, Any] | None = None, **options: Any
        ) -> UnrealVecEnv:
            bridge = env
            if not isinstance(env, BaseBridge):
                bridge = GymnasiumBridge(env, n, send_info=send_info, **(bridge_options or {}))
            vec_env = UnrealVecEnv(stack.enter_context(over(request.param, bridge)), **options)
            stack.callback(vec_env.close)
            return vec_env

        yield open_env


def trained(algorithm: Any, policy: str, env: VecEnv, steps: int, **options: Any) -> list[Any]:
    """What a run has stored and come to: the buffer's arrays and every weight."""
    model = algorithm(policy, env, device="cpu", **copy.deepcopy(options))  # SB3 adds to policy_kwargs
    model.learn(steps)
    buffer = getattr(model, "rollout_buffer", None) or model.replay_buffer
    names = ("observations", "actions", "rewards", "action_masks", "episode_starts", "returns")
    weights = [weight.detach().numpy() for weight in model.policy.parameters()]
    return [*(getattr(buffer, name) for name in names if hasattr(buffer, name)), *weights]


def assert_same_steps(
    left: VecEnv, right: VecEnv, draw: Callable[[np.random.Generator], Any], steps: int, shift: int = 0
) -> int:
    """Steps both and compares everything; returns how many episodes ended.

    Args:
        draw: the actions. shift: how much further the choices of `right` begin.
    """
    rng, ended = np.random.default_rng(5), 0
    kept: list[tuple[Any, Any]] = [(left.reset(), right.reset())]
    for _ in range(steps):
        actions = draw(rng)
        shaped = (actions + shift).reshape(N, *right.action_space.shape)
        mine, theirs = left.step(actions), right.step(shaped)
        assert_same(mine[:3], theirs[:3])
        kept.append((mine[0], theirs[0]))
        for done, info, expected in zip(mine[2], mine[3], theirs[3], strict=True):
            assert ("terminal_observation" in info) == bool(done)
            assert info.get("TimeLimit.truncated", False) == expected["TimeLimit.truncated"]
            if done:
                ended += 1
                assert_same(info["terminal_observation"], expected["terminal_observation"])
    for got, want in kept:  # nothing that was given out has changed since
        assert_same(got, want)
    return ended


class Sampled(gym.Env[Any, Any]):
    """Random members of any observation space; what it is told moves its reward."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any] | None = None) -> None:
        self.observation_space = copy.deepcopy(observation_space)
        self.action_space = action_space or spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A sample; a seed is the space's too."""
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """A sample; episodes end by chance, and are cut off after 9 steps."""
        self.steps += 1
        reward = float(np.float32(self.worth(action)))
        return self.observation_space.sample(), reward, bool(self.np_random.random() < 0.1), self.steps >= 9, {}

    def worth(self, action: Any) -> float:
        """The reward, before it is rounded to float32."""
        return float(self.np_random.normal() + np.sum(action) / 7)
