"""Brings the envs of a resumed run to where they were: their present episodes are played again, from their seeds."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.envs.journal import PresentEpisodes
from ue_rl.envs.masks import Masks
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.calls.parameters import drawer_of
from ue_rl.protocol.transport import Transport

_log = logging.getLogger("ue_rl.envs.journal")
_CAUSE = "the engine is not deterministic, or remembers earlier episodes (ue-rl check --engine tells)"


def draws_of(transport: Transport) -> Any:
    """The generators of who draws the parameters of this transport's resets; None where nobody does."""
    generators = getattr(drawer_of(transport), "generators", None)
    if generators is None:
        return None
    return generators()


def restore_draws(transport: Transport, state: Any) -> None:
    """Gives who draws now the generators that `draws_of` returned."""
    drawer = drawer_of(transport)
    if state is not None and hasattr(drawer, "set_generators"):
        drawer.set_generators(state)


def replay(
    transport: Transport, episodes: PresentEpisodes, seen: StepBuffers, over: Collection[int] = ()
) -> dict[int, str]:
    """Does so, in as many round trips as the longest of these episodes has steps, and a few for resets.

    Args:
        seen: what all envs had shown last: observations, images and masks.
        over: envs whose episode had ended: they are left to begin another one.

    Returns:
        env id -> why it could not be brought back; its state is any.

    Raises:
        what Transport.receive raises.
    """
    away = set(over)
    if "SEED" not in transport.spec.features:
        why = "the engine takes no seeds (no FEATURES=SEED in its handshake)"
        return {env: why for env in range(len(episodes.known)) if env not in away}
    lost = {
        env: "its episode was too long to be kept, or began without a seed"
        for env, known in enumerate(episodes.known)
        if not known and env not in away
    }
    turns: dict[int, list[int]] = defaultdict(list)  # step -> envs whose episode begins before it
    for env, begun in enumerate(episodes.begun):
        if env not in lost and env not in away:
            turns[begun].append(env)
    if not turns:
        return lost
    first = min(turns)
    end = len(episodes.rows)
    _log.info("replaying %d steps of the present episodes", end - first)
    own = _Replay(transport, episodes, lost)
    own.reset(turns[first], everybody=True)
    for step in range(first, end):
        if step > first and step in turns:
            own.reset(turns[step])
        own.step(step)
    if first < end in turns:
        own.reset(turns[end])
    for env in own.different(seen):
        if env not in away:
            what = f"the same seed and actions led to another observation: {_CAUSE}"
            lost.setdefault(env, what)
    show = getattr(drawer_of(transport), "show_drawn", None)
    if show is not None:
        show({env: drawn for env, drawn in enumerate(episodes.parameters) if drawn and env not in lost})
    return lost


class _Replay:
    """The envs while they are replayed: `began`, those that are in their recorded episode.

    Args:
        lost: env id -> why it cannot be brought back; filled.
    """

    def __init__(self, transport: Transport, episodes: PresentEpisodes, lost: dict[int, str]) -> None:
        self._transport = transport
        self._episodes = episodes
        self._masks = Masks.of(transport.spec)
        self._lost = lost
        self._began = np.zeros(len(episodes.known), np.bool_)
        self._over: set[int] = set()  # they wait for a reset
        self._buffers: StepBuffers

    def reset(self, envs: list[int], everybody: bool = False) -> None:
        """These begin their recorded episodes; with everybody the others any other one."""
        episodes = self._episodes
        recorded = set(envs)
        ids = envs
        env_ids: list[int] | None = envs
        if everybody:
            ids = list(range(len(episodes.known)))
            env_ids = None
        seeds: list[int | None] = [None] * len(ids)
        options: list[Mapping[str, Any] | None] = [None] * len(ids)
        for place, env in enumerate(ids):
            if env in recorded:
                seeds[place] = episodes.seeds[env]
                options[place] = episodes.options[env]
        all_options = None
        if any(options):
            all_options = options
        self._transport.reset(env_ids, seeds, all_options, {env: episodes.parameters[env] for env in envs})
        self._buffers = self._transport.receive()
        self._began[envs] = True
        self._over.difference_update(ids)
        self._note_ends()

    def step(self, step: int) -> None:
        """All take this step, but those whose episode is over: these begin another one."""
        rows = self._episodes.actions_of(step)
        if self._masks is not None and not self._began.all():
            self._masks.take(self._buffers)
            rows = np.where(self._began[:, None], rows, self._masks.lowest(rows))
        self._transport.send_actions(rows, sorted(self._over) or None, {})
        self._over.clear()
        self._buffers = self._transport.receive()
        others = self._began & (self._buffers.rewards != self._episodes.rewards_of(step))
        self._note_ends()
        for env in np.flatnonzero(others).tolist():
            what = f"the same seed and actions led to other rewards: {_CAUSE}"
            self._lost.setdefault(env, what)

    def different(self, seen: StepBuffers) -> list[int]:
        """The envs that show something else, in any bit."""
        found = np.zeros(len(self._began), np.bool_)
        for name in ("obs", "masks", "image"):
            one = getattr(self._buffers, name)
            other = getattr(seen, name)
            if one is not None and one.size:
                found |= (_bits(one) != _bits(other)).any(axis=1)
        different: list[int] = np.flatnonzero(found).tolist()
        return different

    def _note_ends(self) -> None:
        for env in self._buffers.lost:
            self._lost[env] = "its engine was lost again"
        over = np.flatnonzero(self._buffers.dones).tolist()
        self._over.update(over, self._buffers.lost)
        for env in over:
            if self._began[env]:
                self._lost.setdefault(env, f"its episode ended sooner than before: {_CAUSE}")
        self._began[list(self._over)] = False


def _bits(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).view(np.uint8).reshape(len(array), -1)
