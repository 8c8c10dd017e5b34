"""PendingResets: the next episodes that a trainer asks for before the present ones have ended (FEATURES=AUTORESET).

An engine that was asked so begins them by itself, behind the step in which an episode ends, and its answer brings the
first observations too. The reset that its caller asks for then costs no round trip. It is the caller's word that
counts: where the reset is another one than was asked ahead, it is asked again, as if nothing had been.

A call is in most steps, and as a rule about one env: NumPy would cost more than these loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ue_rl.protocol.buffers import Next, Resets, StepBuffers
from ue_rl.protocol.transport import Params, Seeds

ANY: Next = (None, None)  # asked once, it holds for all further episodes of the env, until a reset is asked


class PendingResets:
    """What one connection has asked ahead.

    Attributes:
        asked: env -> its next episode; the engine begins it when the present one ends.
        begun: env -> the episode that it has begun. Its first observation waits to be taken in.
        standing: envs that take no step in the present request; None: nobody does.
        kept: envs that were asked for and have begun already; None: there are none.
    """

    def __init__(self) -> None:
        self.asked: dict[int, Next] = {}
        self.begun: dict[int, Next] = {}
        self.standing: Sequence[int] | None = None
        self.kept: list[int] | None = None
        self._rows: list[tuple[Any, Any, dict[str, Any] | None]] = []  # of these, where others are asked

    def new(self, env_ids: Sequence[int], seeds: Seeds, parameters: Params) -> dict[int, Next]:
        """Of the next episodes of these envs those that were not asked ahead yet, with this seed and these values."""
        following: dict[int, Next] = {}
        for place, env in enumerate(env_ids):
            given = None
            if parameters is not None:
                given = parameters.get(env)
            one: Next = (None if seeds is None else seeds[place], given or None)
            if self.asked.get(env) != one:
                following[env] = one
        return following

    def note_ended(self, buffers: StepBuffers) -> None:
        """After an answer: where it ends an episode, the next one has begun."""
        ended = buffers.dones.tobytes()
        env = ended.find(1)
        if env < 0 or self.standing is None:
            return
        self.begun = begun = {}
        while env >= 0:
            following = self.asked.get(env)
            if following is not None and env not in self.standing:
                begun[env] = following
                if following != ANY:
                    del self.asked[env]
            env = ended.find(1, env + 1)

    def less_begun(self, resets: Resets, buffers: StepBuffers, take: Callable[[list[int]], None]) -> Resets | None:
        """What of `resets` is still to be asked; None: nothing, all of these episodes have begun.

        Args:
            take: takes the first observations of these envs into `buffers`.
        """
        begun = self.begun
        self.begun = {}
        if begun:
            take(list(begun))
        if resets.env_ids is None:
            self.asked.clear()
            _forget_infos(buffers, begun)
            return resets
        seeds = resets.seeds
        options = resets.options
        parameters = resets.parameters
        ready = []
        rest = []
        for place, env in enumerate(resets.env_ids):
            wanted = (None if seeds is None else seeds[place], (parameters and parameters[place]) or None)
            if begun.get(env) == wanted and not (options and options[place] is not None):
                ready.append(env)
            else:
                rest.append(place)
                self.asked.pop(env, None)
        _forget_infos(buffers, set(begun).difference(ready))
        if not ready:
            return resets
        self.kept = ready
        self._rows = []
        if not rest:
            return None
        # With their answer a carrier may take in all rows, those of envs too that were not asked.
        self._rows = [(buffers.obs[env].copy(), buffers.masks[env].copy(), buffers.infos.get(env)) for env in ready]
        return replace(
            resets,
            env_ids=[resets.env_ids[place] for place in rest],
            seeds=_some(seeds, rest),
            options=_some(options, rest),
            parameters=_some(parameters, rest),
        )

    def collect(self, buffers: StepBuffers, collect: Callable[[], None]) -> None:
        """Instead of `collect`, where `less_begun` has kept something."""
        kept = self.kept or []
        rows = self._rows
        self.kept = None
        self._rows = []
        if rows:
            collect()
        for env, (obs, mask, info) in zip(kept, rows, strict=False):
            buffers.obs[env], buffers.masks[env] = obs, mask
            if info is not None:
                buffers.infos[env] = info
        for env in kept:
            buffers.rewards[env] = buffers.dones[env] = buffers.truncated[env] = 0  # of a reset they mean nothing


def _forget_infos(buffers: StepBuffers, envs: Iterable[int]) -> None:
    """These episodes are begun anew, or go on without being asked for: what their beginnings said is nobody's."""
    for env in envs:
        buffers.infos.pop(env, None)


def _some(values: Sequence[Any] | None, places: list[int]) -> list[Any] | None:
    if values is None:
        return None
    return [values[place] for place in places]
