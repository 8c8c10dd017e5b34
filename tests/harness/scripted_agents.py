"""World: agents that end at scripted times, as a Transport in memory; every number says where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.base.checks import check_actions
from ue_rl.protocol.buffers import Resets, StepBuffers
from ue_rl.protocol.spec import AgentGroup, EnvSpec

GONE, ACTS, ENDS, CUT = range(4)
# Of an env's n-th episode at its step t (0: at its start) what each agent does: see the constants.
Script = Callable[[int, int, int], list[int]]


def spec_of(num_envs: int, groups: dict[str, int], obs: int = 4, act: int = 2, **changes: Any) -> EnvSpec:
    """Groups of so many agents with the same spaces; `changes`: to the EnvSpec."""
    made = []
    for name, count in groups.items():
        made.append(AgentGroup(name, count, EnvSpec(obs, act, num_envs=1)))
    return EnvSpec(
        obs,
        act,
        num_envs=num_envs,
        groups=tuple(made),
        features=frozenset({"TRUNC", "SEED", "OPTIONS", "INFO"}),
        **changes,
    )


class World(BaseTransport):
    """Agents that come and go as a script says.

    Observation: env, agent, episode, step (and so on, zeros). Reward: the action's first number + the agent / 10.

    Args:
        spec: with agents, observations of 4 numbers at least. script: see Script.

    Attributes:
        received: the actions of each step. requests: what was asked, in words. seeds: of each reset.
    """

    carries = "a scripted world"

    def __init__(self, spec: EnvSpec, script: Script) -> None:
        super().__init__()
        self.given, self.script = spec, script
        n = spec.num_envs
        self.episode, self.time = np.full(n, -1), np.zeros(n, np.int64)
        self.received: list[NDArray[np.float32]] = []
        self.requests: list[str] = []
        self.seeds: list[object] = []
        self._todo: tuple[NDArray[np.float32] | None, Resets | None] = None, None

    def _open(self) -> EnvSpec:
        self.buffers = StepBuffers.of(self.given)
        return self.given

    def _ask(self, actions: NDArray[np.float32], resets: Resets | None) -> None:
        check_actions(self.spec, actions)
        self.expect_answers(resets, steps=True)
        self._todo = actions.copy(), resets
        self.received.append(actions.copy())
        self.requests.append("step" if resets is None else f"step, reset {list(resets.env_ids or ())}")

    def _ask_resets(self, resets: Resets) -> None:
        self.expect_answers(resets, steps=False)
        self._todo = None, resets
        self.seeds.append(resets.seeds)
        self.requests.append("reset" if resets.env_ids is None else f"reset {list(resets.env_ids)}")

    def _collect(self) -> None:
        actions, resets = self._todo
        ids = () if resets is None else range(self.spec.num_envs) if resets.env_ids is None else resets.env_ids
        b, per = self.buffers, self.spec.agents_per_env
        for env in range(self.spec.num_envs):
            if env in ids:
                self.episode[env] += 1
                self.time[env] = 0
            elif actions is not None:
                self.time[env] += 1
            else:
                continue
            does = self.script(env, int(self.episode[env]), int(self.time[env]))
            for agent, what in enumerate(does):
                row = env * per + agent
                asked = b.pending[row] == 1
                b.present[row] = what != GONE
                b.rewards[row] = b.dones[row] = b.truncated[row] = 0
                if what == GONE:
                    assert not asked, (env, agent)
                    b.obs[row] = 99  # nobody may look at it
                    continue
                b.obs[row, :4] = env, agent, self.episode[env], self.time[env]
                if asked and actions is not None:
                    b.rewards[row] = actions[row, 0] + agent / 10
                    b.dones[row] = what in (ENDS, CUT)
                    b.truncated[row] = what == CUT
                b.infos[row] = {"place": (env, agent)}
        b.pending[:] = 0

    def _drop(self) -> None:
        """Nothing is held."""

    def describe(self) -> dict[str, str]:
        return {"transport": "world"}


def lives(*lengths: int) -> Script:
    """Each agent acts that many steps of every episode, then it is gone."""

    def script(env: int, episode: int, time: int) -> list[int]:
        return [ACTS if time < length else ENDS if time == length else GONE for length in lengths]

    return script
