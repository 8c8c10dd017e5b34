"""Ahead: the next episodes that a trainer asks for before the present ones have ended (FEATURES=AUTORESET).

An engine that was asked so begins them by itself, behind the step in which an episode ends, and its answer brings the
first observations too. The reset that its caller asks for then costs no round trip. It is the caller's word that
counts: where the reset is another one than was asked ahead, it is asked again, as if nothing had been.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ue_rl.buffers import Resets, StepBuffers

Next = tuple["int | None", "Mapping[str, float] | None"]  # seed and parameters of an episode


class Ahead:
    """What one connection has asked ahead.

    Attributes:
        asked: env -> its next episode; the engine begins it when the present one ends.
        begun: env -> the episode that it has begun. Its first observation waits to be taken in.
        standing: envs that take no step in the present request; None: nobody does.
    """

    def __init__(self) -> None:
        self.asked: dict[int, Next] = {}
        self.begun: dict[int, Next] = {}
        self.standing: Sequence[int] | None = None
        self.kept: tuple[bool, list[int], dict[str, Any], dict[int, dict[str, Any]]] | None = None

    def note_ended(self, buffers: StepBuffers) -> None:
        """After an answer: where it ends an episode, the next one has begun."""
        if self.standing is not None and 1 in buffers.dones.tobytes():
            ended = [env for env in np.flatnonzero(buffers.dones).tolist() if env in self.asked]
            self.begun = {env: self.asked.pop(env) for env in ended if env not in self.standing}

    def less_begun(
        self, resets: Resets, buffers: StepBuffers, take: Callable[[list[int]], None]
    ) -> Resets | None:
        """What of `resets` is still to be asked; None: nothing, all of these episodes have begun.

        Args:
            take: takes the first observations of these envs into `buffers`.
        """
        begun, self.begun = self.begun, {}
        if begun:
            take(sorted(begun))
        if resets.env_ids is None:
            self.asked.clear()
            return resets
        ids = [int(env) for env in resets.env_ids]
        for env in ids:
            self.asked.pop(env, None)
        count = len(ids)
        seeds, options, parameters = (
            [None] * count if given is None else given for given in (resets.seeds, resets.options, resets.parameters)
        )
        rest = [
            place
            for place, env in enumerate(ids)
            if begun.get(env) != (seeds[place], parameters[place] or None) or options[place] is not None
        ]
        if len(rest) == count:
            return resets
        waiting = {ids[place] for place in rest}
        kept = [env for env in ids if env not in waiting]
        # a carrier may take in all rows with an answer, those of envs too that were not asked
        rows = {name: getattr(buffers, name)[kept] for name in ("obs", "masks")} if rest else {}
        infos = {env: buffers.infos[env] for env in kept if env in buffers.infos} if rest else {}
        self.kept = bool(rest), kept, rows, infos
        if not rest:
            return None
        return replace(
            resets, env_ids=[ids[place] for place in rest], seeds=_some(resets.seeds, rest),
            options=_some(resets.options, rest), parameters=_some(resets.parameters, rest),
        )  # fmt: skip

    def collect(self, buffers: StepBuffers, collect: Callable[[], None]) -> None:
        """Instead of `collect`, where `less_begun` has kept something."""
        assert self.kept is not None
        (asked, envs, rows, infos), self.kept = self.kept, None
        if asked:
            collect()
            for name, values in rows.items():
                getattr(buffers, name)[envs] = values
            buffers.infos.update(infos)
        for flags in (buffers.rewards, buffers.dones, buffers.truncated):  # of a reset they mean nothing
            flags[envs] = 0


def _some(values: Sequence[Any] | None, places: list[int]) -> list[Any] | None:
    return None if values is None else [values[place] for place in places]
