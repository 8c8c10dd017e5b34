"""Agents against envs: 64 envs x 4 agents and 256 envs of the same numbers, at the VecEnv, over text and shared memory.

python benchmarks/bench_agents.py [--steps 20] [--rounds 400]

Both engines run in processes of their own and do the same arithmetic on the same arrays; episodes end after 200 steps,
all agents of an env together. Short rounds alternate. The figure is each side's best round; of a busy machine the
median says little.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ue_rl
from ue_rl.bridges import ShmUpgrader, VectorAgentsBridge, VectorBridge, run_in_process
from ue_rl.connections import open_transport
from ue_rl.envs.agents import GroupVecEnv
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.protocol.spec import AgentGroup, Channel, EnvSpec

ROWS, AGENTS, LENGTH = 256, 4, 200
SIZES = ((8, 2), (32, 4))  # OBS and ACT


class Envs(VectorBridge):
    """One row an env."""

    def __init__(self, obs: int, act: int) -> None:
        super().__init__(EnvSpec(obs, act, num_envs=ROWS, channel=Channel.SHARED, features=frozenset({"TRUNC"})))
        self.steps = np.arange(ROWS) // AGENTS  # ends come as they do with agents: in fours

    def reset_envs(self, env_ids: NDArray[np.intp], seeds: Sequence[Any], options: Sequence[Any]) -> None:
        """All zeros."""
        self.steps[env_ids] = 0
        self.outbox.obs[env_ids] = 0

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        """Adds the action to the observation."""
        self.steps[env_ids] += 1
        self.outbox.obs[env_ids, :2] += actions[env_ids, :2] / 7
        self.outbox.rewards[env_ids] = actions[env_ids, 0]
        self.outbox.dones[env_ids] = self.steps[env_ids] >= LENGTH


class Agents(VectorAgentsBridge):
    """Four rows an env."""

    def __init__(self, obs: int, act: int) -> None:
        super().__init__([AgentGroup("agent", AGENTS, EnvSpec(obs, act))], ROWS // AGENTS)
        self.steps = np.arange(ROWS // AGENTS)

    def reset_envs(self, env_ids: NDArray[np.intp], seeds: Sequence[Any], options: Sequence[Any]) -> None:
        """All zeros."""
        self.steps[env_ids] = 0
        self.states.obs[env_ids] = 0

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        """Adds the action to the observation."""
        self.steps[env_ids] += 1
        self.states.obs[env_ids, :, :2] += actions[env_ids, :, :2] / 7
        self.states.rewards[env_ids] = actions[env_ids, :, 0]
        self.states.dones[env_ids] = (self.steps[env_ids] >= LENGTH)[:, None]


def microseconds(env: UnrealVecEnv, actions: NDArray[np.float32], steps: int) -> float:
    """Per step of all rows."""
    begun = time.perf_counter()
    for _ in range(steps):
        env.step(actions)
    return (time.perf_counter() - begun) / steps * 1e6


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=400)
    arguments = parser.parse_args()
    print(
        f"{ROWS} rows, us per step of all rows, best (median) of {arguments.rounds} rounds of {arguments.steps} steps"
    )
    for carrier in ("tcp", "shm"):
        for obs, act in SIZES:
            compare(carrier, obs, act, arguments.steps, arguments.rounds)


def compare(carrier: str, obs: int, act: int, steps: int, rounds: int) -> None:
    """Prints one row."""
    actions = np.random.default_rng(0).uniform(-1, 1, (ROWS, act)).astype(np.float32)
    with ExitStack() as stack:
        urls = [
            stack.enter_context(run_in_process(functools.partial(kind, obs, act), upgrader=ShmUpgrader())).url
            for kind in (Envs, Agents)
        ]
        envs: dict[str, UnrealVecEnv] = {
            "envs": ue_rl.connect(urls[0], transport=carrier),
            "agents": GroupVecEnv(open_transport(urls[1], carrier)),
        }
        found: dict[str, list[float]] = {name: [] for name in envs}
        for env in envs.values():
            stack.callback(env.close)
            env.reset()
            microseconds(env, actions, 300)
        for _ in range(rounds):
            for name, env in envs.items():
                found[name].append(microseconds(env, actions, steps))
        best = {name: min(values) for name, values in found.items()}
        middle = {name: float(np.median(values)) for name, values in found.items()}
        row = "  ".join(f"{name} {best[name]:6.1f} ({middle[name]:6.1f})" for name in found)
        ratio, typical = best["agents"] / best["envs"], middle["agents"] / middle["envs"]
        print(f"{carrier:4} OBS={obs:<3} ACT={act}  {row}   agents / envs {ratio:.2f} ({typical:.2f})", flush=True)


if __name__ == "__main__":
    main()
