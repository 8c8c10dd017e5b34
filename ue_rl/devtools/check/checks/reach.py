"""ACT_SPACE says what an action may be; does the game take all of it, or clip it to a part?

The last eighth of a number's range is compared with a part near its middle: where the one changes nothing and the
other does, numbers are clipped. A game that only asks whether a number is above another one is no such game: there the
part near the middle changes nothing either.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ue_rl.devtools.check.bench import Bench
from ue_rl.devtools.check.checks.resets import needs_actions, numbers
from ue_rl.devtools.check.peer import Skip
from ue_rl.devtools.check.replay import ProbeEpisode, replay, replayed, seeds_of
from ue_rl.devtools.check.sampling import limits, one_specs
from ue_rl.devtools.check.statistics import effect

_NUMBERS = 6  # of an action that are looked at
_LAST = 0.875  # of the way from the middle to the end
_STEPS = 8  # of each episode, with seeds
_DRAWN = 240  # steps for each pair of values, without
# standard deviations
_CERTAIN = 9.0
_NOTHING = 4.5
Differs = Callable[[int, float, float], bool | None]  # (number, one value, another one) -> do they make a difference?


def whole_range(bench: Bench) -> str:
    """No part at the end of a number's range does the same as the end."""
    numbers(bench)
    needs_actions(bench)
    bench.needs_right("wrong-env-acted", "action-ignored", "reset-ignored", "stale-reset", "bound-refused")
    spec = bench.peer().spec
    if spec.groups or spec.mask_size:
        raise Skip("several agents or masks: actions cannot be chosen freely")
    one = one_specs(spec)[0]
    low, high, whole = limits(one.action_spec)
    finite = np.isfinite(np.array(one.action_spec.bounds)).all(axis=0)
    which = np.flatnonzero(finite & ~whole & (high > low)).tolist()[:_NUMBERS]
    if not which:
        raise Skip("no number of an action has bounds")
    known = replayed(bench)
    if known is None:
        differs = _by_chance(bench)
    else:
        differs = _by_seeds(bench, known)
    clipped = []
    for d in which:
        ends = [side for side in (0.0, 1.0) if _is_clipped(differs, d, low[d], high[d], side)]
        count = 1
        if low[d] < 0 < high[d]:
            count = 2
        if len(ends) == count:
            clipped.append(d)
    if clipped:
        shown = ", ".join(f"{d} ({low[d]:g} to {high[d]:g})" for d in clipped)
        text = f"the last eighth of the range of number {shown} does what its end does, and a part near the middle "
        bench.warn("actions-clipped", f"{text}makes a difference: is it clipped, to -1..1 perhaps?")
    return f"the ends of {len(which)} numbers do something of their own"


def _is_clipped(differs: Differs, d: int, low: float, high: float, side: float) -> bool:
    """Of number d at its lowest (0) or highest (1) end."""
    if side:
        end = high
        middle = max(low, 0.0)
    else:
        end = low
        middle = min(high, 0.0)
    last = middle + _LAST * (end - middle)
    if differs(d, last, end) is not False:
        return False
    near = min(abs(end - middle), 1.0)
    step = min(abs(end - last), 0.3 * near)
    one = middle + np.sign(end - middle) * 0.4 * near
    return differs(d, one, one + np.sign(end - middle) * step) is True


def _by_seeds(bench: Bench, known: ProbeEpisode) -> Differs:
    """Do two values of a number lead the same episodes elsewhere?"""
    seeds, like = seeds_of(bench), known.first(_STEPS)
    rows: dict[tuple[int, float], ProbeEpisode] = {}

    def held(d: int, value: float) -> ProbeEpisode:
        def change(step: int, actions: NDArray[np.float32]) -> NDArray[np.float32]:
            actions[:, d] = value
            return actions

        if (d, value) not in rows:
            rows[d, value] = replay(bench, seeds, _STEPS, like, change=change)
        return rows[d, value]

    return lambda d, one, other: max(held(d, one).differs(held(d, other))) >= 0


def _by_chance(bench: Bench) -> Differs:
    """Does what comes follow which of two values a number has? None: it is not sure."""

    def differs(d: int, one: float, other: float) -> bool | None:
        bench.anew()
        since = len(bench.tape)
        envs = bench.tape.envs
        for _ in bench.while_there_is_time(bench.options.patience / 4, -(-_DRAWN // envs) + 1):
            if bench.states is None or bench.over():
                bench.reset()
            assert bench.states is not None
            actions = bench.sampler.at(0.5)
            drawn = bench.sampler.rng.integers(0, 2, len(actions))
            actions[:, d] = np.where(drawn, other, one)
            bench.play(actions)
        reel = bench.tape.reel(since)
        at = np.argwhere(reel.steps)
        t, env = at[at[:, 0] >= 1].T
        if len(t) < _DRAWN / 2:
            return None
        found = effect(reel.came(t, env), reel.obs[t - 1, env], reel.actions[t, env][:, d : d + 1]).max()
        if found > _CERTAIN or found < _NOTHING:
            return bool(found > _CERTAIN)
        return None

    return differs
