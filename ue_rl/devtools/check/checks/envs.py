"""Each action reaches its own env, with all of its numbers, at once; and the envs are not one and the same.

Where the engine takes seeds, episodes are played again with one thing changed: that is certain. Where it does not,
random actions are correlated with what comes: that is as certain as the number of standard deviations says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ue_rl.devtools.check.bench import Bench
from ue_rl.devtools.check.checks.resets import needs_actions, numbers, shown
from ue_rl.devtools.check.checks.spaces import most_choices
from ue_rl.devtools.check.history import HistoryArrays
from ue_rl.devtools.check.peer import Skip
from ue_rl.devtools.check.replay import Change, ProbeEpisode, replay, replayed, seeds_of
from ue_rl.devtools.check.statistics import effect, interplay
from ue_rl.devtools.check.text_peer import PER_ENV

_FEW = 4  # envs, or numbers of an action, that are changed one by one
_CONTROLS = 4  # how often the same actions must give the same episode before an env is blamed
_NUMBERS = 16
_LONGER = 60  # steps, where a few show nothing
_ALIKE = 15  # steps that are equal to the bit by no chance
_STEPS = 150  # for each order of the rows, where there are no seeds
# standard deviations
_CERTAIN = 6.5
_NOTHING = 4.5
_ENOUGH = 60  # samples
# steps of an episode; random tries, and actions that are held
_WHOLE = 1500
_DRAWN = 3
_CHOICES = 16
_AT_ENDS = 3.0  # standard deviations: a little is enough to doubt that actions do nothing
_BEFORE = ("reset-ignored", "stale-reset", "same-trajectory", "bound-refused", "choice-refused")


def own_states(bench: Bench) -> str:
    """Envs that get different actions do not all show the same."""
    numbers(bench)
    bench.needs_right("same-trajectory")
    spec = bench.peer().spec
    if spec.num_envs == 1:
        raise Skip("there is one env")
    bench.anew()
    since = len(bench.tape)
    for n in bench.while_there_is_time(bench.options.patience, _STEPS):
        bench.step()
        if n >= 10 and not _all_alike(bench.tape.reel(since)).all():
            return "envs with different actions have different observations"
    reel = bench.tape.reel()
    alike = _all_alike(reel)
    if len(alike) < _FEW:
        raise Skip(f"only {len(alike)} steps of all envs together were seen")
    if alike.all() and _follows_actions(reel):
        text = f"in {len(alike)} of {len(alike)} steps with different actions all envs had the same observation"
        bench.fail("same-trajectory", text, shown(reel.obs[-1][:3]))
    return "observations are alike, and follow no action"


def _all_alike(reel: HistoryArrays) -> NDArray[np.bool_]:
    """Of each step of all envs with different actions: did all of them show the same?"""
    together = reel.steps.all(axis=1)
    together &= (reel.actions != reel.actions[:, :1]).any(axis=(1, 2))
    obs = reel.obs[together]
    same: NDArray[np.bool_] = (obs == obs[:, :1]).all(axis=(1, 2))
    return same


def _follows_actions(reel: HistoryArrays) -> bool:
    """Does what the first env shows depend on any env's action?"""
    which = reel.steps[:, 0]
    found = [_effect(reel, which, 0, env, rewarded=False) for env in range(reel.obs.shape[1])]
    return bool(max(each.max(initial=0.0) for each in found) > _CERTAIN)


def _effect(
    reel: HistoryArrays, which: NDArray[np.bool_], env: int, of: int, *, rewarded: bool = True
) -> NDArray[np.float64]:
    """Of the action of one env on what another one shows and, where `rewarded`, is rewarded with."""
    at = np.flatnonzero(which)
    at = at[at >= 1]
    if len(at) < _ENOUGH:
        return np.zeros(reel.actions.shape[2])
    came = reel.came(at, env)
    if rewarded:
        observed = came
    else:
        observed = came[:, :-1]
    return effect(observed, reel.obs[at - 1, env], reel.actions[at, of])


# -- with seeds


def own_actions(bench: Bench) -> str:
    """The action of each env changes that env, and no other."""
    numbers(bench)
    needs_actions(bench)
    bench.needs_right("resets-all", *_BEFORE)
    spec = bench.peer().spec
    if spec.num_envs == 1:
        raise Skip("there is one env")
    known = replayed(bench)
    if known is None:
        return _own_by_chance(bench)
    return _own_by_seeds(bench, known)


def _own_by_seeds(bench: Bench, known: ProbeEpisode) -> str:
    spec = bench.peer().spec
    seeds = seeds_of(bench)
    idle = []
    few = 1
    if bench.shared.setdefault("first carrier", bench.carrier) == bench.carrier:
        few = _FEW
    for env in sorted({spec.num_envs - 1, *range(min(few, spec.num_envs))}):
        other = _again(bench, known, _other(bench, [env]))
        changed = known.until_an_end().differs(other.until_an_end())
        hit = [other for other, step in enumerate(changed) if step >= 0]
        first = [other for other in hit if changed[other] == min(changed[each] for each in hit)]
        if (hit and env not in first) or len(hit) > 1:
            again = _goes_elsewhere(bench, known, env)
            if again is not None:  # then it says nothing about other actions
                text = f"the same seeds and actions once more: env {again[0]} went elsewhere from step {again[1]} on"
                return bench.fail("not-repeatable", text, bench.peer().seen, again[0])
        if hit and env not in first:  # what was hit first may have touched others later
            text = f"another action for env {env} changed env {first[0]} and not env {env}"
            return bench.fail("wrong-env-acted", text, bench.peer().seen, env)
        if len(hit) > 1:
            text = f"another action for env {env} changed env {next(e for e in hit if e != env)} too"
            return bench.warn("wrong-env-acted", f"{text}: {len(hit) - 1} envs besides", bench.peer().seen, env)
        if not hit:
            idle.append(env)
    if bench.peer().partial:
        backwards = list(range(spec.num_envs))[::-1]
        other = replay(bench, seeds, len(known.actions), known, order=backwards)
        if (wrong := known.first_difference(other)) is not None:
            return _judge_order(bench, known, other, *wrong)
    idle_one = ""
    if idle:
        idle_one = f"; nothing changes env {idle}"
    return "another action for one env changes that env alone" + idle_one


def _goes_elsewhere(bench: Bench, known: ProbeEpisode, env: int) -> tuple[int, int] | None:
    """Env and step in which the same seeds and actions gave another episode, behind ones with another action for `env`.

    A game that remembers something of an episode may give the same one again by chance: it is asked several times.
    """
    for _ in range(_CONTROLS):
        again = known.first_difference(_again(bench, known, lambda t, actions: actions))
        if again is not None:
            return again
        _again(bench, known, _other(bench, [env]))
    return None


def _judge_order(bench: Bench, known: ProbeEpisode, other: ProbeEpisode, env: int, step: int) -> str:
    """The same seeds and actions gave another episode when the envs were asked in reverse order."""
    envs = known.obs.shape[1]
    how = "with the rows reversed"
    if bench.carrier == PER_ENV:
        how = "over its own socket, asked in another order"
    text = f"the same seeds and actions, {how}: env {env}"
    seen = bench.peer().seen
    if (known.obs[0] == other.obs[0, ::-1]).all():
        return bench.fail("wrong-env-acted", f"{text} began where another one had begun before", seen, env)
    swapped = known.actions.reshape(len(known.actions), envs, -1)[:, ::-1].reshape(known.actions.shape)
    mirrored = _again(bench, known, lambda t, actions: swapped[t])
    if (mirrored.obs[:2] == other.obs[:2]).all():
        return bench.fail("wrong-env-acted", f"{text} went where the actions of env {envs - 1 - env} lead", seen, env)
    what = "began elsewhere"
    if step:
        what = f"went elsewhere from step {step} on"
    return bench.fail("not-repeatable", f"{text} {what}", seen, env)


def _changed(bench: Bench, known: ProbeEpisode, envs: Sequence[int], numbers_of: int | None = None) -> list[int]:
    """In which step each env differs when these get other actions; one number of them, or all."""
    return known.differs(_again(bench, known, _other(bench, envs, numbers_of)))


def _other(bench: Bench, envs: Sequence[int], number: int | None = None) -> Change:
    """Actions of these envs as far from what they were as they may be; with masks, random ones."""
    spec = bench.peer().spec
    low, high = bench.sampler.at(0), bench.sampler.at(1)
    rows = [env * spec.agents_per_env + agent for env in envs for agent in range(spec.agents_per_env)]
    if number is None:
        which = slice(None)
    else:
        which = slice(number, number + 1)

    def change(step: int, actions: NDArray[np.float32]) -> NDArray[np.float32]:
        drawn = bench.sampler.random(bench.states)
        for row in rows:
            far = np.where(np.abs(actions[row] - low[row]) > np.abs(high[row] - actions[row]), low[row], high[row])
            if spec.mask_size:
                source = drawn[row]
            else:
                source = far
            actions[row, which] = source[which]
        return actions

    return change


# -- without seeds


def _own_by_chance(bench: Bench) -> str:
    spec = bench.peer().spec
    bench.anew()
    orders: list[list[int] | None] = [None]
    if bench.peer().partial:
        orders.append(list(range(spec.num_envs))[::-1])
    said = []
    for order in orders:
        since = len(bench.tape)
        for _ in bench.while_there_is_time(bench.options.patience / len(orders), _STEPS):
            over = bench.over()
            if bench.states is None or len(over) == spec.num_envs:
                bench.begin()
                continue
            ids = None
            if order is not None:
                ids = [env for env in order if env not in over]
            bench.play(bench.sampler.random(bench.states), ids, over)
        how = "in reverse order"
        if order is None:
            how = "in the usual order"
        said.append(_cross(bench, bench.tape.reel(since), how))
        if "wrong-env-acted" in bench.failed:
            return ""
    if not any(said):
        raise Skip("too little was seen of what actions do")
    return f"in {sum(said)} cases an env followed its own action, and none another one's"


def _cross(bench: Bench, reel: HistoryArrays, how: str) -> int:
    """Looks for an env that follows another env's action and not its own; how many follow their own."""
    right = 0
    for env in range(reel.obs.shape[1]):
        own = _effect(reel, reel.steps[:, env], env, env).max(initial=0.0)
        if own > _CERTAIN:
            right += 1
        elif own < _NOTHING:
            others = [
                0.0 if of == env else _effect(reel, reel.steps[:, env] & reel.steps[:, of], env, of).max(initial=0.0)
                for of in range(reel.obs.shape[1])
            ]
            if max(others) > _CERTAIN:
                of = int(np.argmax(others))
                text = (
                    f"with the rows {how} env {env} follows the action of env {of} ({others[of]:.0f} standard "
                    f"deviations) and not its own ({own:.1f})"
                )
                bench.fail("wrong-env-acted", text, bench.peer().seen, env)
                return right
    return right


# -- does an action do anything


def actions_arrive(bench: Bench) -> str:
    """Actions change something, with each of their numbers, and in the step that they are sent with."""
    numbers(bench)
    needs_actions(bench)
    bench.needs_right("wrong-env-acted", *_BEFORE)
    known = replayed(bench)
    if known is None:
        return _arrive_by_chance(bench)
    return _arrive_by_seeds(bench, known)


def _arrive_by_seeds(bench: Bench, known: ProbeEpisode) -> str:
    spec = bench.peer().spec
    everyone = range(spec.num_envs)
    changed = _changed(bench, known, everyone)
    if (not known.over.any() and len(known.actions) <= _ALIKE) or (min(changed) < 0 and len(known.actions) < _LONGER):
        known = replay(bench, seeds_of(bench), _LONGER)
        changed = _changed(bench, known, everyone)
    if min(changed) < 0 and (found := _idle_envs(bench, lambda t, actions, other: other(t, actions))):
        where = "in all envs"
        if len(found) != spec.num_envs:
            where = f"in env {min(found)}"
        text = f"with the same seeds a whole episode was the same to the bit {where}, {found[min(found)]}"
        return bench.fail("action-ignored", text, shown(known.obs[-1, [min(found)]]), min(found))
    if max(changed) < 0:
        return f"no effect of actions was seen in {len(known.actions)} steps, which says little"
    if _late(bench, known):
        return ""
    later = _other(bench, everyone)
    after = known.differs(_again(bench, known, lambda t, actions: later(t, actions) if t else actions))
    if max(after) < 0:
        found = _idle_envs(bench, lambda t, actions, other: other(t, actions) if t else actions)
        if len(found) == spec.num_envs:
            text = f"with the same seeds and first actions whole episodes were the same to the bit, {found[0]}"
            return bench.fail("action-ignored", text, shown(known.obs[-1, :1]))
    if spec.groups or spec.mask_size or not 1 < spec.act_size <= _NUMBERS:
        return "other actions give other episodes"
    unread = [a for a in range(spec.act_size) if max(_changed(bench, known, everyone, a)) < 0]
    if unread and len(known.actions) < _LONGER:
        longer = replay(bench, seeds_of(bench), _LONGER)
        unread = [a for a in unread if max(_changed(bench, longer, everyone, a)) < 0]
    return _idle(bench, unread, f"in {max(len(known.actions), _LONGER)} steps with the same seeds")


def _idle_envs(bench: Bench, use: Callable[[int, NDArray[np.float32], Change], NDArray[np.float32]]) -> dict[int, str]:
    """The envs in which no action has an effect in a whole episode of some length, with what was tried.

    An action may count in one step alone, the last one perhaps: less than a whole episode says nothing, nor does less
    than each choice.

    Args:
        use: (step, actions as they were, what gives others) -> the actions to take.
    """
    spec = bench.peer().spec
    sampler, began = bench.sampler, time.perf_counter()
    known = replay(bench, seeds_of(bench), min(_WHOLE, int(bench.options.patience / max(bench.pace, 1e-5))))
    sides = np.linspace(0, 1, int(np.clip(most_choices(bench), 2, _CHOICES)))
    idle = {env for env in range(spec.num_envs) if known.over[:, env].any() and known.there[:, env].sum() > _FEW + 1}
    changes: list[Change] = [
        _other(bench, range(spec.num_envs)),
        *([lambda t, actions: sampler.random(bench.states)] * _DRAWN),
        *([] if spec.mask_size else [partial(_held, sampler.at(side)) for side in sides]),
    ]
    for change in changes:
        if not idle or time.perf_counter() - began > 3 * bench.options.patience:
            return {}
        other = _again(bench, known, lambda t, actions, change=change: use(t, actions, change))  # type: ignore[misc]
        idle -= {env for env, step in enumerate(known.differs(other)) if step >= 0}
    tried = f"{len(changes)} times with other actions"
    return {env: f"{known.there[:, env].sum() - 1} steps, {tried}" for env in sorted(idle)}


def _held(rows: NDArray[np.float32], step: int, actions: NDArray[np.float32]) -> NDArray[np.float32]:
    return rows


def _late(bench: Bench, known: ProbeEpisode) -> bool:
    """Does the first action show itself in the observation of the second step, and in no env in that of the first?"""
    first = _other(bench, range(bench.peer().spec.num_envs))
    other = _again(bench, known, lambda t, actions: actions if t else first(t, actions))
    if len(other.obs) < 3 or len(known.obs) < 3 or (known.obs[1] != other.obs[1]).any():
        return False
    both = known.there[2] & other.there[2]
    if not (known.obs[2] != other.obs[2])[both].any():
        return False
    text = "another first action changed the observation of the second step, and not that of the first"
    if (known.obs[1] == known.obs[0]).all():
        text += ", which was that of the reset"
    bench.warn("one-step-late", text, shown(known.obs[:3, 0]))
    return True


def _again(bench: Bench, known: ProbeEpisode, change: Change) -> ProbeEpisode:
    return replay(bench, seeds_of(bench), len(known.actions), known, change=change)


def _idle(bench: Bench, idle: list[int], how: str) -> str:
    if idle:
        size = bench.peer().spec.act_size
        bench.warn("action-order", f"{len(idle)} of {size} numbers change nothing {how}: {idle[:_NUMBERS]}")
    return "each number of an action changes something"


def _arrive_by_chance(bench: Bench) -> str:
    reel = bench.tape.reel()
    found, late = (_pooled(reel, delay) for delay in (0, 1))
    samples = int(reel.steps.sum())
    if samples < 5 * _ENOUGH:
        raise Skip(f"only {samples} steps were seen")
    deviations = f"{found.max(initial=0.0):.1f} standard deviations"
    if found.max(initial=0.0) < _NOTHING:
        if late.max(initial=0.0) > 2 * _CERTAIN:
            text = f"an action shows itself in the next step ({late.max():.0f} standard deviations), not in its own"
            bench.warn("one-step-late", f"{text} ({deviations})")
        elif samples >= 1000 and (reel.obs != reel.obs[0]).any() and not _acts_otherwise(reel):
            bench.warn("action-ignored", f"in {samples} random steps nothing followed the actions ({deviations})")
        return f"nothing is sure: {deviations} in {samples} steps"
    idle = [a for a in range(len(found)) if found[a] < _NOTHING]
    spec = bench.peer().spec
    if samples >= 1000 and found.max() > 4 * _CERTAIN and len(found) == spec.act_size and not spec.mask_size:
        return _idle(bench, idle, f"in {samples} random steps")
    return f"what comes follows the actions ({deviations})"


def _acts_otherwise(reel: HistoryArrays) -> bool:
    """May actions count only together with what is shown, as in a bandit with contexts, or only at the end?"""
    t, env = np.argwhere(reel.steps).T
    came = reel.came(t, env)
    before = reel.obs[t - 1, env]
    if interplay(came, before, reel.actions[t, env]) > _NOTHING:
        return True
    ends = np.flatnonzero(reel.over[t, env])
    if len(ends) > _FEW and effect(came[ends], before[ends], reel.actions[t, env][ends]).max() > _AT_ENDS:
        return True
    ages = reel.ages[t, env]
    seen: dict[int, NDArray[np.float32]] = {}
    foreseen = all(
        (seen.setdefault(int(age), row) == row).all() for age, row in zip(ages, reel.obs[t, env], strict=True)
    )
    return foreseen and len(ends) < _ENOUGH


def _pooled(reel: HistoryArrays, late: int) -> NDArray[np.float64]:
    """The effect of each number of an action on its own env, of all envs together, [A]."""
    which = reel.steps.copy()
    if late:
        which[1:] &= reel.steps[:-1]
    at = [(t, env) for t, env in np.argwhere(which) if t >= 1 + late]
    if len(at) < _ENOUGH:
        return np.zeros(reel.actions.shape[2])
    t, env = np.array(at).T
    return effect(reel.came(t, env), reel.obs[t - 1, env], reel.actions[t - late, env])
