"""LiveAgents: which agents of each env can act, read from what the game says of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.game import AgentArrays, EnvIds, Envs
from ue_rl.protocol.buffers import ActionBatch, StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import ConfigurationError, MalformedMessage


class LiveAgents:
    """Of all envs of one session; without agents it means nothing.

    Args:
        spec: of the session. outbox: its states. all_envs: what asks for all of them. together: see Game.

    Attributes:
        live: bool [num_envs, agents]; who is there, its episode not over.
        everybody: all agents of all envs can act; known of games that are `together`.
    """

    def __init__(self, spec: EnvSpec, outbox: StepBuffers, all_envs: EnvIds, together: bool) -> None:
        self._names = spec.agent_names
        self._out = outbox
        self._all = all_envs
        self._together = together
        self.live: NDArray[np.bool_] = np.zeros((spec.num_envs, spec.agents_per_env), np.bool_)
        self.everybody = False
        self._states: AgentArrays | None = None
        self._seen_obs: object = None

    @property
    def states(self) -> AgentArrays:
        """The arrays of the outbox."""
        out = self._out
        if self._states is None or self._seen_obs is not out.obs:  # a host has laid them over other memory
            all_rows: list[Any] = [out.obs, out.rewards, out.dones, out.truncated, out.present, out.masks]
            self._states = AgentArrays(*(rows.reshape(*self.live.shape, *rows.shape[1:]) for rows in all_rows))
            self._seen_obs = out.obs
        return self._states

    def begun(self, envs: Envs) -> None:
        """After a reset of `envs`.

        Raises:
            ConfigurationError: nobody is there in one of them.
        """
        self.live[envs] = there = self.states.present[envs] != 0
        self.everybody = self._together and bool(self.live.all())
        if not there.any(axis=-1).all():
            raise ConfigurationError(
                "an episode begins without any agent",
                fault="engine",
                field="AGENT",
                env_id=int(np.atleast_1d(envs)[np.atleast_1d(there.any(axis=-1)).argmin()]),
                expected="one agent or more that is there after the reset",
            )

    def stepped(self, envs: Envs) -> None:
        """After a step. Who has ended is away from the next one on, unless the game says otherwise."""
        out = self._out
        if (
            self.everybody
            and envs is self._all
            and not np.count_nonzero(out.dones)
            and np.count_nonzero(out.present) == len(out.present)
        ):
            return
        states = self.states
        self.live[envs] = states.present[envs] > states.dones[envs]
        self.everybody = self._together and bool(self.live.all())

    def require_all_asked(self, envs: Envs, command: NDArray[np.uint8]) -> None:
        """A step asks every agent that can act.

        Args:
            command: uint8 [num_envs, agents], what each is asked for.

        Raises:
            MalformedMessage: one was not asked.
        """
        forgotten = self.live[envs] & (command[envs] != ActionBatch.STEP)
        if np.count_nonzero(forgotten):
            at, agent = np.argwhere(np.atleast_2d(forgotten))[0]
            raise MalformedMessage(
                "an agent that can act was not asked",
                fault="trainer",
                field="AGENT",
                env_id=int(np.atleast_1d(envs)[at]),
                expected=self._names[agent],
            )

    def require_somebody(self, envs: Envs) -> None:
        """Raises MalformedMessage where a step is asked of an env in which nobody can act."""
        can_act = self.live[envs].any(axis=-1)
        if np.count_nonzero(can_act) < can_act.size:
            raise MalformedMessage(
                "nobody in this env can act any more",
                fault="trainer",
                field="AGENT",
                expected="ACT=RESET",
                env_id=int(np.atleast_1d(envs)[can_act.argmin()]),
            )
