"""Agents over every carrier: what a group's VecEnv gives is equal to the bit, and PettingZoo's own tests pass."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.carriers import over
from ue_rl.bridges import MultiAgentBridge
from ue_rl.envs.agents import GroupVecEnv
from ue_rl.protocol.spec import ActionSpec, AgentGroup, EnvSpec
from ue_rl.protocol.transport import Transport

CARRIERS = ("memory", "shared", "upgraded", "shm")


@pytest.fixture
def opener() -> Iterator[Callable[[Any, str], Transport]]:
    """Opens a bridge over a carrier."""
    with contextlib.ExitStack() as stack:
        yield lambda bridge, carrier: stack.enter_context(over(carrier, bridge))


class Uneven(MultiAgentBridge):
    """Two scouts who live for a drawn number of steps and may come back once, and a guard who stays for nine."""

    def __init__(self) -> None:
        scout = AgentGroup("scout", 2, EnvSpec(3, 1, action=ActionSpec.discrete(3)))
        super().__init__([scout, AgentGroup("guard", 1, EnvSpec(2, 2))], 3, ["SEED"])
        self.rng = [np.random.default_rng(env) for env in range(3)]
        self.left: list[dict[str, int]] = [{} for _ in range(3)]
        self.acted: list[dict[str, float]] = [{} for _ in range(3)]

    def reset_env(self, env_id: int, seed: int | None, options: dict[str, Any] | None) -> None:
        if seed is not None:
            self.rng[env_id] = np.random.default_rng(seed)
        self.left[env_id] = {"scout_0": int(self.rng[env_id].integers(1, 6)), "guard": 9}
        if self.rng[env_id].random() < 0.7:
            self.left[env_id]["scout_1"] = int(self.rng[env_id].integers(1, 6))
        self.acted[env_id] = {}

    def step_env(self, env_id: int, actions: dict[str, NDArray[np.float32]]) -> None:
        left, rng = self.left[env_id], self.rng[env_id]
        for name in [name for name, steps in left.items() if steps == 0]:
            del left[name]
        self.acted[env_id] = {name: float(action.sum()) for name, action in actions.items()}
        for name in actions:
            left[name] -= 1
        if left.get("guard") and "scout_1" not in left and rng.random() < 0.3:
            left["scout_1"] = int(rng.integers(1, 4))

    def observe(self, env_id: int) -> Mapping[str, Any]:
        noise = self.rng[env_id].normal
        return {name: [steps, *noise(size=1 if name == "guard" else 2)] for name, steps in self.left[env_id].items()}

    def results(self, env_id: int) -> Mapping[str, tuple[float, bool, bool]]:
        return {
            name: (did / 3, self.left[env_id][name] == 0 and name != "guard", self.left[env_id][name] == 0)
            for name, did in self.acted[env_id].items()
        }

    def action_masks(self, env_id: int) -> Mapping[str, Any]:
        return {name: [1, steps % 2, 1] for name, steps in self.left[env_id].items() if name != "guard"}

    def infos(self, env_id: int) -> Mapping[str, Mapping[str, Any]]:
        return {name: {"left": steps} for name, steps in self.left[env_id].items() if steps % 2}


def rollout(transport: Transport, group: str) -> list[Any]:
    """Everything that a group's VecEnv gave out in 80 steps."""
    other = "guard" if group == "scout" else "scout"
    size = 2 if other == "guard" else None
    idle = (lambda obs: np.zeros((len(obs), size), np.float32)) if size else (lambda obs: np.zeros(len(obs), np.int64))
    env = GroupVecEnv(transport, group, {other: idle})
    env.seed(5)
    env.action_space.seed(1)
    given: list[Any] = [env.reset().tolist(), env.reset_infos]
    for _ in range(80):
        obs, rewards, dones, infos = env.step(np.stack([env.action_space.sample() for _ in range(env.num_envs)]))
        for info in infos:
            info.get("episode", {}).pop("t", None)
        shown = [{k: np.asarray(v).tolist() for k, v in info.items()} for info in infos]
        given.append((obs.tolist(), rewards.tolist(), dones.tolist(), shown))
    env.close()
    return given


@pytest.mark.filterwarnings("ignore:the policy ignores")
@pytest.mark.parametrize("group", ["scout", "guard"])
def test_rollouts_are_equal_to_the_bit(opener: Callable[[Any, str], Transport], group: str) -> None:
    plain = rollout(opener(Uneven(), "arrays"), group)
    if group == "scout":
        inactive = sum("inactive" in info for _, _, _, infos in plain[2:] for info in infos)
        assert 80 < inactive < 80 * 6 - 80
    for carrier in CARRIERS:
        assert str(rollout(opener(Uneven(), carrier), group)) == str(plain), carrier


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("carrier", ["arrays", *CARRIERS])
def test_pettingzoos_own_tests_pass(opener: Callable[[Any, str], Transport], carrier: str) -> None:
    pytest.importorskip("pettingzoo")
    from pettingzoo.test import parallel_api_test, parallel_seed_test

    from tests.support.field import Field
    from ue_rl.bridges import PettingZooBridge
    from ue_rl.envs.agents import UnrealParallelEnv

    def make() -> UnrealParallelEnv:
        return UnrealParallelEnv(opener(PettingZooBridge(Field, returns=False), carrier))

    env = make()
    parallel_api_test(env, num_cycles=40)
    env.close()
    parallel_seed_test(make, num_cycles=10)
