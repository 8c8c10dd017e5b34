"""How episodes end: DONE comes, the last observation is that of the old episode, and RESET begins a new one."""

from __future__ import annotations

import numpy as np

from ue_rl.compliance.bench import Bench
from ue_rl.compliance.checks.resets import JUMP, SURE, goes_on, numbers, shown
from ue_rl.compliance.peer import Skip
from ue_rl.compliance.tape import Reel

__all__ = ["ends", "last_observations", "lengths"]

_MOST = 4000  # steps
_SHORT, _MIDDLE = 200, 500  # steps after which it is enough that each env has ended twice, or once
_ENDS = 8
_LONG = 1200  # steps without an end that are worth a word: a limit of 1000 is customary
_ENOUGH = 4  # ends that a verdict needs


def ends(bench: Bench) -> str:
    """Random steps until episodes have ended."""
    bench.needs_right("reset-ignored")
    bench.reset()
    tape, steps = bench.tape, 0
    count = np.zeros(tape.envs, np.intp)
    cut = 0
    for n in bench.while_there_is_time(bench.options.patience * 1.5, _MOST):
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
    if not count.any():
        if steps < _LONG:
            raise Skip(f"no episode ended in {steps} steps, which may be right: too few to say anything")
        bench.warn("never-done", f"in {steps:,} random steps of each env; returns stay unknown")
    times = f"{count.sum()} episodes ended" + (f", in {cut} steps some by TRUNC=1" if cut else "")
    return f"{times}, in {steps:,} steps of {tape.envs} envs"


def lengths(bench: Bench) -> str:
    """An episode does not begin with its end."""
    bench.needs_right("reset-ignored")
    reel = bench.tape.reel()
    short = others = whole = 0
    longer = False
    for env in range(bench.tape.envs):
        episodes = reel.episodes(env)
        first = next((n for n, (_, ended) in enumerate(episodes) if ended), len(episodes))
        later = [steps for steps, ended in episodes[first + 1 :] if ended]
        short += later.count(1)
        others += sum(steps > 1 for steps, _ in episodes[first + 1 :])
        longer = longer or any(steps > 1 for steps, _ in episodes[: first + 1])
        whole += len(later)
    if whole < _ENOUGH:
        raise Skip(f"only {whole} episodes began after an end")
    if short == whole and not others:
        text = f"after the first end {short} of {short} episodes were over with their first step"
        if longer:
            bench.fail("done-after-reset", text)
        else:
            bench.warn("done-after-reset", f"{text}, and no episode was ever longer")
    elif short >= 5 and short > 0.3 * whole and not _has_short(reel):
        bench.warn("done-after-reset", f"{short} of {whole} episodes were over with their first step, and none "
                                       "with the second or third")  # fmt: skip
    found = [steps for env in range(bench.tape.envs) for steps, ended in reel.episodes(env) if ended]
    return f"{min(found)} to {max(found)} steps, {np.mean(found):.1f} on average" if found else "none ended"


def _has_short(reel: Reel) -> bool:
    return any(ended and steps in (2, 3) for env in range(reel.obs.shape[1]) for steps, ended in reel.episodes(env))


def last_observations(bench: Bench) -> str:
    """With DONE=1 the old episode's last observation comes, and the env waits there for its reset."""
    numbers(bench)
    bench.needs_right("reset-ignored", "stale-reset", "done-after-reset")
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
    margin = 0.5 * (starts.max(axis=0) - starts.min(axis=0))
    inside = ((last >= starts.min(axis=0) - margin) & (last <= starts.max(axis=0) + margin)).all(axis=1)
    ordinary = reel.steps & ~reel.over
    tail = reel.obs[ordinary]
    usually = ((tail >= starts.min(axis=0) - margin) & (tail <= starts.max(axis=0) + margin)).all(axis=1).mean()
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
    pairs = [(t, reel.next_reset(t, env), env) for t, env in found]
    last = np.array([reel.obs[t, env] for t, _, env in pairs])
    answer = np.array([reel.obs[then, env] for _, then, env in pairs])
    if not goes_on(reel, last, answer, np.array([env for _, _, env in pairs])):
        return
    later = [
        reel.obs[n + 1, env] - reel.obs[n, env]
        for _, n, env in pairs
        if n + 1 < len(reel.obs) and reel.steps[n + 1, env]
    ]
    stale = bool(later) and float(np.mean(reel.jump(np.array(later)) > JUMP)) >= 0.5
    env = pairs[-1][2]
    seen = f"with DONE=1 {shown(last[-1:])}; answer to the reset {shown(answer[-1:])}"
    name = "stale-reset" if stale else "reset-ignored"
    bench.fail(name, f"in {len(pairs)} of {len(pairs)} resets after an end", seen, env)
