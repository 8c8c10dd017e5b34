"""OverlapVecEnv: an UnrealVecEnv whose steps are taken in two halves, so that a policy acts while the engine ticks.

A request that names half of the envs leaves the other half where it is (docs/protocol.md, section 5). So while the
engine steps one half, its trainer computes the actions of the other one, and at any time one request is open:

    engine    | first half ticks  | second half ticks       | first half ticks
    trainer   | acts for second   | acts for first          | acts for second
                                    (of the next step)

What a step gives out is the same as that of a whole step, and so are seeds, journals, masks and lost engines.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from ue_rl.envs.observations import Observation
from ue_rl.envs.stepper import broken_off
from ue_rl.envs.vec_env import UnrealVecEnv


class HalfActor(Protocol):
    """Who acts for one half while the engine steps the other."""

    def see_first(self, obs: Observation, dones: NDArray[np.bool_]) -> None:
        """The first half has taken its step. As a rule the engine takes that of the second one meanwhile.

        Args:
            obs: as a step gives it out; what stands there of the second half may be of the step before.
            dones: bool [num_envs]; likewise.
        """
        ...

    def forget_first(self) -> None:
        """The first half has begun other episodes since, because its engine was lost."""
        ...


class OverlapVecEnv(VecEnvWrapper):
    """See the module's docstring.

    Args:
        env: its engines have two envs or more each.
        acting: is shown what each half gives.

    Attributes:
        first: bool [num_envs], which envs are in the first half, see UnrealVecEnv.halves.

    Raises:
        ConfigurationError: the env has no two halves.
    """

    def __init__(self, env: UnrealVecEnv, acting: HalfActor) -> None:
        self.first = env.halves()
        super().__init__(env)
        self._engine = env
        self._acting = acting
        self._first_asked = False  # its part of the step is under way
        self._rows: NDArray[np.float32] = np.zeros((env.num_envs, env.engine_spec.act_size), np.float32)

    def reset(self) -> Observation:
        """See UnrealVecEnv.reset; half a step that was broken off is dropped."""
        self._first_asked = False
        return self._engine.reset()

    def ask_first(self, actions: Any) -> None:
        """Asks the first half for its step; `step`, with the actions of all envs, asks the second one.

        Args:
            actions: as for `step`; those of the second half may be any valid ones.
        """
        rows = self._engine.wire_rows(actions)
        self._engine.ask_some(rows, self.first)
        self._rows = rows.copy()
        self._first_asked = True

    def step_async(self, actions: Any) -> None:
        """See UnrealVecEnv.step_async.

        Raises:
            UnexpectedMessage: the first half was asked for a step with other actions.
        """
        if not self._first_asked:
            self.ask_first(actions)
        rows = self._engine.wire_rows(actions)
        if not np.array_equal(rows[self.first], self._rows[self.first]):
            raise broken_off()
        self._rows = rows

    def step_wait(self) -> VecEnvStepReturn:
        """See UnrealVecEnv.step_wait."""
        self._first_asked = False
        obs, rewards, dones, infos = self._engine.take_answers(self.first.copy())
        second = ~self.first & ~dones  # those of an engine that was lost meanwhile have begun anew
        if second.any():
            self._engine.ask_some(self._rows, second)
            self._acting.see_first(obs, dones)
            obs, its_rewards, its_dones, its_infos = self._engine.take_answers(second.copy())
            rewards[second] = its_rewards[second]
            for env in np.flatnonzero(second | (its_dones & ~dones)).tolist():
                infos[env] = its_infos[env]
            if its_dones[self.first].any():
                self._acting.forget_first()
            dones |= its_dones
        else:
            self._acting.see_first(obs, dones)
        self._engine.under_way = False
        return obs, rewards, dones, infos
