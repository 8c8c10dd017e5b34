"""Halves: the part of an UnrealVecEnv that takes a step in two halves, so that a policy acts while the engine ticks.

A request that names half of the envs leaves the other half where it is (docs/protocol.md, section 5). So while the
engine steps one half, its trainer computes the actions of the other one, and at any time one request is open:

    engine    | first half ticks  | second half ticks       | first half ticks
    trainer   | acts for second   | acts for first          | acts for second
                                    (of the next step)

What a step gives out is the same as that of a whole step, and so are seeds, journals, masks and lost engines.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from ue_rl.envs.actions import ActionWriter
from ue_rl.envs.journal import Journal
from ue_rl.envs.observations import Observation
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.transport import Transport
from ue_rl.system.errors import ConfigurationError, UnexpectedMessage

Bools = NDArray[np.bool_]


class HalfActor(Protocol):
    """Who acts for one half while the engine steps the other.

    Attributes:
        first: which envs are in the first half, bool [num_envs], see Halves.halves.
    """

    first: Bools

    def see_first(self, obs: Observation, dones: Bools) -> None:
        """The first half has taken its step. As a rule the engine takes that of the second one meanwhile.

        Args:
            obs: as a step gives it out; what stands there of the second half may be of the step before.
            dones: bool [num_envs]; likewise.
        """
        ...

    def forget_first(self) -> None:
        """The first half has begun other episodes since, because its engine was lost."""
        ...


class Halves:
    """A base of UnrealVecEnv, which has these attributes and methods.

    Attributes:
        acting: who acts meanwhile; None: steps are whole.
        under_way: a step was asked for, and its result was not given out: only `reset` can follow if it is broken off.
    """

    acting: HalfActor | None = None
    under_way = False
    engine_spec: EnvSpec
    transport: Transport
    journal: Journal | None
    on_failure: Callable[[BaseException], object] | None
    _writer: ActionWriter
    _rows: NDArray[np.float32]
    _just_begun: list[int]
    _first_asked = False  # its step is under way
    _first_rows: NDArray[np.float32]  # what it was asked for

    if TYPE_CHECKING:

        def _step(self, of: Bools | None = None, begins: bool = True) -> VecEnvStepReturn: ...

        def _ask_ahead(self) -> None: ...

        def _step_of(self, journal: Journal, step: Callable[[], VecEnvStepReturn]) -> VecEnvStepReturn: ...

    def halves(self) -> Bools:
        """Which envs are in the first half, bool [num_envs]: of each engine the first half of its envs.

        Raises:
            ConfigurationError: an engine has one env, which cannot be halved.
        """
        first = np.zeros(self.engine_spec.num_envs, np.bool_)
        for envs in getattr(self.transport, "engine_envs", None) or [range(len(first))]:
            if len(envs) < 2:
                raise ConfigurationError(
                    "an engine of one env has no two halves to overlap",
                    field="overlap",
                    expected="two envs or more in each engine",
                    got=len(envs),
                    cure="give the engine more envs, or leave overlap out",
                )
            first[envs.start : envs.start + (len(envs) + 1) // 2] = True
        return first

    def ask_first(self, actions: Any) -> None:
        """Asks the first half for its step; `step`, with the actions of all envs, asks the second one.

        Args:
            actions: as for `step`; those of the second half may be any valid ones.
        """
        journal, acting = self.journal, self.acting
        assert acting is not None
        if journal is not None and (journal.replaying or journal.lost):  # the step is recorded, or a whole one
            return
        rows = self._writer(actions)
        try:
            if self._just_begun:
                self._ask_ahead()
            self.transport.send_actions(rows, resting=np.flatnonzero(~acting.first).tolist())
        except BaseException as error:
            if self.on_failure is not None:
                self.on_failure(error)
            raise
        self._first_asked = self.under_way = True
        self._first_rows = rows[acting.first]

    def _require_first(self, rows: NDArray[np.float32]) -> None:
        """Raises UnexpectedMessage unless `rows` complete the step that the first half was asked for."""
        acting = self.acting
        if acting is None or not np.array_equal(rows[acting.first], self._first_rows):
            raise UnexpectedMessage(
                "half of the envs are in the middle of a step that was broken off",
                fault="caller",
                field="actions",
                expected="those of the first half as `ask_first` sent them, while `acting` is set",
                cure="call reset() first",
            )

    def _step_acting(self, acting: HalfActor) -> VecEnvStepReturn:
        halved, self._first_asked = self._first_asked, False
        step = functools.partial(self._step_halves, acting) if halved else self._step
        result = step() if self.journal is None else self._step_of(self.journal, step)
        if not halved:
            acting.see_first(result[0], result[2])
        return result

    def _step_halves(self, acting: HalfActor) -> VecEnvStepReturn:
        obs, rewards, dones, infos = self._step(acting.first.copy())
        of = ~acting.first & ~dones  # those of an engine that was lost meanwhile have begun anew
        if not of.any():
            acting.see_first(obs, dones)
            return obs, rewards, dones, infos
        self.transport.send_actions(self._rows, resting=np.flatnonzero(~of).tolist())
        acting.see_first(obs, dones)
        obs, its_rewards, its_dones, its_infos = self._step(of.copy(), begins=False)
        rewards[of] = its_rewards[of]
        for env in np.flatnonzero(of | (its_dones & ~dones)).tolist():
            infos[env] = its_infos[env]
        if its_dones[acting.first].any():
            acting.forget_first()
        return obs, rewards, dones | its_dones, infos
