"""GroupVecEnv: all agents of a group as the rows of one VecEnv, so that one policy learns from all of them.

`learn_in_turn` lets several groups learn, each with a model of its own, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from ue_rl.envs.agents.group import GroupTransport
from ue_rl.envs.agents.players import NormalizedPolicy
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.protocol.calls.asking import EngineCalls
from ue_rl.protocol.transport import Transport
from ue_rl.system.errors import ConfigurationError


class GroupVecEnv(UnrealVecEnv):
    """Row env * count + k is env's k-th agent of the group.

    A row whose agent ends reports done, with its terminal observation in the infos, as any env does. Until the agent
    comes back, or its env begins a new episode, the row is inactive: each step it reports its last observation, reward
    0, done and `infos[i]["inactive"] = True`, and no episode statistics. The step in which it comes back is the last
    inactive one: it reports done, and the observation is the new episode's first. Learn with the buffers of
    ue_rl.envs.agents.buffers, which leave these rows out.

    Args:
        transport: an engine's with agents, or a GroupTransport; owned from now on.
        group, others: see GroupTransport; not beside a GroupTransport.
        monitor, copy: see UnrealVecEnv.

    Attributes:
        inactive: bool [num_envs]; the rows that were inactive in the last step.

    Raises:
        ConfigurationError: see GroupTransport.
    """

    transport: GroupTransport

    def __init__(
        self,
        transport: Transport | GroupTransport,
        group: str | None = None,
        others: Mapping[str, Any] | None = None,
        *,
        monitor: bool = True,
        copy: bool = True,
    ) -> None:
        if not isinstance(transport, GroupTransport):
            transport = GroupTransport(transport, group, others)
        super().__init__(transport, monitor=monitor, copy=copy)
        self._nobody: NDArray[np.bool_] = np.zeros(self.num_envs, np.bool_)
        self.inactive = self._nobody

    def set_player(self, group: str, policy: Any, deterministic: bool = False) -> None:
        """See GroupTransport.set_player."""
        self.transport.set_player(group, policy, deterministic)

    def keep_journal(self, seed: int) -> None:
        """None: episodes of agents, which come and go, are not replayed."""

    def halves(self) -> NDArray[np.bool_]:
        """Raises ConfigurationError: agents of one env act together."""
        raise ConfigurationError(
            "agents of one env act together, so a step has no halves", field="overlap", cure="leave overlap out"
        )

    def step_wait(self) -> VecEnvStepReturn:
        """See UnrealVecEnv.step_wait, and this class for inactive rows."""
        obs, rewards, dones, infos = super().step_wait()
        part = self.transport.part
        self.inactive = self._nobody if part.all_acted else ~part.acted
        if not part.all_acted:
            waiting = np.flatnonzero(self.inactive).tolist()
            self._observations.put(obs, self.transport.buffers, waiting)  # of those that came
            self._returns[waiting] = 0
            self._started[waiting] = self.stepper.steps
            dones[waiting] = True
            masks = self.stepper.masks
            if masks is not None:
                masks.put(self.transport.buffers, waiting)
            begun = self.transport.buffers.infos
            for row in waiting:
                infos[row] = {"inactive": True}
                if masks is not None:
                    infos[row]["action_mask"] = masks.current[row]
                if row in begun:  # it has come: that is said of its new episode
                    self.reset_infos[row] = {**infos[row], **begun[row]}
                    del self.reset_infos[row]["inactive"]
        return obs, rewards, dones, infos

    def get_params(self, names: Iterable[str] | None = None, env_id: int | None = None) -> dict[str, float]:
        """See UnrealVecEnv; `env_id` is a row: the env that it belongs to is asked."""
        return EngineCalls(self.transport.transport).get_parameters(names, self._env_of(env_id))

    def set_params(self, values: Mapping[str, float], env_id: int | None = None) -> dict[str, float]:
        """See UnrealVecEnv; `env_id` is a row: they are set in the env that it belongs to."""
        return EngineCalls(self.transport.transport).set_parameters(values, self._env_of(env_id))

    def _picture(self, env_id: int) -> NDArray[np.uint8]:
        return EngineCalls(self.transport.transport).render(env_id // self.transport.part.size)

    def _env_of(self, row: int | None) -> int | None:
        if row is None:
            return None
        return row // self.transport.part.size


def learn_in_turn(models: Mapping[str, Any], total_timesteps: int, turn: int, **options: Any) -> None:
    """Lets each group's model learn for `turn` rows of its own, until each has learnt `total_timesteps`.

    While one learns the others act with the weights that they have by then. All models' envs are GroupVecEnvs over
    one transport (`GroupVecEnv(transport, group)` for each), in VecNormalize or not.

    Args:
        models: group to SB3 model.
        options: of `model.learn`.

    Raises:
        ConfigurationError: a model's env is not such a VecEnv, or is another group's.
    """
    envs = {group: _group_env(group, model) for group, model in models.items()}
    for group, env in envs.items():
        for other, model in models.items():
            if other != group:
                env.set_player(other, _player(model))
    learnt = dict.fromkeys(models, 0)
    while min(learnt.values()) < total_timesteps:
        for group, model in models.items():
            steps = min(turn, total_timesteps - learnt[group])
            if steps <= 0:
                continue
            model.set_env(model.get_env(), force_reset=True)  # somebody else has stepped the engine meanwhile
            before = model.num_timesteps
            model.learn(steps, reset_num_timesteps=False, **options)
            learnt[group] += model.num_timesteps - before


def _player(model: Any) -> Any:
    statistics = model.get_vec_normalize_env()
    return model if statistics is None else NormalizedPolicy(model, statistics)


def _group_env(group: str, model: Any) -> GroupVecEnv:
    env = model.get_env()
    unwrapped = getattr(env, "unwrapped", env)
    if not isinstance(unwrapped, GroupVecEnv):
        raise ConfigurationError("the model's env is not a GroupVecEnv", field="models", got=type(unwrapped).__name__)
    if unwrapped.transport.group != group:
        raise ConfigurationError(
            "the model's env is another group's", field="models", expected=group, got=unwrapped.transport.group
        )
    return unwrapped
