"""Replay: brings the envs of an engine to where they were, by the seeds and actions of their present episodes.

Envs are stepped together, so all histories are made to end with the same step: an env whose episode began later waits
for its turn with actions that mean nothing, and is reset with its seed when that turn comes. Afterwards every env's
observation is compared with the recorded one, bit by bit: an engine that is not deterministic is found out.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.buffers import StepBuffers
from ue_rl.calls.parameters import drawer_of
from ue_rl.envs.journal import Journal
from ue_rl.envs.masks import Masks
from ue_rl.envs.observations import Observations
from ue_rl.transport import Transport

_log = logging.getLogger(__name__)


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
    parts = list(zip(_arrays(seen), _arrays(recorded), strict=True))
    different = np.zeros(len(parts[0][0]), np.bool_)
    for one, other in parts:
        if one.shape != other.shape or one.dtype != other.dtype:
            return ~different
        bits = (np.ascontiguousarray(values).view(np.uint8).reshape(len(different), -1) for values in (one, other))
        different |= np.not_equal(*bits).any(axis=1)
    return different


def _arrays(observation: Any) -> list[NDArray[Any]]:
    if isinstance(observation, dict):
        return [array for part in observation.values() for array in _arrays(part)]
    if isinstance(observation, tuple):
        return [array for part in observation for array in _arrays(part)]
    return [observation]
