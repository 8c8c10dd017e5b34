"""How episodes end: DONE comes, the last observation is that of the old episode, and RESET begins a new one.

Games are right that end where they began, after one step, or always after the same number of steps. So the verdicts
here rest on what such games do not do: an end that is farther than a step goes, or that comes from everywhere.
"""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ue_rl.devtools.check.bench import Bench
from ue_rl.devtools.check.checks.resets import JUMP, SURE, goes_on, numbers, shown
from ue_rl.devtools.check.history import RESET, HistoryArrays
from ue_rl.devtools.check.peer import Skip, Wrong

# steps; and where all ends so far may be a limit's
_MOST = 1500
_MOST_OF_LIMIT = 3600
# steps after which it is enough that each env has ended twice, or once
_SHORT = 200
_MIDDLE = 500
_ENDS = 8
_LONG = 1200  # steps without an end that are worth a word: a limit of 1000 is customary
# ends that a verdict needs
_ENOUGH = 4
_MANY = 6
_SURE_ENDS = 50  # episodes of one step, where no other was seen
# steps behind a reset, and such resets, where a long walk has ended no episode
_SOON = 40
_TRIES = 24
_BEHIND = 40  # steps behind an end, to see whether the game goes on
_ORDINARY = 20  # steps that end no episode, without which nobody knows how far one goes
_ASIDE = 2.5  # usual steps: two places that are farther apart have no step to one third place
_LIMIT = 10  # steps: shorter episodes of one length are rounds of a game
# episodes of the greatest length, and where that is
_SAME = 6
_SAME_LONG = 3
_FAR_LIMIT = 100  # steps long
_LOOKED_AT = 4000  # observations that are compared with the last ones


def ends(bench: Bench) -> str:
    """Random steps until episodes have ended."""
    bench.needs_right("reset-ignored")
    bench.anew()
    tape = bench.tape
    steps = 0
    count = np.zeros(tape.envs, np.intp)
    cut = 0
    agents = 0
    began = time.perf_counter()
    for n in bench.while_there_is_time(bench.options.patience * 2, _MOST_OF_LIMIT):
        if n == _MOST and not count.any():
            break
        bench.step()
        steps = n + 1
        assert bench.states is not None
        over = [env for env in bench.over() if env < tape.envs]
        count[over] += 1
        cut += int(bench.states.truncated.any())
        agents += int(bench.states.dones.any())
        if steps >= _SHORT and count.sum() >= _ENDS and count.min() >= 2:
            break
        if steps >= _MIDDLE and count.min() >= 1 and (cut or count.sum() >= _SAME):
            break
        if time.perf_counter() - began > bench.options.patience and count.any():
            break
    if not count.any():
        if steps < _LONG:
            raise Skip(f"no episode ended in {steps} steps, which may be right: too few to say anything")
        if agents:
            return f"in {steps:,} random steps agents' episodes ended, and no env's"
        tried = _ends_soon(bench)
        if tried is None:
            return f"in {steps:,} random steps no episode ended, and one did soon after another reset"
        steps += tried
        bench.warn("never-done", f"in {steps:,} random steps of each env; returns stay unknown")
    times = f"{count.sum()} episodes ended" + (f", in {cut} steps some by TRUNC=1" if cut else "")
    return f"{times}, in {steps:,} steps of {tape.envs} envs"


def _ends_soon(bench: Bench) -> int | None:
    """Steps behind further resets; None: an episode ended.

    By turns one action is held, as random ones lead nowhere in some games, and random ones are taken: a walk that has
    lost its way may find no end for long, and another one finds it at once.
    """
    steps = 0
    for n in bench.while_there_is_time(bench.options.patience / 2, _TRIES):
        bench.reset()
        if n % 2 or bench.peer().spec.mask_size:
            held = None
        else:
            held = bench.sampler.random(bench.states)
        for _ in range(_SOON):
            if bench.step(held).dones.any():
                return None
            steps += 1
    return steps


def lengths(bench: Bench) -> str:
    """An episode does not begin with its end."""
    bench.needs_right("reset-ignored", "stale-reset", "wrong-env-acted")
    reel = bench.tape.reel()
    everything: list[int] = []
    after_long: list[bool] = []
    after_short: list[bool] = []
    for env in range(bench.tape.envs):
        episodes = [one for one in reel.episodes(env) if one[0]]
        everything += [steps for steps, ended in episodes if ended]
        first = next((n for n, (_, ended) in enumerate(episodes) if ended), len(episodes))
        later = episodes[first + 1 :]
        if _goes_on_behind(bench, reel, env):
            return ""
        if len(later) >= _ENOUGH and all(one == (1, True) for one in later[:-1]) and max(episodes[: first + 1])[0] > 1:
            text = f"since its first end {len(later)} episodes of env {env} were over with their first step"
            return bench.fail("done-after-reset", text, env_id=env)
        for (steps, ended), (then, whole) in pairwise(episodes):
            if whole or then > 1:
                if ended and steps > 1:
                    after = after_long
                else:
                    after = after_short
                after.append(then == 1)
    if len(after_long) >= _MANY and all(after_long) and len(after_short) >= _MANY and np.mean(after_short) < 0.25:
        text = f"{len(after_long)} of {len(after_long)} times the episode behind an end was over with its first step, "
        bench.fail("done-after-reset", f"{text}and {sum(after_short)} of {len(after_short)} others")
    if not everything:
        raise Skip("none ended")
    if len(everything) >= _SURE_ENDS and max(everything) == 1:
        if _plays_on(bench, reel):
            text = f"DONE=1 came with each of {len(everything)} first steps, and behind it the game goes on"
            bench.warn("done-after-reset", text, bench.peer().seen)
    elif _is_limit(bench, reel):
        text = f"{everything.count(max(everything))} of {len(everything)} episodes ended by DONE=1 alone after exactly "
        text += f"{max(everything)} steps, none later, whatever was done, and no observation tells when"
        bench.warn("limit-as-done", text)
    return f"{min(everything)} to {max(everything)} steps, {np.mean(everything):.1f} on average"


def _goes_on_behind(bench: Bench, reel: HistoryArrays, env: int) -> bool:
    """Is the env after a reset where its episode had ended?"""
    at = [t for t in np.flatnonzero(reel.kinds[:, env] == RESET) if t and reel.follows[t] and reel.over[t - 1, env]]
    before = reel.obs[np.array(at, np.intp) - 1, env]
    answer = reel.obs[at, env]
    steady = [t for t in at if t + 1 < len(reel.obs) and reel.steps[t + 1, env] and reel.over[t + 1, env]]
    if len(steady) < _ENOUGH or not goes_on(reel, before, answer, env):
        return False
    seen = f"with DONE=1 {shown(before[-1:])}; answer to the reset {shown(answer[-1:])}"
    bench.fail("reset-ignored", f"in {len(at)} of {len(at)} resets after an end it stayed at the end", seen, env)
    return True


def _plays_on(bench: Bench, reel: HistoryArrays) -> bool:
    """Do steps behind the end of an episode of one step lead farther than its own? Then it was no end."""
    near = np.concatenate([reel.obs[reel.ages[:, env] < 2, env] for env in range(reel.obs.shape[1])])
    low = near.min(axis=0)
    high = near.max(axis=0)
    margin = 0.5 * (high - low) + 1e-6 * np.abs(near).max()
    try:
        for side in (1.0, 0.0):
            states = bench.anew()
            for _ in range(_BEHIND):
                masked = bench.peer().spec.mask_size > 0
                if masked:
                    actions = bench.sampler.random(states)
                else:
                    actions = bench.sampler.at(side)
                states = bench.play(actions)
            rows = states.obs.reshape(bench.peer().spec.num_envs, -1)
            if ((rows < low - margin) | (rows > high + margin)).any():
                return True
    except Wrong:  # it takes no step behind an end
        bench.drop()
    return False


def _is_limit(bench: Bench, reel: HistoryArrays) -> bool:
    """Does a limit of steps end the episodes, which nothing but TRUNC can tell from an end?

    Where the observation shows the time, or what it is that ends the game, DONE=1 is right.
    """
    peer = bench.peer()
    if bench.options.base or peer.spec.version == 0 or peer.spec.groups or (peer.spec.image and peer.spec.image.only):
        return False  # the deployed plugin has no TRUNC; agents come and go; and images are not looked at
    ages = reel.ages
    ends = reel.ends()
    most = max((int(ages[t, env]) for t, env in ends), default=0)
    longest = [(t, env) for t, env in ends if ages[t, env] == most]
    if most >= _FAR_LIMIT:
        few = _SAME_LONG
    else:
        few = _SAME
    if most < _LIMIT or len(longest) < max(few, len(ends) / 2) or any(reel.cut[t, env] for t, env in longest):
        return False
    if (ages[reel.ordinary] >= most).any() or (reel.obs == reel.obs[0, 0]).all():
        return False
    return not _tells_the_time(reel, ages, longest)


def _tells_the_time(reel: HistoryArrays, ages: NDArray[np.intp], longest: list[tuple[int, int]]) -> bool:
    """Can a last observation be told from one in the middle: by numbers that go with the time, or by one like it?"""
    which = np.argwhere(reel.steps & (ages > 0) & (ages < ages[longest[0]]))
    which = np.concatenate([which[:: len(which) // _LOOKED_AT + 1], np.array(longest)])
    obs = reel.obs[which[:, 0], which[:, 1]].astype(np.float64)
    obs = (obs - obs.mean(axis=0)) / np.maximum(obs.std(axis=0), 1e-9)
    age = ages[which[:, 0], which[:, 1]].astype(np.float64)
    for d in range(obs.shape[1]):  # any number that is another one at each step, and the same one in each episode
        order = np.argsort(obs[:, d], kind="stable")
        steps = np.diff(age[order])
        if (np.count_nonzero(steps) <= 2 * len(np.unique(age))) and obs[:, d].any():
            return True
    wide = np.column_stack([np.ones(len(obs)), obs, obs**2])
    if wide.shape[1] < len(obs) / 4:
        left = age - wide @ np.linalg.lstsq(wide, age, rcond=None)[0]
        if np.abs(left).max() < 0.5:
            return True
    ending = np.arange(len(which)) >= len(which) - len(longest)
    alike = 0
    for n in np.flatnonzero(ending):
        distance = np.abs(obs - obs[n]).sum(axis=1)
        distance[n] = np.inf
        alike += bool(ending[np.argmin(distance)])
    return alike >= 0.8 * len(longest)


def last_observations(bench: Bench) -> str:
    """With DONE=1 the old episode's last observation comes, and the env waits there for its reset."""
    numbers(bench)
    bench.needs_right("reset-ignored", "stale-reset", "wrong-env-acted", "done-after-reset")
    if bench.peer().spec.groups:
        raise Skip("agents come and go at different times")
    reel = bench.tape.reel()
    ages = reel.ages  # where an end is also a beginning nothing can be told
    found = [(t, env) for t, env in reel.ends() if ages[t, env] > 1 and reel.next_reset(t, env) > 0]
    if len(found) < _ENOUGH:
        raise Skip(f"only {len(found)} episodes of more than one step ended and began again")
    _knows_steps(reel)
    if _same_start(reel, found):
        homes = np.array([reel.starts(env)[0] for _, env in found])
        before = np.array([reel.obs[t - 1, env] for t, env in found])
        away = before - homes
        text = f"{len(found)} episodes ended, each with the observation that episodes begin with"
        seen = f"before the last step {shown(before[:3])}; with it {shown(reel.obs[found[0][0], [found[0][1]]])}"
        if reel.jump(away.max(axis=0) - away.min(axis=0)) > _ASIDE:
            bench.fail("resets-itself", f"{text}, from places that are farther apart than one step leads", seen)
        elif (homes == homes[0]).all() and _from_too_many(reel, before, homes[:1]):
            bench.warn("resets-itself", f"{text}, from places that no step led to before", seen)
        else:
            return f"{len(found)} episodes ended where they had begun, and each last step may have led there"
    elif not any(_jumps_to_starts(bench, reel, part) for part in _by_their_ends(reel, found)):
        _stays(bench, reel, found)
    return f"{len(found)} episodes ended, and none was seen to begin anew by itself"


def _by_their_ends(reel: HistoryArrays, found: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Ends by a limit, the others, and all: a game may begin anew by itself where it is won or lost, and only there."""
    cut = [end for end in found if reel.cut[end]]
    others = [end for end in found if not reel.cut[end]]
    return [*(part for part in (cut, others) if _ENOUGH <= len(part) < len(found)), found]


def _jumps_to_starts(bench: Bench, reel: HistoryArrays, found: list[tuple[int, int]]) -> bool:
    """Does the engine reset an env by itself? Seen where episodes have several starts."""
    last = np.array([reel.obs[t, env] for t, env in found])
    before = np.array([reel.obs[t - 1, env] for t, env in found])
    answer = np.array([reel.obs[reel.next_reset(t, env), env] for t, env in found])
    env = found[-1][1]
    seen = f"the step before {shown(before[-1:])}; with DONE=1 {shown(last[-1:])}; after the reset {shown(answer[-1:])}"
    starts = np.concatenate([reel.starts(e) for e in range(reel.obs.shape[1])])
    if len(starts) < 3:
        return False
    inside = _near_starts(reel, last)
    ordinary = reel.obs[reel.steps & ~reel.over]
    usually = 1.0
    if len(ordinary):
        usually = _near_starts(reel, ordinary).mean()
    jumps = reel.jump(last - before) > JUMP
    would = np.mean(reel.jump(answer - before) > JUMP)
    if would >= 0.3 and jumps.sum() >= 3 and jumps.mean() >= 0.6 * would and inside.mean() >= 0.9:
        text = f"{len(found)} episodes ended: with DONE=1 the observation jumped {jumps.sum()} times, "
        text += "to where episodes begin"
        if len(found) >= 2 * _ENOUGH or usually < 0.5:
            judge = bench.fail
        else:
            judge = bench.warn
        judge("resets-itself", text, seen, env)
        return True
    return False


def _same_start(reel: HistoryArrays, found: list[tuple[int, int]]) -> bool:
    """Each env always begins with one observation, and each episode ended with it."""
    chance = 1.0
    for env in {env for _, env in found}:
        starts = reel.starts(env)
        if not len(starts) or (starts != starts[0]).any():
            return False
        ends = [reel.obs[t, env] for t, e in found if e == env]
        if any((end != starts[0]).any() for end in ends):
            return False
        ordinary = reel.obs[(reel.steps & ~reel.over)[:, env], env]
        there = int((ordinary == starts[0]).all(axis=1).sum())
        chance *= ((there + 1) / (len(ordinary) + 1)) ** len(ends)
    return chance < SURE


def _from_too_many(reel: HistoryArrays, before: NDArray[np.float32], start: NDArray[np.float32]) -> bool:
    """Where places are few, as in a grid or in one-hot codes: do last steps come from where no step leads to the start?

    From more places than any other place is reached from; or, in a game whose steps can be taken back, from none of
    those that a step leads to from the start.

    Args:
        before: [n, D], the observations before the last ones. start: [1, D], what all episodes begin and end with.
    """
    t, env = np.argwhere(reel.ordinary).T
    rows = np.concatenate([reel.obs[t - 1, env], reel.obs[t, env], before, start])
    places, where = np.unique(rows, axis=0, return_inverse=True)
    now, then, last, home = np.split(where.ravel(), np.cumsum([len(t), len(t), len(before)]))
    if len(places) > len(t) / _ENOUGH:
        return False
    steps = {(int(a), int(b)) for a, b in zip(now, then, strict=True)}
    reached = np.bincount([b for _, b in steps], minlength=1)
    ends = set(last.tolist())
    if len(ends) > 1.5 * max(reached.max(), _ENOUGH):
        return True
    turned = [(b, a) in steps for a, b in steps if int(home[0]) not in (a, b)]
    if not turned:
        turned = [False]
    back = np.mean(turned)
    return bool(back > 0.8) and not any((int(home[0]), each) in steps for each in ends)


def _knows_steps(reel: HistoryArrays) -> None:
    """Raises: Skip, where hardly a step ended no episode: nobody knows how far one goes."""
    if reel.ordinary.sum() < _ORDINARY:
        raise Skip("episodes have hardly more than one step")


def _stays(bench: Bench, reel: HistoryArrays, found: list[tuple[int, int]]) -> None:
    """Does the reset after an end go on with the old episode? Of engines whose resets within an episode are right."""
    for env in sorted({env for _, env in found}):
        pairs = [(t, reel.next_reset(t, env)) for t, e in found if e == env]
        last = np.array([reel.obs[t, env] for t, _ in pairs])
        answer = np.array([reel.obs[then, env] for _, then in pairs])
        if not goes_on(reel, last, answer, env):
            continue
        later = [then + 1 for _, then in pairs if then + 1 < len(reel.obs) and reel.steps[then + 1, env]]
        change = reel.obs[later, env] - reel.obs[np.array(later, np.intp) - 1, env]
        stale = len(later) > 0 and float(np.mean(reel.jump(change) > JUMP)) >= 0.5
        seen = f"with DONE=1 {shown(last[-1:])}; answer to the reset {shown(answer[-1:])}"
        name = "reset-ignored"
        if stale:
            name = "stale-reset"
        bench.fail(name, f"in {len(pairs)} of {len(pairs)} resets after an end", seen, env)
        return


def behind_the_end(bench: Bench) -> str:
    """A step where a reset should come: the env is still where its episode ended."""
    numbers(bench)
    bench.needs_right("reset-ignored", "stale-reset", "done-after-reset", "resets-itself", "never-done")
    spec = bench.peer().spec
    found = []
    if spec.groups:
        raise Skip("agents come and go at different times")
    usual = [steps for env in range(bench.tape.envs) for steps, ended in bench.tape.reel().episodes(env) if ended]
    if not usual or np.mean(usual) > _SHORT:
        raise Skip("episodes are too long")
    bench.anew()
    try:
        for _ in bench.while_there_is_time(bench.options.patience / 2, _MOST):
            over = [env for env in bench.over() if env < bench.tape.envs]
            if over and bench.states is not None:
                bench.play(bench.sampler.random(bench.states))
                found += [(len(bench.tape) - 1, env) for env in over]
                bench.reset()
            bench.step()
            if len(found) >= _ENDS:
                break
    except Wrong as wrong:
        bench.drop()
        raise Skip(f"the engine takes no step behind an end: {wrong.text}") from wrong
    if len(found) < _ENOUGH:
        raise Skip(f"only {len(found)} episodes ended")
    reel = bench.tape.reel()
    _knows_steps(reel)
    t, env = np.array(found).T
    jumps = reel.jump(reel.obs[t, env] - reel.obs[t - 1, env]) > JUMP
    near = _near_starts(reel, reel.obs[t, env])
    if jumps.mean() >= 0.5 and near.mean() >= 0.9:
        text = f"a step behind DONE=1 began from another start, {jumps.sum()} of {len(found)} times"
        bench.fail("resets-itself", text, shown(np.array([reel.obs[t[-1] - 1, env[-1]], reel.obs[t[-1], env[-1]]])))
    return f"{len(found)} steps behind an end went on from there"


def _near_starts(reel: HistoryArrays, rows: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which of these observations, [n, D], are where episodes begin, or half that width beside it."""
    starts = np.concatenate([reel.starts(env) for env in range(reel.obs.shape[1])])
    low = starts.min(axis=0)
    high = starts.max(axis=0)
    margin = 0.5 * (high - low)
    inside: NDArray[np.bool_] = ((rows >= low - margin) & (rows <= high + margin)).all(axis=-1)
    return inside
