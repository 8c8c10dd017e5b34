"""A carrier moves numbers: the same seeds and actions give the same episode over each of them."""

from __future__ import annotations

from ue_rl.devtools.check.bench import Bench
from ue_rl.devtools.check.checks.resets import numbers, shown
from ue_rl.devtools.check.memory_peer import MemoryPeer
from ue_rl.devtools.check.peer import Skip
from ue_rl.devtools.check.replay import (
    ProbeEpisode,
    affordable,
    need_replayed,
    need_seeds,
    replay,
    seeds_of,
    takes_seeds,
)

_ROUNDING = 1e-4
_WAKES = 3  # frames


def wakes(bench: Bench) -> str:
    """An engine in memory wakes the trainer that waits for it."""
    peer = bench.peer()
    if not isinstance(peer, MemoryPeer):
        raise Skip("it is about shared memory")
    for _ in range(_WAKES):
        woken = peer.wakes()
        if woken is None:
            raise Skip("this trainer waits on no futex")
        bench.forget()
        if woken:
            return "a trainer that waits on its futex is woken"
    return bench.warn("not-woken", f"in {_WAKES} of {_WAKES} frames client_flag stayed 1: a step may take 100 ms more")


def mixed(bench: Bench) -> str:
    """Steps and resets in one frame of shared memory: each env does its own."""
    peer = bench.peer()
    if not isinstance(peer, MemoryPeer) or not takes_seeds(bench):
        raise Skip("it is about shared memory, and engines that take seeds")
    bench.needs_right("not-repeatable", "seed-ignored", "wrong-env-acted", "resets-all")
    known = need_replayed(bench)
    if not len(known.actions):
        raise Skip("episodes do not repeat")
    if peer.spec.num_envs == 1 or peer.spec.groups:
        raise Skip("there is one env, or several agents in each")
    for resets in ([env for env in range(peer.spec.num_envs) if env % 2 == odd] for odd in (0, 1)):
        bench.begin(seeds=seeds_of(bench))
        states = bench.play(known.actions[0], resets=resets)
        others = [env for env in range(peer.spec.num_envs) if env not in resets]
        wrong = [env for env in others if (states.obs[env] != known.obs[1, env]).any()]
        if wrong:
            text = f"env {wrong[0]} took a step beside a reset of env {resets[0]}, and went elsewhere than alone"
            seen = f"alone {shown(known.obs[1, wrong[:1]])}; beside it {shown(states.obs[wrong[:1]])}"
            return bench.fail("mixed-batch", text, seen, wrong[0])
    return "steps beside resets lead where they lead alone"


def same(bench: Bench) -> str:
    """The episode over this carrier is that over the first one."""
    numbers(bench)
    need_seeds(bench)
    bench.needs_right(
        *("reset-ignored", "seed-ignored", "not-repeatable", "seed-refused", "done-after-reset", "stale-reset"),
        *("resets-all", "wrong-env-acted", "same-trajectory"),
    )
    first, known = bench.shared.get("episode", ("", None))
    if not isinstance(known, ProbeEpisode):
        if bench.memo.get("repeats") is False:
            raise Skip("episodes do not repeat")
        bench.shared["episode"] = bench.carrier, replay(bench, seeds_of(bench), affordable(bench))
        return "an episode to compare the others with"
    here = replay(bench, seeds_of(bench), len(known.actions), known)
    if (wrong := known.first_difference(here)) is not None:
        env, step = wrong
        seen = f"env {env}, step {step}, {first}: {shown(known.obs[step, [env]])}; here: {shown(here.obs[step, [env]])}"
        if 0 < known.distance(here) < _ROUNDING:
            text = f"by {known.distance(here):.1g} of the numbers: one of them rounds"
            bench.warn("carriers-differ", text, seen, env)
        else:
            bench.fail("carriers-differ", f"env {env} differs from step {step} on", seen, env)
    return f"{len(known.actions)} steps equal to the bit to those over {first}"
