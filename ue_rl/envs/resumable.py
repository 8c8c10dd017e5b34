"""Resumable: the part of an UnrealVecEnv that keeps a journal, and resumes a stopped run from one."""

from __future__ import annotations

import functools
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn

from ue_rl.envs.episodes import Reset
from ue_rl.envs.journal import Journal
from ue_rl.envs.masks import Masks
from ue_rl.envs.observations import Observation, Observations, mapped
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.calls.parameters import drawer_of
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.transport import Transport

_log = logging.getLogger(__name__)


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
    _just_begun: list[int]
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

    def _ask_ahead(self) -> None:
        """Asks ahead for the next reset of each env that has just begun an episode, as far as it is known by now.

        Nothing is used up by that: when an episode has ended its reset is asked for as ever, and where another seed or
        other parameters go with it, because a curriculum is a lesson further, the engine begins once more.
        """
        envs, self._just_begun = self._just_begun, []
        transport: Any = self.transport
        seeds = None if self.journal is None else self.journal.next_seeds(envs)
        parameters: dict[int, Mapping[str, float] | None] | None = None
        if transport.draw_parameters is not None:
            peek = getattr(drawer_of(transport), "peek", lambda env, certain: None)
            parameters = {env: peek(env, seeds is None) for env in envs}
            if None in parameters.values():  # a game without seeds would begin other episodes than without this
                return
        transport.ask_ahead(envs, seeds, parameters)

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


def replay(
    transport: Transport,
    journal: Journal,
    observations: Observations,
    masks: Masks | None,
    returns: NDArray[np.float64] | None = None,
) -> dict[int, str]:
    """Does so, in as many round trips as the longest of these episodes has steps, and a few for resets.

    Args:
        returns: sums of the rewards of the present episodes, float64 [num_envs], which must come out again; None: they
            were not kept.

    Returns:
        env id -> why it could not be brought back; its state is any.

    Raises:
        what Transport.receive raises.
    """
    if not journal.replayable:
        return dict.fromkeys(range(len(journal.known)), "the engine takes no seeds (no FEATURES=SEED in its handshake)")
    lost = {
        env: "its episode was too long to be kept, or began without a seed"
        for env, known in enumerate(journal.known)
        if not known
    }
    turns: dict[int, list[int]] = defaultdict(list)  # step -> envs whose episode begins before it
    for env, begun in enumerate(journal.begun):
        if env not in lost:
            turns[begun].append(env)
    if not turns:
        return lost
    first, end = min(turns), len(journal.rows)
    _log.info("replaying %d steps of the present episodes", end - first)
    own = _Replay(transport, journal, masks, lost)
    own.reset(turns[first], everybody=True)
    for step in range(first, end):
        if step > first and step in turns:
            own.reset(turns[step])
        own.step(journal.rows[step])
    if first < end in turns:
        own.reset(turns[end])
    buffers = own.buffers
    if masks is not None:
        masks.take(buffers)
    different = _different(observations.read(buffers), journal.obs)
    if masks is not None and journal.masks is not None:
        different |= (masks.current != journal.masks).any(axis=1)
    for env in np.flatnonzero(different).tolist():
        lost.setdefault(env, "the same seed and actions led to another observation: the engine is not deterministic")
    for env in [] if returns is None else np.flatnonzero(own.returns != returns).tolist():
        lost.setdefault(env, "the same seed and actions led to other rewards: the engine is not deterministic")
    show = getattr(drawer_of(transport), "show_drawn", None)
    if show is not None:
        show({env: drawn for env, drawn in enumerate(journal.parameters) if drawn and env not in lost})
    return lost


class _Replay:
    """The envs while they are replayed: `began`, those that are in their recorded episode.

    Attributes:
        buffers: the transport's. returns: of the episodes so far.
    """

    def __init__(self, transport: Transport, journal: Journal, masks: Masks | None, lost: dict[int, str]) -> None:
        self._transport, self._journal, self._masks, self._lost = transport, journal, masks, lost
        self._began = np.zeros(len(journal.known), np.bool_)
        self._over: set[int] = set()  # they wait for a reset
        self.returns = np.zeros(len(journal.known))
        self.buffers: StepBuffers

    def reset(self, envs: list[int], everybody: bool = False) -> None:
        """These begin their recorded episodes; with everybody the others any other one."""
        journal, recorded = self._journal, set(envs)
        ids = list(range(len(journal.known))) if everybody else envs
        options = [journal.options[env] if env in recorded else None for env in ids]
        self._transport.reset(
            None if everybody else ids,
            [journal.seeds[env] if env in recorded else None for env in ids],
            options if any(options) else None,
            {env: journal.parameters[env] for env in envs},
        )
        self.buffers = self._transport.receive()
        self._began[envs] = True
        self.returns[ids] = 0
        self._over.difference_update(ids)
        self._note()

    def step(self, rows: NDArray[np.float32]) -> None:
        """All take a step, but those whose episode is over: these begin another one."""
        if self._masks is not None and not self._began.all():
            self._masks.take(self.buffers)
            rows = np.where(self._began[:, None], rows, self._masks.lowest(rows))
        self._transport.send_actions(rows, sorted(self._over) or None, {})
        self._over.clear()
        self.buffers = self._transport.receive()
        self.returns = self.returns + self.buffers.rewards  # added up as UnrealVecEnv does
        self._note()

    def _note(self) -> None:
        for env in self.buffers.lost:
            self._lost[env] = "its engine was lost again"
        over = np.flatnonzero(self.buffers.dones).tolist()
        self._over.update(over, self.buffers.lost)
        for env in over:
            if self._began[env]:
                self._lost.setdefault(env, "its episode ended sooner than before: the engine is not deterministic")
        self._began[list(self._over)] = False


def _different(seen: Any, recorded: Any) -> NDArray[np.bool_]:
    """Which envs' observations differ in any bit, bool [num_envs]."""
    parts: list[tuple[NDArray[Any], NDArray[Any]]] = []
    mapped(lambda *arrays: parts.append(arrays), seen, recorded)
    different = np.zeros(len(parts[0][0]), np.bool_)
    for one, other in parts:
        if one.shape != other.shape or one.dtype != other.dtype:
            return ~different
        bits = (np.ascontiguousarray(values).view(np.uint8).reshape(len(different), -1) for values in (one, other))
        different |= np.not_equal(*bits).any(axis=1)
    return different
