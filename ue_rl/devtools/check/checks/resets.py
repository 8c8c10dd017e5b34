"""ACT=RESET begins a new episode of the env that it names, and of no other; so does a reset that was asked ahead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ue_rl.devtools.check.bench import SHARED, Bench
from ue_rl.devtools.check.history import RESET, HistoryArrays
from ue_rl.devtools.check.peer import Skip
from ue_rl.devtools.check.replay import takes_seeds
from ue_rl.devtools.check.statistics import by_chance, paired_by_chance

Floats = NDArray[np.float32]

_IN_A_ROW = 6
_FIRST = (2, 1, 3, 2, 4, 2, 3)  # steps before a reset of env 0; few, so that its episode is not over
_LATER = (3, 8, 2, 5, 10, 3)  # steps before a reset of one of the others
_OTHERS = 3
JUMP = 1.25  # times the usual step: farther is no step
SURE = 1e-4
_UNLIKELY = 3e-3  # beside another sign
# resets of an env
_ENOUGH = 3
_ENOUGH_NEAR = 6
_MOST = 100
# steps until an episode ends whose next one was asked for; of that one
_MOST_AHEAD = 1500
_SEED = 5000


def numbers(bench: Bench) -> None:
    """The check that calls it judges observations by their numbers.

    Raises:
        Skip: they are images.
    """
    image = bench.peer().spec.image
    if image is not None and image.only:
        raise Skip("it judges numbers, and the observation is an image")


def needs_actions(bench: Bench) -> None:
    """The check that calls it judges what actions do.

    Raises:
        Skip: the game acts itself.
    """
    if "DEMO" in bench.peer().spec.features:
        raise Skip("the game acts itself, and leaves what is asked aside")


def in_a_row(bench: Bench) -> str:
    """A reset after a reset; and the envs do not all begin in the same random places."""
    numbers(bench)
    spec = bench.peer().spec
    bench.anew()
    for _ in bench.while_there_is_time(bench.options.patience, _IN_A_ROW):
        bench.reset()
    if spec.num_envs == 1:
        return f"{_IN_A_ROW} resets in a row"
    reel = bench.tape.reel()
    together = (reel.kinds == RESET).all(axis=1) & ~reel.seeded
    starts = reel.obs[together]
    equal = (starts == starts[:, :1]).all(axis=(1, 2))
    kinds = len(np.unique(starts[:, 0], axis=0))
    if equal.all() and kinds > 2 and by_chance(starts[:, 0], len(starts) * (spec.num_envs - 1)) < SURE:
        text = f"{len(starts)} times all {spec.num_envs} envs were reset: they began in {kinds} different places, each "
        text += "time all in the same one"
        bench.fail("same-trajectory", text, shown(starts[-1][:3]))
    same = len(np.unique(starts.reshape(-1, starts.shape[2]), axis=0)) == 1
    return f"{len(starts)} resets in a row; {'always the same start' if same else 'starts differ'}"


@dataclass(frozen=True)
class Try:
    """A reset of one env in the middle of its episode.

    Args:
        t: the exchange of the reset, `then` that of the step behind it. env: which.
    """

    t: int
    then: int
    env: int


def of_one(bench: Bench) -> str:
    """Resets of one env in the middle of an episode: it begins anew, and the others go on."""
    numbers(bench)
    bench.needs_right("same-trajectory", "partial-batch", "unasked-env")
    bench.anew()
    tries = []
    for n, (env, steps) in zip(bench.while_there_is_time(bench.options.patience, _MOST), _plan(bench), strict=False):
        made = _try(bench, n, env, steps)
        if made is not None:
            tries.append(made)
    if not tries:
        raise Skip("each episode was over before one could be reset")
    reel = bench.tape.reel()
    if not any(_moved(reel, one.t - 1, one.env) for one in tries):
        raise Skip("no observation changed between two resets")
    for env in sorted({one.env for one in tries}):
        if _judge_own(bench, reel, [one for one in tries if one.env == env and _moved(reel, one.t - 1, one.env)]):
            return ""
    _judge_others(bench, reel, tries)
    return f"{len(tries)} times one env was reset in the middle of its episode"


def _plan(bench: Bench) -> Iterator[tuple[int, int]]:
    """(env to reset, steps before that)."""
    last = bench.tape.envs - 1
    others = sorted({1, last // 2, last} - {0})[:_OTHERS]
    if not others:
        others = [0]
    yield from ((0, steps) for steps in _FIRST)
    for steps in _LATER:
        yield from ((env, steps) for env in others if env <= last)


def _try(bench: Bench, n: int, env: int, steps: int) -> Try | None:
    """Some steps, a reset of one env, and a step."""
    held = None
    if n % 2 and not bench.peer().spec.mask_size:
        held = bench.sampler.random(bench.states)
    for _ in range(steps):
        bench.step(held)
    if env in bench.over():
        return None
    t = len(bench.tape)
    bench.begin([env])
    if n % 4 == 3:
        bench.begin([env])  # twice in a row
    bench.step()
    return Try(t, len(bench.tape) - 1, env)


def _moved(reel: HistoryArrays, t: int, env: int) -> bool:
    """Is the env elsewhere than where its episode began?"""
    start = reel.start_of(t, env)
    return start >= 0 and bool((reel.obs[t, env] != reel.obs[start, env]).any())


def _judge_own(bench: Bench, reel: HistoryArrays, tries: list[Try]) -> bool:
    """Of the resets of one env: does the episode before go on?"""
    if len(tries) < _ENOUGH:
        return False
    before = np.array([reel.obs[one.t - 1, one.env] for one in tries])
    answer = np.array([reel.obs[one.t, one.env] for one in tries])
    after = np.array([reel.obs[one.then, one.env] for one in tries])
    env = tries[0].env
    times = f"in {len(tries)} of {len(tries)} resets"
    seen = f"before {shown(before[-1:])}; answer to the reset {shown(answer[-1:])}; a step later {shown(after[-1:])}"
    jumps = reel.jumps(after - answer) > JUMP
    if goes_on(reel, before, answer, env):
        if (other := _begun_instead(reel, tries)) is not None:
            text = f"ACT=RESET;ENV={env} began a new episode of env {other}, and none of env {env}"
            bench.fail("wrong-env-acted", text, seen, env)
        elif jumps.any(axis=1).mean() >= 0.5:
            bench.fail("stale-reset", f"{times}; the new episode shows itself a step later", seen, env)
        else:
            bench.fail("reset-ignored", f"{times} the env was where it had been before, and went on there", seen, env)
        return True
    if _answered_by_another(bench, reel, tries, (before, answer, after), seen):
        return True
    # Some numbers may be old, and the others new.
    old = [
        d
        for d in range(before.shape[1])
        if (before[:, d] == answer[:, d]).all()
        and jumps[:, d].mean() >= 0.5
        and by_chance(reel.obs[:, env, d, None], len(before)) < SURE
    ]
    if old:
        text = f"{times} the numbers {old[:8]} were those before it, and jumped a step later"
        bench.fail("stale-reset", text, seen, env)
    return bool(old)


def _answered_by_another(
    bench: Bench, reel: HistoryArrays, tries: list[Try], obs: tuple[Floats, Floats, Floats], seen: str
) -> bool:
    """Does the answer show a new episode, and the step behind it the one before the reset?

    Args:
        obs: before the resets, the answers to them, and a step later.
    """
    (before, answer, after) = obs
    env = tries[0].env
    if (reel.jump(answer - before) > JUMP).mean() < 0.5 or len(before) < _ENOUGH_NEAR:
        return False
    if not goes_on(reel, before, after, env):
        return False
    text = f"in {len(tries)} of {len(tries)} resets the answer was of a new episode, and with the next step env {env} "
    text += "went on in the one before"
    if (other := _begun_instead(reel, tries)) is not None:
        bench.fail("wrong-env-acted", f"{text}; env {other} had begun anew", seen, env)
    else:
        bench.fail("reset-ignored", text, seen, env)
    return True


def goes_on(reel: HistoryArrays, before: NDArray[np.float32], answer: NDArray[np.float32], env: int) -> bool:
    """Are the answers to an env's resets, [n, D], states that follow those before them?

    Either each is equal to the one before, which cannot be chance; or each is as near to it as a step goes, and nearer
    than to the ones before other resets.
    """
    if len(before) < _ENOUGH:
        return False
    if (before == answer).all():
        return by_chance(reel.obs[:, env], len(before)) < SURE
    if len(before) < _ENOUGH_NEAR or (reel.jump(answer - before) > 1).any():
        return False
    return paired_by_chance(before, answer, reel.usual()) < _UNLIKELY


def _begun_instead(reel: HistoryArrays, tries: list[Try]) -> int | None:
    """The other env that these resets of one env seem to begin anew; None: there is none."""
    for other in range(reel.obs.shape[1]):
        if other != tries[0].env:
            far = _jumps_beside(reel, tries, other)
            if len(far) >= _ENOUGH and far.mean() >= 0.5:
                return other
    return None


def _jumps_beside(reel: HistoryArrays, tries: list[Try], env: int) -> NDArray[np.bool_]:
    """At which of these resets of another env did this one jump? Of those where it could have."""
    at = [
        one
        for one in tries
        if not reel.over[one.t - 1, env] and reel.steps[one.then, env] and _moved(reel, one.t - 1, env)
    ]
    change = [reel.obs[one.then, env] - reel.obs[one.t - 1, env] for one in at]
    return reel.jump(np.array(change, np.float32).reshape(len(at), reel.obs.shape[2])) > JUMP


def _judge_others(bench: Bench, reel: HistoryArrays, tries: list[Try]) -> None:
    own = [reel.obs[one.then, one.env] - reel.obs[one.t - 1, one.env] for one in tries]
    rate = float(np.mean(reel.jump(np.array(own)) > JUMP))
    others = [
        (one, env)
        for one in tries
        for env in range(reel.obs.shape[1])
        if env != one.env
        and not reel.over[one.t - 1, env]
        and reel.steps[one.then, env]
        and not reel.over[one.then, env]
        and _moved(reel, one.t - 1, env)  # last steps may be farther
    ]
    if not others or rate < 0.2:
        return
    far = reel.jump(np.array([reel.obs[one.then, env] - reel.obs[one.t - 1, env] for one, env in others])) > JUMP
    if not (far.sum() >= 3 and far.mean() >= rate / 2):
        # Perhaps it resets the next env alone: one of many beside the one that was asked for.
        pairs = np.array([(one.env, env) for one, env in others])
        beside = [(pairs == pair).all(axis=1) for pair in np.unique(pairs, axis=0)]
        hit = [at for at in beside if far[at].sum() >= 3 and far[at].mean() >= 0.75 * rate >= 0.5]
        if not hit:
            return
        far &= np.any(hit, axis=0)
    one, env = others[int(np.flatnonzero(far)[0])]
    text = f"{far.sum()} of {len(far)} times another env jumped when env {one.env} was reset"
    seen = shown(reel.obs[[one.t - 1, one.then], env])
    bench.fail("resets-all", text, f"env {env} before and a step later: {seen}", env)


def asked_ahead(bench: Bench) -> str:
    """FEATURES=AUTORESET: the first end of an episode brings the next one's first state, as its seed says."""
    peer = bench.text()
    spec = peer.spec
    if "AUTORESET" not in spec.features or spec.groups or peer.carrier != SHARED:
        raise Skip("no reset can be asked ahead here")
    bench.needs_right("never-done", "reset-ignored")
    bench.anew()
    seeds = [bench.options.seed + _SEED + env if takes_seeds(bench) else None for env in range(spec.num_envs)]
    with bench.provoking("autoreset-wrong", "resets were asked ahead"):
        peer.ask_ahead(seeds)
        steps = 0
        over = bench.over()
        for _ in bench.while_there_is_time(bench.options.patience, _MOST_AHEAD):
            bench.step()
            steps = steps + 1
            over = bench.over()
            if over:
                break
        if not over:
            bench.anew()  # which voids them
            raise Skip("no episode ended")
        first = peer.begun(over).obs[over]
    bench.forget()
    after = f"behind step {steps}, which ended an episode"
    if seeds[0] is not None and not bench.failed & {"not-repeatable", "seed-ignored", "seed-of-one-env-ignored"}:
        again = bench.begin(seeds=seeds).obs[over]
        if (first != again).any():
            text = f"{after}, env {over[0]} began elsewhere than after ACT=RESET with the same seed"
            return bench.fail("autoreset-wrong", text, f"{shown(first[:1])}; {shown(again[:1])}", over[0])
    bench.anew()
    return f"{after}, came the first state of the next one"


def shown(rows: NDArray[np.float32]) -> str:
    """For people: at most eight numbers of each."""
    return " | ".join(",".join(f"{x:.6g}" for x in row[:8]) + (",.." if len(row) > 8 else "") for row in rows)
