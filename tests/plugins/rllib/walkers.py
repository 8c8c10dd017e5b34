"""Walkers on a line, who come and go, and a judge: equations, and an engine of them (needs no Ray).

python tests/plugins/rllib/walkers.py --port 7777
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

from ue_rl.bridges import MultiAgentBridge, serve
from ue_rl.protocol.spec import ActionSpec, AgentGroup, EnvSpec

WALKER = AgentGroup("walker", 3, EnvSpec(obs_size=2, act_size=1))
JUDGE = AgentGroup("judge", 1, EnvSpec(obs_size=4, act_size=1, action=ActionSpec.discrete(2)))
GOAL, LATE, LAST = 1.0, 4, 12


class Walkers:
    """The equations. Who is at 1 has arrived and leaves; walker_2 comes in step 4; in step 12 all are cut off.

    Attributes:
        at: place of each walker that is there. acted: whose results `results` has.
    """

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def reset(self, seed: int | None) -> None:
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.at = dict(zip(("walker_0", "walker_1"), self.rng.uniform(-0.5, 0.5, 2), strict=True))
        self.step_count = 0
        self.acted: tuple[str, ...] = ()

    def step(self, actions: Mapping[str, Any]) -> None:
        for name in [name for name in self.at if name not in actions]:
            del self.at[name]
        self.step_count += 1
        for name in self.at:
            self.at[name] += 0.2 * float(np.clip(np.ravel(actions[name])[0], -1, 1)) + 0.1
        if np.ravel(actions["judge"])[0] == 1 and self.at:
            self.at[max(self.at, key=self.at.__getitem__)] -= 0.05
        self.acted = tuple(actions)
        if self.step_count == LATE:
            self.at["walker_2"] = float(self.rng.uniform(-0.5, 0.5))

    def observe(self) -> dict[str, np.ndarray[Any, Any]]:
        places = [self.at.get(f"walker_{i}", 2.0) for i in range(3)]
        seen: dict[str, Any] = {name: [at, self.step_count] for name, at in self.at.items()}
        return {name: np.array(row, np.float32) for name, row in {**seen, "judge": [*places, self.step_count]}.items()}

    def results(self) -> dict[str, tuple[float, bool, bool]]:
        """(reward, terminated, truncated) of all that acted."""
        arrived = {name: at >= GOAL for name, at in self.at.items()}
        cut = self.step_count >= LAST
        over = self.step_count > LATE and all(arrived.values())
        found = {name: (float(arrived[name]), bool(arrived[name]), cut and not arrived[name]) for name in self.at}
        found["judge"] = (float(sum(arrived.values())), over, cut and not over)
        return {name: found[name] for name in self.acted}


class WalkersBridge(MultiAgentBridge):
    """An engine of one env."""

    def __init__(self, num_envs: int = 1) -> None:
        super().__init__([WALKER, JUDGE], num_envs)
        self.worlds = [Walkers() for _ in range(num_envs)]

    def reset_env(self, env_id: int, seed: int | None, options: Any) -> None:
        self.worlds[env_id].reset(seed)

    def step_env(self, env_id: int, actions: Mapping[str, Any]) -> None:
        self.worlds[env_id].step(actions)

    def observe(self, env_id: int) -> Any:
        return self.worlds[env_id].observe()

    def results(self, env_id: int) -> Any:
        return self.worlds[env_id].results()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=7777)
    serve(WalkersBridge(), port=parser.parse_args().port)
