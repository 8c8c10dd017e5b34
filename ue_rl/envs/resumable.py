"""Resumable: the part of an UnrealVecEnv that keeps a journal, and resumes a stopped run from one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from ue_rl.calls.parameters import drawer_of
from ue_rl.envs.episodes import Reset
from ue_rl.envs.journal import Journal
from ue_rl.envs.masks import Masks
from ue_rl.envs.observations import Observation, Observations
from ue_rl.envs.replay import replay
from ue_rl.spec import EnvSpec
from ue_rl.transport import Transport


class Resumable:
    """A base of UnrealVecEnv, which has these attributes and methods."""

    transport: Transport
    engine_spec: EnvSpec
    journal: Journal | None
    reset_infos: list[dict[str, Any]]
    _reset_by: Reset | None
    _observations: Observations
    _masks: Masks | None
    _monitor: bool
    _steps: int
    _started: NDArray[np.int64]
    _returns: NDArray[np.float64]

    if TYPE_CHECKING:

        def _show_masks(self, infos: list[dict[str, Any]]) -> None: ...

        def _reset_seeds(self) -> None: ...

        def _reset_options(self) -> None: ...

    def keep_journal(self, seed: int) -> bool:
        """From the next reset on keeps what an exact resume needs, see ue_rl.envs.journal.

        Where the engine takes seeds, every episode gets one, derived from `seed`, the env's id and the number of its
        episode; those given by `seed()` win. A step costs about 1 us more.

        Returns:
            whether this env keeps one; those of agents do not.
        """
        if self.journal is None:
            journal = Journal(self.engine_spec, seed)
            journal.obs = self._observations.read(self.transport.buffers)  # as it was given out last
            journal.masks = None if self._masks is None else self._masks.current
            self._keep(journal)
        return True

    def _keep(self, journal: Journal) -> None:
        self.journal, self._reset_by = journal, functools.partial(journal.reset, self.transport)

    def journal_state(self) -> dict[str, Any]:
        """What `resume_journal` needs in another process, as dicts, lists, arrays, numbers and texts."""
        assert self.journal is not None
        return {
            "journal": self.journal.state(), "returns": self._returns.copy(),
            "lengths": self._steps - self._started, "draws": draws_of(self.transport),
        }  # fmt: skip

    def resume_journal(self, state: Mapping[str, Any]) -> None:
        """Brings the envs to where they were when `state` was taken, as far as the engine can.

        The next reset, and as many steps as the journal holds since its last mark, are then answered as they were
        before, without the engine. Envs that could not be brought back end their episode as truncated at the first step
        after that, with `engine_lost` in their infos; the log says why.

        Raises:
            ValueError: the state is of another version or number of envs. Also what Transport.receive raises.
        """
        journal = Journal(self.engine_spec, 0)
        journal.restore(state["journal"])
        self._keep(journal)
        self._returns[:] = state["returns"]
        self._started[:] = self._steps - np.asarray(state["lengths"])
        returns = self._returns if self._monitor else None
        journal.lose(replay(self.transport, journal, self._observations, self._masks, returns))

    def _first_recorded(self, obs: Observation, masks: NDArray[np.int8] | None) -> Observation:
        """What the reset before the first step of a resumed run gives."""
        self._reset_seeds()
        self._reset_options()
        if self._masks is not None and masks is not None:
            self._masks.current = masks
            self._show_masks(self.reset_infos)
        return deepcopy(obs)

    def _step_of(self, journal: Journal, step: Callable[[], VecEnvStepReturn]) -> VecEnvStepReturn:
        """A step with a journal: one that it has recorded, or a new one, which is recorded."""
        if journal.replaying:
            _, obs, rewards, dones, infos, masks = journal.next_recorded()
            if self._masks is not None and masks is not None:
                self._masks.current = masks
            return obs, rewards, dones, infos or [{"TimeLimit.truncated": False} for _ in dones]
        before = self._steps, self._returns, self._started
        try:
            obs, rewards, dones, infos = step()
        except BaseException:  # it is not recorded, so it never was
            self._steps, self._returns, self._started = before
            raise
        masks = None if self._masks is None else self._masks.current
        said = max(map(len, infos)) > 1  # more than TimeLimit.truncated
        journal.answered(obs, rewards, dones, infos if said else None, masks)
        return obs, rewards, dones, infos

    def _end_lost(
        self,
        journal: Journal,
        obs: Observation,
        rewards: NDArray[np.float32],
        dones: NDArray[np.bool_],
        infos: list[dict[str, Any]],
    ) -> None:
        """Episodes that could not be brought back end with what was seen of them last."""
        envs = sorted(journal.lost)
        self._observations.take(obs, journal.obs, envs)
        rewards[envs], dones[envs] = 0, True
        for env in envs:
            infos[env] = {"engine_lost": journal.lost[env]}


def draws_of(transport: Transport) -> Any:
    """The generators of who draws the parameters of this transport's resets; None where nobody does."""
    generators = getattr(drawer_of(transport), "generators", None)
    return None if generators is None else generators()


def restore_draws(transport: Transport, state: Any) -> None:
    """Gives who draws now the generators that `draws_of` returned."""
    drawer = drawer_of(transport)
    if state is not None and hasattr(drawer, "set_generators"):
        drawer.set_generators(state)
