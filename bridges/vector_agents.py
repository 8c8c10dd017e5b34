"""VectorAgentsBridge: envs with agents, all in arrays; for simulations that are vectorised themselves."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.hosting import PolicyInterface
from ue_rl.bridges.multi_agent import agents_spec, one_policy_for_all
from ue_rl.bridges.reset_options import blames_options
from ue_rl.bridges.vector import EnvIds, VectorBridge
from ue_rl.buffers import ActionBatch
from ue_rl.errors import ConfigurationError, MalformedMessage
from ue_rl.spec import AgentGroup, EnvSpec


class AgentArrays(NamedTuple):
    """The arrays of `outbox` with one dimension more: env, agent. Views, to be written in place.

    Attributes:
        obs: float32 [num_envs, agents, obs_size]. rewards: float32 [num_envs, agents].
        dones, truncated, present: uint8 [num_envs, agents]. masks: uint8 [num_envs, agents, mask_size].
    """

    obs: NDArray[np.float32]
    rewards: NDArray[np.float32]
    dones: NDArray[np.uint8]
    truncated: NDArray[np.uint8]
    present: NDArray[np.uint8]
    masks: NDArray[np.uint8]


class VectorAgentsBridge(VectorBridge):
    """N envs of agents in arrays; implement `reset_envs` and `step_envs`, which write into `self.states` in place.

    The second dimension of the arrays is the agents, groups one after the other. Where nobody comes or goes `present`
    need not be touched: after a reset all agents are there, after a step those that acted. An agent that has ended is
    away from the next step on, until the game sets its `present` to 1: then it has come back.

    Args:
        groups: of agents. num_envs: how many envs.
        features: what else the game offers, see FEATURES in ue_rl/spec.py; SEED, OPTIONS and TRUNC always.

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
        if not spec.groups:
            raise ConfigurationError("this bridge has agents", fault="caller", field="AGENTS", expected="groups")
        super().configure(spec)
        self._agents = spec.agents_per_env
        self._views: AgentArrays | None = None
        self._viewed: object = None
        self._live = np.zeros((spec.num_envs, self._agents), np.bool_)
        self._everybody = False  # can act, in every env

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
        out = self.outbox
        if self._views is None or self._viewed is not out.obs:  # a host has laid them over other memory
            shape = self.num_envs, self._agents
            self._views = AgentArrays(
                out.obs.reshape(*shape, -1), out.rewards.reshape(shape), out.dones.reshape(shape),
                out.truncated.reshape(shape), out.present.reshape(shape),
                out.masks.reshape(*shape, out.masks.shape[1]),
            )  # fmt: skip
            self._viewed = out.obs
        return self._views

    def tick_step_all(self, delta: float) -> bool:
        """See BaseBridge."""
        if self.check.has_choices:
            self.inbox.command[:] = ActionBatch.STEP  # or nothing would be judged
            self.check.of_trainer(self.inbox, self.outbox)
            self.inbox.command[:] = ActionBatch.NOTHING
        self._step_agents(self._all)
        return True

    def tick_training(self, delta: float) -> None:
        """See BaseBridge. Every request is answered in the tick that sees it."""
        inbox = self.inbox
        if self._everybody and np.count_nonzero(inbox.command == ActionBatch.STEP) == len(inbox.command):
            self._step_agents(self._all)
            inbox.command[:] = ActionBatch.NOTHING
            self.answered[:] = self.outbox.present
            return
        answered = self.answered.reshape(-1, self._agents)
        command = inbox.command.reshape(-1, self._agents)
        steps = command == ActionBatch.STEP
        stepping = steps.any(axis=1)
        if stepping.any():
            ids = np.flatnonzero(stepping)
            forgotten = self._live[ids] & ~steps[ids]
            if forgotten.any():
                at, agent = np.argwhere(forgotten)[0]
                raise MalformedMessage(
                    "an agent that can act was not asked", fault="trainer", env_id=int(ids[at]), field="AGENT",
                    expected=self.spec.agent_names[agent],
                )  # fmt: skip
            self._step_agents(self._all if len(ids) == len(command) else ids)
            answered[ids] = self.states.present[ids]
        resets = np.flatnonzero(command[:, 0] == ActionBatch.RESET)
        if len(resets):
            rows = resets * self._agents
            seeds = [None if seed < 0 else seed for seed in inbox.seeds[rows].tolist()]
            self._reset(resets, seeds, [inbox.options.pop(row, None) for row in rows.tolist()])
            inbox.seeds[rows] = -1
            answered[resets] = self.states.present[resets]
        command[:] = ActionBatch.NOTHING

    def tick_inference(self, delta: float) -> None:
        """See BaseBridge: one batched call for all agents of all envs, one step."""
        over = np.flatnonzero(~self._live.any(axis=1))
        if len(over):
            self._reset(over, [self.first_seed(env) for env in over.tolist()], [None] * len(over))
            self.new_episodes((over[:, None] * self._agents + np.arange(self._agents)).ravel().tolist())
        rows = np.flatnonzero(self._live.ravel())
        self.inbox.actions[rows] = self.decide(self.outbox.obs[rows], rows.tolist())
        self._step_agents(self._all)

    def begin_episodes(self) -> None:
        """See BaseBridge."""
        self._live[:] = False

    def set_inference_interface(self, interface: PolicyInterface) -> None:
        """See BridgeCore.

        Raises:
            ConfigurationError: the groups have different spaces, so that one policy cannot act for all.
        """
        one_policy_for_all(self.spec)
        super().set_inference_interface(interface)

    def _step_agents(self, ids: EnvIds) -> None:
        """Steps `ids`; who acted must be there afterwards, who had ended is away unless the game says otherwise."""
        states, live, out = self.states, self._live, self.outbox
        whole = self._everybody and ids is self._all
        if not whole:
            acting = live[ids]
            if not acting.any(axis=1).all():
                env = int(ids[int(acting.any(axis=1).argmin())])
                raise MalformedMessage(
                    "nobody in this env can act any more", fault="trainer", env_id=env, field="AGENT",
                    expected="ACT=RESET",
                )  # fmt: skip
            states.present[ids] = acting
            for values in (states.rewards, states.dones, states.truncated):
                values[ids] = 0
        self.step_envs(self.inbox.actions.reshape(self.num_envs, self._agents, -1), ids)
        np.bitwise_or(out.dones, out.truncated, out=out.dones)
        if whole and not np.count_nonzero(out.dones) and np.count_nonzero(out.present) == len(out.present):
            return
        before = live[ids]
        gone = before & (states.present[ids] == 0)
        if gone.any():
            at, agent = np.argwhere(gone)[0]
            raise ConfigurationError(
                f"{self.spec.agent_names[agent]} acted, but is not there any more", fault="engine",
                env_id=int(ids[at]), field="AGENT", expected="present and done in the step in which it ends",
            )  # fmt: skip
        for values in (states.dones, states.truncated):
            values[ids] &= states.present[ids]
        live[ids] = (states.present[ids] != 0) & (states.dones[ids] == 0)
        self._everybody = bool(live.all())

    def _reset(self, ids: EnvIds, seeds: Sequence[int | None], options: Sequence[dict[str, object] | None]) -> None:
        states = self.states
        for values in (states.rewards, states.dones, states.truncated):
            values[ids] = 0
        states.present[ids] = 1
        with blames_options(next(filter(None, options), None), int(ids[0]) if len(ids) == 1 else None):
            self.reset_envs(ids, seeds, options)
        self._live[ids] = states.present[ids] != 0
        empty = ~self._live[ids].any(axis=1)
        if empty.any():
            raise ConfigurationError(
                "an episode begins without any agent", fault="engine", env_id=int(ids[int(empty.argmax())]),
                field="AGENT",
            )  # fmt: skip
        self._everybody = bool(self._live.all())
