"""The task of samples/cpp and of samples/unity's console engine in NumPy: the same operations in the same order.

`rollout` is what both are compared by, to the bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import ue_rl
from ue_rl.bridges import VectorBridge
from ue_rl.protocol.spec import EnvSpec, Parameter

_MASK = 2**64 - 1


class Reach(VectorBridge):
    """The parameter power is C++'s alone, at 1 by default.

    Args:
        number: that both sides compute with: float32 in C++, float64 in C#. shift: SplitMix64's bits that are left out.
    """

    def __init__(self, num_envs: int, obs_size: int = 6, number: type[Any] = np.float32, shift: int = 40) -> None:
        features = frozenset({"SEED", "TRUNC"})
        parameters = (Parameter("power", 1.0, 0.1, 10.0),)
        super().__init__(EnvSpec(obs_size, 2, num_envs=num_envs, features=features, parameters=parameters))
        self.number, self.shift = number, shift
        self.x, self.v, self.target = np.zeros((3, num_envs, 2), number)
        self.steps = np.zeros(num_envs, np.int64)
        self.random = list(range(num_envs))
        self.power = np.ones((num_envs, 1), number)

    def list_parameters(self) -> dict[str, tuple[float, float, float]]:
        return {"power": (float(self.power[0, 0]), 0.1, 10.0)}

    def set_parameter(self, name: str, value: float, env_id: int) -> None:
        self.power[slice(None) if env_id < 0 else env_id] = value

    def get_parameter(self, name: str, env_id: int) -> float:
        return float(self.power[env_id, 0])

    def uniform(self, env: int) -> float:
        self.random[env] = z = (self.random[env] + 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((z ^ (z >> 31)) >> self.shift) * 2.0 ** (self.shift - 63) - 1

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        for env, seed in zip(env_ids.tolist(), seeds, strict=True):
            self.random[env] = self.random[env] if seed is None else seed
            numbers = [self.uniform(env) for _ in range(4)]
            self.x[env], self.target[env], self.v[env], self.steps[env] = numbers[:2], numbers[2:], 0, 0
        self.observe()

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        f = self.number
        push = np.clip(actions[env_ids].astype(f), -1, 1)
        self.v[env_ids] = f(0.9) * self.v[env_ids] + push * f(0.2) * self.power[env_ids]
        self.x[env_ids] = np.clip(self.x[env_ids] + self.v[env_ids] * f(0.1), f(-1.5), f(1.5))
        self.steps[env_ids] += 1
        away = self.target[env_ids] - self.x[env_ids]
        distance = np.sqrt(away[:, 0] * away[:, 0] + away[:, 1] * away[:, 1])
        near = distance < f(0.15)
        self.outbox.rewards[env_ids] = np.where(near, f(5), distance * f(-0.1))
        self.outbox.dones[env_ids] = near
        self.outbox.truncated[env_ids] = ~near & (self.steps[env_ids] >= 60)
        self.observe()

    def observe(self) -> None:
        out = self.outbox.obs
        out[:, :6] = np.hstack([self.x, self.v, self.target - self.x])
        for i in range(6, out.shape[1]):
            out[:, i] = out[:, i - 6] * np.float32(0.5)


def rollout(env: ue_rl.UnrealVecEnv, call: str = "") -> list[Any]:
    """Everything that comes in 150 seeded steps, which end episodes in both ways. The env is closed.

    Args:
        call: what is asked of the engine before the 70th step.
    """
    try:
        rng = np.random.default_rng(5)
        env.seed(11)
        obs = env.reset()
        seen, ends = [obs.copy()], set()
        for step in range(150):
            if call and step == 70:
                env.transport.call(call)
            actions = rng.uniform(-1.3, 1.3, (env.num_envs, 2)).astype(np.float32)
            actions[1::2] = np.clip(2 * obs[1::2, 4:6] - 2 * obs[1::2, 2:4], -1, 1)  # these arrive
            obs, rewards, dones, infos = env.step(actions)
            truncated = np.array([info.get("TimeLimit.truncated", False) for info in infos])
            seen += [obs.copy(), rewards.copy(), dones.copy(), truncated]
            seen += [info["terminal_observation"].copy() for info in infos if "terminal_observation" in info]
            ends.update(truncated[dones].tolist())
        assert ends == {True, False}, "not both kinds of ends were compared"
        return seen
    finally:
        env.close()
