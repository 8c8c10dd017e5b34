"""AgentRows: some agents of every env as rows of their own, cut out of a transport's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import ConfigurationError


class AgentRows:
    """The same number of agents in every env, all with the same spaces: row env * size + place.

    Args:
        engine: the transport's spec.
        agents: the numbers of one env's agents that belong here, in order.

    Attributes:
        spec: as if each agent were an env.
        rows: intp [num_envs * size], where each row stands in the transport's arrays.
        buffers: the rows' own arrays, or, where they are the same, the transport's. Of a row that did not act in the
            last step: reward, done and truncated are 0, every choice is legal, and the observation is its last one
            (before the first, something that its space contains).
        acted: bool [rows]; the row took part in the last step, so its reward and done mean something. all_acted: all.

    Raises:
        ConfigurationError: the agents' spaces differ.
    """

    def __init__(self, engine: EnvSpec, agents: Sequence[int]) -> None:
        self._per_env = engine.agents_per_env
        self.size = len(agents)
        specs = {name: engine.group_spec(name) for name in dict.fromkeys(group_of(engine, k) for k in agents)}
        first = next(iter(specs.values()))
        for name, spec in specs.items():
            if not same_spaces(spec, first):
                raise ConfigurationError(
                    "agents with different spaces cannot be rows of one batch",
                    field="AGENTS",
                    expected="the spaces of the first of them",
                    got=f"group {name} beside {next(iter(specs))}",
                )
        self.spec = replace(first, num_envs=engine.num_envs * self.size)
        self.rows: NDArray[np.intp] = np.empty(self.spec.num_envs, np.intp)
        for env in range(engine.num_envs):
            self.seat(env, agents)
        self._own = self.buffers = StepBuffers.of(self.spec)
        low, high = self.spec.obs_bounds
        self.buffers.obs[:] = np.clip(np.float32(0), low, high)
        self.acted: NDArray[np.bool_] = np.zeros(self.spec.num_envs, np.bool_)
        self.all_acted = False
        # Every row of the transport in its order, with all of its numbers: the usual engine of one group.
        self.whole = np.array_equal(self.rows, np.arange(engine.num_rows))

    def seat(self, env: int, agents: Sequence[int]) -> None:
        """From now on these agents of `env` are its rows here; only between two episodes of it."""
        start = env * self.size
        self.whole = False
        self.rows[start : start + self.size] = env * self._per_env + np.asarray(agents, np.intp)

    def take_step(self, buffers: StepBuffers, acted: NDArray[np.bool_], live: NDArray[np.bool_]) -> None:
        """Takes over the answers to a step of all envs.

        Args:
            buffers: the transport's. acted: bool [num_rows], who was asked for a step. live: who can act now; the same
                array where both are everybody.
        """
        rows = self.rows
        mine = self._own
        if self.whole and acted is live:  # the usual case: everybody acted and can act again, so all will be seen again
            self.acted = acted
            self.all_acted = True
            self.buffers = buffers
            return
        self.buffers = mine
        self.acted = acted[rows]
        self.all_acted = bool(self.acted.all())
        if self.all_acted:
            for name in ("rewards", "dones", "truncated"):
                np.take(getattr(buffers, name), rows, out=getattr(mine, name))
            self._observe(buffers, slice(None), live[rows])
        else:
            for name in ("rewards", "dones", "truncated"):
                np.multiply(getattr(buffers, name)[rows], self.acted, out=getattr(mine, name))
            self._observe(buffers, np.flatnonzero(self.acted | live[rows]), live[rows])

    def take_start(self, buffers: StepBuffers, begun: NDArray[np.bool_], live: NDArray[np.bool_]) -> None:
        """Takes over the first observations of new episodes.

        Args:
            begun: bool [num_rows], rows of the envs that were reset.
        """
        mine = begun[self.rows]
        self.buffers = self._own
        for array in (self.buffers.rewards, self.buffers.dones, self.buffers.truncated):
            array[mine] = 0
        self._observe(buffers, np.flatnonzero(mine & live[self.rows]), live[self.rows])

    def _observe(self, buffers: StepBuffers, chosen: slice | NDArray[np.intp], live: NDArray[np.bool_]) -> None:
        mine = self.buffers
        rows = self.rows[chosen]
        mine.obs[chosen] = buffers.obs[rows, : self.spec.obs_size]
        mine.present[:] = live | self.acted
        mine.infos.clear()
        if mine.masks.shape[1]:
            mine.masks[chosen] = buffers.masks[rows, : mine.masks.shape[1]]
            mine.masks[~live] = 1
        if buffers.infos:
            mine.infos.update({i: buffers.infos[row] for i, row in self._numbered(chosen) if row in buffers.infos})

    def _numbered(self, chosen: slice | NDArray[np.intp]) -> list[tuple[int, int]]:
        indices = np.arange(len(self.rows))[chosen]
        return list(zip(indices.tolist(), self.rows[chosen].tolist(), strict=True))


def group_of(engine: EnvSpec, agent: int) -> str:
    """The group that the agent with this number belongs to."""
    for group in engine.groups:
        if agent < group.count:
            return group.name
        agent -= group.count
    raise ConfigurationError("no such agent", field="AGENT", expected=", ".join(engine.agent_names), got=agent)


def agents_of(engine: EnvSpec, group: str) -> list[int]:
    """The numbers of a group's agents in one env; raises ConfigurationError: there is no such group."""
    engine.group_spec(group)
    return [k for k in range(engine.agents_per_env) if group_of(engine, k) == group]


def same_spaces(one: EnvSpec, other: EnvSpec) -> bool:
    """Whether a policy for agents of the one fits those of the other."""
    keys = ("obs_size", "act_size", "action", "obs_low", "obs_high", "obs_space")
    return all(getattr(one, key) == getattr(other, key) for key in keys)
