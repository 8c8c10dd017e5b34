"""VectorBridge, VectorAgentsBridge: arrays for all envs and agents; for simulations that are vectorised themselves."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.base import BaseBridge
from ue_rl.bridges.game import AgentArrays, EnvIds, PerEnv
from ue_rl.bridges.multi_agent import agents_spec, require_agents
from ue_rl.protocol.spec import AgentGroup, EnvSpec
from ue_rl.system.errors import ConfigurationError


class VectorBridge(BaseBridge):
    """N envs in arrays; implement two callbacks, which write into `self.outbox` in place.

    With MASK among the features of the spec both write `outbox.masks` too, uint8 [num_envs, mask_size], 1 for legal.
    A host may lay `inbox` and `outbox` over shared memory: write into the arrays (`self.outbox.obs[env_ids] = ..`),
    never replace them.
    """

    together = True

    @abc.abstractmethod
    def reset_envs(
        self, env_ids: EnvIds, seeds: Sequence[int | None], options: Sequence[dict[str, Any] | None]
    ) -> None:
        """Starts a new episode in `env_ids` and writes `outbox.obs` of them; `seeds` and `options` align with it."""

    @abc.abstractmethod
    def step_envs(self, actions: NDArray[np.float32], env_ids: EnvIds) -> None:
        """Steps `env_ids` and writes `outbox.obs`, `.rewards`, `.dones` and `.truncated` of them.

        `truncated` alone ends an episode too: `dones` need not be set beside it. Any number but 0 is true.

        Args:
            actions: float32 [num_envs, act_size]; only the rows of `env_ids` mean something.
            env_ids: ascending; all envs in the usual case.
        """

    # -- for the driver

    def begin_in(self, envs: EnvIds, seeds: PerEnv, options: PerEnv) -> None:
        """See Game."""
        self.reset_envs(envs, seeds, options)

    def act_in(self, envs: EnvIds, actions: NDArray[np.float32]) -> None:
        """See Game."""
        self.step_envs(actions, envs)
        out = self.outbox
        np.bitwise_or(out.dones, out.truncated, out.dones)
        if np.count_nonzero(out.dones) and out.dones.max() > 1:  # flags of the game's own: who reads them knows 0 and 1
            for flags in (out.dones, out.truncated):
                np.not_equal(flags, 0, out=flags)


class VectorAgentsBridge(VectorBridge):
    """N envs of agents in arrays; implement `reset_envs` and `step_envs`, which write into `self.states` in place.

    The second dimension of the arrays is the agents, groups one after the other. Where nobody comes or goes `present`
    need not be touched: after a reset all agents are there, after a step those that acted. An agent that has ended is
    away from the next step on, until the game sets its `present` to 1: then it has come back.

    Args:
        groups: of agents. num_envs: how many envs.
        features: what else the game offers, see FEATURES in ue_rl/protocol/spec.py; SEED, OPTIONS and TRUNC always.

    Raises:
        ConfigurationError: the groups contradict each other.
    """

    def __init__(self, groups: Sequence[AgentGroup], num_envs: int = 1, features: Iterable[str] = ()) -> None:
        super().__init__(agents_spec(groups, num_envs, {"SEED", "OPTIONS", "TRUNC", *features}))

    def configure(self, spec: EnvSpec) -> None:
        """See BaseBridge.configure.

        Raises:
            ConfigurationError: a spec without agents.
        """
        super().configure(require_agents(spec))

    @abc.abstractmethod
    def step_envs(self, actions: NDArray[np.float32], env_ids: EnvIds) -> None:
        """Steps `env_ids` and writes `states` of them: of all that acted, and of those that have just come.

        Args:
            actions: float32 [num_envs, agents, act_size]; only those of `env_ids` mean something, and of them those of
                agents that act: `states.present` says who does, before it is written.
            env_ids: ascending; all envs in the usual case.
        """

    @property
    def states(self) -> AgentArrays:
        """The arrays to be written."""
        return self.lockstep.roster.states

    def act_in(self, envs: EnvIds, actions: NDArray[np.float32]) -> None:
        """See Game. Who acted must be there; what has ended is away, whatever the game writes of it."""
        roster = self.lockstep.roster
        live = roster.live
        if not roster.everybody or len(envs) != len(live):
            states = self.states
            states.present[envs] = live[envs]
            for values in (states.rewards, states.dones, states.truncated):
                values[envs] = 0
        super().act_in(envs, actions.reshape(*live.shape, -1))
        present = self.outbox.present
        if np.count_nonzero(present) == len(present):
            return
        states = self.states
        gone = live[envs] & (states.present[envs] == 0)
        if gone.any():
            at, agent = np.argwhere(gone)[0]
            raise ConfigurationError(
                f"{self.spec.agent_names[agent]} acted, but is not there any more",
                fault="engine",
                env_id=int(envs[at]),
                field="AGENT",
                expected="present and done in the step in which it ends",
            )
        for values in (states.dones, states.truncated):
            values[envs] &= states.present[envs]
