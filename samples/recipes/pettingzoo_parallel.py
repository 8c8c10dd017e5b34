"""PettingZoo: an env of two agents, hosted as an engine, learnt over the wire through the ParallelEnv interface.

python samples/recipes/pettingzoo_parallel.py [EPISODES]
"""

import functools
import sys

import numpy as np
from gymnasium.spaces import Discrete
from pettingzoo import ParallelEnv

from ue_rl import UnrealParallelEnv
from ue_rl.bridges import run_in_process
from ue_rl.bridges.hosted.pettingzoo import PettingZooBridge
from ue_rl.connections import open_transport

STATES, STEPS = 5, 10


class Meet(ParallelEnv):
    """Both agents see the same state, and are paid where both choose the action that belongs to it."""

    metadata, possible_agents = {"name": "meet"}, ("left", "right")
    observation_spaces = action_spaces = dict.fromkeys(possible_agents, Discrete(STATES))

    def reset(self, seed: int | None = None, options: object = None) -> tuple:
        """Begins an episode."""
        self.agents, self.steps, self.state = list(self.possible_agents), 0, 0
        return dict.fromkeys(self.agents, self.state), {name: {} for name in self.agents}

    def step(self, actions: dict[str, int]) -> tuple:
        """Takes both choices."""
        paid = float(all(action == (self.state + 1) % STATES for action in actions.values()))
        self.steps, self.state = self.steps + 1, (3 * self.state + 1) % STATES
        facts = (self.state, paid, False, self.steps >= STEPS, {})
        return tuple(dict.fromkeys(self.possible_agents, fact) for fact in facts)


def train(env: ParallelEnv, episodes: int) -> list[float]:
    """Each agent learns a table of its own, without knowing of the other one; the returns of the episodes."""
    values, returns = {name: np.ones((STATES, STATES)) for name in env.possible_agents}, []
    for _ in range(episodes):
        seen, total = env.reset()[0], 0.0
        while env.agents:
            chosen = {name: int(values[name][seen[name]].argmax()) for name in env.agents}
            after, rewards, *_ = env.step(chosen)
            for name, action in chosen.items():
                values[name][seen[name], action] += 0.3 * (rewards[name] - values[name][seen[name], action])
            seen, total = after, total + rewards["left"]
        returns.append(total)
    return returns


if __name__ == "__main__":
    with run_in_process(functools.partial(PettingZooBridge, Meet, 1)) as engine:
        env = UnrealParallelEnv(open_transport(engine.url))
        returns = train(env, int(sys.argv[1]) if len(sys.argv) > 1 else 100)
        env.close()
    print(f"return {returns[0]:.1f} -> {returns[-1]:.1f} of {STEPS}")
