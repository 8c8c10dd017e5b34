"""How episodes end: DONE comes, the last observation is that of the old episode, and RESET begins a new one."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ue_rl.compliance.bench import Bench
from ue_rl.compliance.checks.resets import JUMP, SURE, goes_on, numbers, shown
from ue_rl.compliance.peer import Skip, Wrong
from ue_rl.compliance.tape import RESET, Reel

__all__ = ["behind_the_end", "ends", "last_observations", "lengths"]

_MOST = 1500  # steps
_SHORT, _MIDDLE = 200, 500  # steps after which it is enough that each env has ended twice, or once
_ENDS = 8
_LONG = 1200  # steps without an end that are worth a word: a limit of 1000 is customary
_ENOUGH, _MANY = 4, 6  # ends that a verdict needs
_SURE_ENDS = 50  # episodes of one step, where no other was seen


def ends(bench: Bench) -> str:
    """Random steps until episodes have ended."""
    bench.needs_right("reset-ignored")
    bench.anew()
    tape, steps = bench.tape, 0
    count = np.zeros(tape.envs, np.intp)
    cut, began = 0, time.perf_counter()
    for n in bench.while_there_is_time(bench.options.patience * 2, _MOST):
        bench.step()
        steps = n + 1
        assert bench.states is not None
        over = [env for env in bench.over() if env < tape.envs]
        count[over] += 1
        cut += int(bench.states.truncated.any())
        if steps >= _SHORT and count.sum() >= _ENDS and count.min() >= 2:
            break
        if steps >= _MIDDLE and count.min() >= 1:
            break
        if time.perf_counter() - began > bench.options.patience and count.any():
            break
    if not count.any():
        if steps < _LONG:
            raise Skip(f"no episode ended in {steps} steps, which may be right: too few to say anything")
        bench.warn("never-done", f"in {steps:,} random steps of each env; returns stay unknown")
    times = f"{count.sum()} episodes ended" + (f", in {cut} steps some by TRUNC=1" if cut else "")
    return f"{times}, in {steps:,} steps of {tape.envs} envs"


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
            bench.fail("done-after-reset", f"since its first end {len(later)} episodes of env {env} were over with "
                                           "their first step", env_id=env)  # fmt: skip
            return ""
        for (steps, ended), (then, whole) in pairwise(episodes):
            if whole or then > 1:
                (after_long if ended and steps > 1 else after_short).append(then == 1)
    if len(after_long) >= _MANY and all(after_long) and len(after_short) >= _MANY and np.mean(after_short) < 0.25:
        text = f"{len(after_long)} of {len(after_long)} times the episode behind an end was over with its first step, "
        bench.fail("done-after-reset", f"{text}and {sum(after_short)} of {len(after_short)} others")
    if not everything:
        raise Skip("none ended")
    if len(everything) >= _SURE_ENDS and max(everything) == 1:
        text = f"DONE=1 came with each of {len(everything)} first steps; a game whose episodes have one step is right"
        bench.warn("done-after-reset", text, bench.peer().seen)
    return f"{min(everything)} to {max(everything)} steps, {np.mean(everything):.1f} on average"


def _goes_on_behind(bench: Bench, reel: Reel, env: int) -> bool:
    """Is the env after a reset where its episode had ended?"""
    at = [t for t in np.flatnonzero(reel.kinds[:, env] == RESET) if t and reel.follows[t] and reel.over[t - 1, env]]
    before, answer = reel.obs[np.array(at, np.intp) - 1, env], reel.obs[at, env]
    steady = [t for t in at if t + 1 < len(reel.obs) and reel.steps[t + 1, env] and reel.over[t + 1, env]]
    if len(steady) < _ENOUGH or not goes_on(reel, before, answer, env):
        return False
    seen = f"with DONE=1 {shown(before[-1:])}; answer to the reset {shown(answer[-1:])}"
    bench.fail("reset-ignored", f"in {len(at)} of {len(at)} resets after an end it stayed at the end", seen, env)
    return True


def last_observations(bench: Bench) -> str:
    """With DONE=1 the old episode's last observation comes, and the env waits there for its reset."""
    numbers(bench)
    bench.needs_right("reset-ignored", "stale-reset", "wrong-env-acted", "done-after-reset")
    if bench.peer().spec.groups:
        raise Skip("agents come and go at different times")
    reel = bench.tape.reel()
    first = reel.steps & (np.roll(reel.kinds, 1, axis=0) == 2)  # where an end is also a beginning nothing can be told
    found = [(t, env) for t, env in reel.ends() if not first[t, env] and reel.next_reset(t, env) > 0]
    if len(found) < _ENOUGH:
        raise Skip(f"only {len(found)} episodes ended and began again")
    if not _resets_itself(bench, reel, found):
        _stays(bench, reel, found)
    return f"{len(found)} episodes ended where the steps before led"


def _resets_itself(bench: Bench, reel: Reel, found: list[tuple[int, int]]) -> bool:
    last = np.array([reel.obs[t, env] for t, env in found])
    before = np.array([reel.obs[t - 1, env] for t, env in found])
    answer = np.array([reel.obs[reel.next_reset(t, env), env] for t, env in found])
    env = found[-1][1]
    seen = f"the step before {shown(before[-1:])}; with DONE=1 {shown(last[-1:])}; after the reset {shown(answer[-1:])}"
    starts = np.concatenate([reel.starts(e) for e in range(reel.obs.shape[1])])
    if len(starts) < 3:
        return False
    text = f"{len(found)} episodes ended"
    if _same_start(reel, found):
        bench.fail("resets-itself", f"{text}, each with the observation that episodes begin with", seen, env)
        return True
    inside = _near_starts(reel, last)
    ordinary = reel.obs[reel.steps & ~reel.over]
    usually = _near_starts(reel, ordinary).mean() if len(ordinary) else 1.0
    jumps = reel.jump(last - before) > JUMP
    would = np.mean(reel.jump(answer - before) > JUMP)
    if would >= 0.3 and jumps.sum() >= 3 and jumps.mean() >= 0.6 * would and inside.mean() >= 0.9:
        text = f"{text}: with DONE=1 the observation jumped {jumps.sum()} times, to where episodes begin"
        judge = bench.fail if len(found) >= 2 * _ENOUGH or usually < 0.5 else bench.warn
        judge("resets-itself", text, seen, env)
        return True
    return False


def _same_start(reel: Reel, found: list[tuple[int, int]]) -> bool:
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


def _stays(bench: Bench, reel: Reel, found: list[tuple[int, int]]) -> None:
    """Does the reset after an end begin anything? Said here only of engines that reset in the middle of an episode."""
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
        name = "stale-reset" if stale else "reset-ignored"
        bench.fail(name, f"in {len(pairs)} of {len(pairs)} resets after an end", seen, env)
        return


def behind_the_end(bench: Bench) -> str:
    """A step where a reset should come: the env is still where its episode ended."""
    numbers(bench)
    bench.needs_right("reset-ignored", "stale-reset", "done-after-reset", "resets-itself", "never-done")
    spec, found = bench.peer().spec, []
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
    t, env = np.array(found).T
    jumps = reel.jump(reel.obs[t, env] - reel.obs[t - 1, env]) > JUMP
    near = _near_starts(reel, reel.obs[t, env])
    if jumps.mean() >= 0.5 and near.mean() >= 0.9:
        text = f"a step behind DONE=1 began from another start, {jumps.sum()} of {len(found)} times"
        bench.fail("resets-itself", text, shown(np.array([reel.obs[t[-1] - 1, env[-1]], reel.obs[t[-1], env[-1]]])))
    return f"{len(found)} steps behind an end went on from there"


def _near_starts(reel: Reel, rows: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which of these observations, [n, D], are where episodes begin, or half that width beside it."""
    starts = np.concatenate([reel.starts(env) for env in range(reel.obs.shape[1])])
    low, high = starts.min(axis=0), starts.max(axis=0)
    margin = 0.5 * (high - low)
    inside: NDArray[np.bool_] = ((rows >= low - margin) & (rows <= high + margin)).all(axis=-1)
    return inside
