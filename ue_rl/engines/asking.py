"""A request for several engines: what each of them is asked, and what must be found before the first is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ue_rl.buffers import Resets
from ue_rl.engines.part import EnginePart
from ue_rl.spec import EnvSpec
from ue_rl.transport import Options, Seeds
from ue_rl.wire.refusals import nonfinite_action

# An engine, its own env ids (None: all), and the seeds and options that align with them.
ResetOf: TypeAlias = "tuple[EnginePart, list[int] | None, Seeds, Options]"


def check_finite(
    spec: EnvSpec, actions: NDArray[np.float32], begin: Sequence[int] = (), live: NDArray[np.bool_] | None = None
) -> None:
    """Raises ActionError where a row that takes a step holds a number that is not finite.

    Args:
        actions: float32 [num_rows, act_size]. begin: envs that are reset instead. live: bool [num_rows], agents that
            can act; None where envs have none.
    """
    wrong = ~np.isfinite(actions).all(axis=1).reshape(spec.num_envs, -1)
    wrong[np.asarray(begin, np.intp)] = False
    rows = np.flatnonzero(wrong.reshape(-1) if live is None else wrong.reshape(-1) & live)
    if len(rows):
        row = int(rows[0])
        raise nonfinite_action(actions, row, int(np.isfinite(actions[row]).argmin()), spec)


def split_resets(resets: Resets, parts: Sequence[EnginePart]) -> list[ResetOf]:
    """What each engine is asked; those without an env among them are left out."""
    wanted: list[ResetOf] = []
    for part in parts:
        start, stop = part.envs.start, part.envs.stop
        mine: list[int] | None = None
        places: Sequence[int] = range(start, stop)
        if resets.env_ids is not None:
            chosen = [(place, int(env) - start) for place, env in enumerate(resets.env_ids) if start <= env < stop]
            if not chosen:
                continue
            places, mine = [place for place, _ in chosen], [env for _, env in chosen]
        seeds = None if resets.seeds is None else [resets.seeds[place] for place in places]
        options = None if resets.options is None else [resets.options[place] for place in places]
        wanted.append((part, mine, seeds, options))
    return wanted
