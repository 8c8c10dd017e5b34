"""FEATURES=SEED: the same seed and actions give the same episode, another seed another one. FEATURES=OPTIONS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ue_rl.devtools.check.bench import Bench
from ue_rl.devtools.check.checks.resets import numbers, shown
from ue_rl.devtools.check.peer import Skip, Wrong
from ue_rl.devtools.check.replay import ProbeEpisode, affordable, need_replayed, need_seeds, replay, seeds_of
from ue_rl.devtools.check.wire import Place
from ue_rl.protocol.spec import EnvType

_ROUNDING = 1e-5
_LARGEST = 2**63 - 1
_BETWEEN = (1, 2, 3)  # kinds of other seeds that are played between two episodes of the same one
_ALIKE = 8  # so many seeds in a row that begin alike are one
_FEWEST = 32  # steps of an episode in a new engine, and the most: what is left of another one may show late
_MOST = 200


def _seeded(bench: Bench) -> None:
    need_seeds(bench)
    numbers(bench)
    bench.needs_right(
        "reset-ignored", "stale-reset", "done-after-reset", "resets-all", "wrong-env-acted", "seed-refused"
    )


def repeat(bench: Bench) -> str:
    """The same seeds and actions again, at once and behind other episodes: the same episodes to the bit."""
    _seeded(bench)
    seeds = seeds_of(bench)
    one = replay(bench, seeds, affordable(bench))
    two = replay(bench, seeds, len(one.actions), one)
    behind = ""
    for kind in _BETWEEN:  # a game may keep something of an episode, and two of one seed in a row keep the same
        if one.first_difference(two) is not None:
            break
        replay(bench, seeds_of(bench, kind), len(one.actions))
        two = replay(bench, seeds, len(one.actions), one)
        behind = "; behind episodes of other seeds, and not before them: is something of an episode left in the next?"
    again = one.differs(two)
    first = one.first_difference(two)
    if first is None:
        behind = ""
    bench.memo["repeats"] = first is None
    if first is not None:
        env, step = first
        seen = f"SEED={seeds[env]}, step {step}: {_unlike(one, two, step, env)}"
        wrong = sum(n >= 0 for n in again)
        if 0 in again:
            env = again.index(0)
            seen = f"SEED={seeds[env]}: first {shown(one.obs[0, [env]])}, then {shown(two.obs[0, [env]])}"
            text = f"{again.count(0)} of {len(again)} envs began elsewhere with the same seed"
            other = np.flatnonzero(one.obs[0, env] != two.obs[0, env])
            random = (one.obs[0] != one.obs[0, :1]).any(axis=0)  # the others say nothing
            if not random[other].all() or random.sum() > len(other):
                text += f": only the numbers {other[:8].tolist()} are others. Does a reset put them back?"
            text += behind
            return bench.fail("seed-ignored", text, seen, env)
        far = one.distance(two)
        text = f"{wrong} of {len(again)} envs went elsewhere, env {env} from step {step} on"
        text += behind
        if 0 < far < _ROUNDING:
            return bench.warn("not-repeatable", f"{text}, by {far:.1g} of the numbers: rounding", seen, env)
        return bench.fail("not-repeatable", text, seen, env)
    bench.memo["replayed"] = one
    return f"{len(one.actions)} steps of {len(seeds)} envs, at once and behind others, equal to the bit"


def _unlike(one: ProbeEpisode, two: ProbeEpisode, step: int, env: int) -> str:
    """What differs in this step."""
    if (one.obs[step, env] != two.obs[step, env]).any():
        return f"{shown(one.obs[step, [env]])}; again: {shown(two.obs[step, [env]])}"
    if one.over[step, env] != two.over[step, env]:
        return f"the same observation, and DONE={one.over[step, env]:d}; again: DONE={two.over[step, env]:d}"
    return f"the same observation, and REW={one.rewards[step, env]:.6g}; again: REW={two.rewards[step, env]:.6g}"


def other_seeds(bench: Bench) -> str:
    """Other seeds: other episodes, unless nothing in the game is random."""
    _seeded(bench)
    one = need_replayed(bench)
    kinds = [replay(bench, seeds_of(bench, kind), len(one.actions), one) for kind in (1, 2, 3)]
    bench.memo["random starts"] = all((one.obs[0] != other.obs[0]).any() for other in kinds)
    if any(one.first_difference(other) is not None for other in kinds):
        return _own_seeds(bench, [one, *kinds])
    seen = f"each began with {shown(one.obs[0, :1])}"
    if _random_without_seeds(bench, one):
        return bench.fail(
            "seed-ignored", "four seeds gave the same episode, and without a seed episodes differ", seen, 0
        )
    return "four seeds gave the same episode, and so did none: nothing seems to be random"


def _own_seeds(bench: Bench, episodes: list[ProbeEpisode]) -> str:
    """Does each env take its own seed? They have different ones, and their starts depend on them."""
    starts = np.array([episode.obs[0] for episode in episodes])
    if starts.shape[1] > 1 and (starts == starts[:, :1]).all() and len(np.unique(starts[:, 0], axis=0)) > 3:
        text = "with seeds of their own all envs began in the same place, in another one with other seeds"
        bench.fail("same-trajectory", text, shown(starts[0, :3]))
    return "another seed gives another episode"


def _random_without_seeds(bench: Bench, like: ProbeEpisode) -> bool:
    """Do two episodes without a seed differ, though the actions are the same?"""
    found = []
    for _ in range(3):
        rows = [bench.begin()]
        for actions in like.actions[:3]:
            if bench.over():
                break
            rows.append(bench.play(actions))
        found.append(np.concatenate([states.obs for states in rows]))
    return any(len(rows) == len(found[0]) and (rows != found[0]).any() for rows in found[1:])


def one_alone(bench: Bench) -> str:
    """The reset of one env, with a seed, in the middle of the others' episodes: they go on as if nothing were."""
    _seeded(bench)
    bench.needs_right("resets-all", "partial-batch", "mixed-batch", "unasked-env", "not-repeatable")
    spec = bench.peer().spec
    one = need_replayed(bench)
    if spec.num_envs == 1:
        raise Skip("there is one env")
    two = replay(bench, seeds_of(bench), len(one.actions), one, again=0)
    wrong = [env for env, step in enumerate(one.differs(two)) if env and step >= 0]
    if wrong:
        env = wrong[0]
        step = one.differs(two)[wrong[0]]
        text = f"env {env} went elsewhere when env 0 was reset with a seed; so did {len(wrong) - 1} others"
        seen = f"step {step}: {_unlike(one, two, step, env)}, with the reset of env 0"
        bench.fail("not-repeatable", text, seen, env)
    return f"the reset of env 0 left {spec.num_envs - 1} others alone"


def in_a_new_engine(bench: Bench) -> str:
    """Two new processes of the engine play the same episode, and a used one does: nothing is left of those before."""
    need_seeds(bench)
    if bench.options.anew is None:
        raise Skip("only an engine that --engine starts, with {port}, can be started twice")
    seeds = seeds_of(bench)
    steps = int(np.clip(bench.options.patience / 4 / bench.pace, _FEWEST, _MOST))
    with _new_engine(bench) as first:
        one = replay(first, seeds, steps)
    with _new_engine(bench) as second:
        two = replay(second, seeds, steps, one)
        used = two
        for kind in _BETWEEN:
            if two.first_difference(used) is None:
                replay(second, seeds_of(bench, kind), steps)
                used = replay(second, seeds, steps, one)
    found = one.first_difference(two)
    if found is not None:
        env, step = found
        text = f"nor do two new engines play the same: env {env} goes elsewhere from step {step} on"
        return bench.fail("not-repeatable", text, _unlike(one, two, step, env), env)
    found = two.first_difference(used)
    if found is not None:
        env, step = found
        text = f"two new engines play the same {len(one.actions)} steps; behind other episodes env {env} goes elsewhere"
        text += f" from step {step} on"
        bench.shared["remembers"] = True
        return bench.warn("remembers-episodes", text, _unlike(two, used, step, env), env)
    return f"two new engines play the same {len(one.actions)} steps, behind other episodes too"


@contextmanager
def _new_engine(bench: Bench) -> Iterator[Bench]:
    """Sessions with another process of the engine; the mistakes there are not the ones here."""
    assert bench.options.anew is not None
    with bench.options.anew() as (host, port, has_ended):
        access = None
        if isinstance(bench.address, Place):
            access = bench.address.access
        new = Bench(Place(host, port, access), replace(bench.options, has_ended=has_ended), bench.carrier)
        try:
            new.peer()
        except Wrong as wrong:
            raise Skip(f"another engine beside this one does not listen: {wrong.text}") from wrong
        try:
            yield new
        finally:
            new.drop()


def large(bench: Bench) -> str:
    """The smallest and the largest seeds are taken."""
    _seeded(bench)
    bench.needs_right("seed-ignored", "not-repeatable")
    envs = bench.peer().spec.num_envs

    def start(seed: int) -> NDArray[np.float32]:
        with bench.provoking("seed-refused", f"SEED={seed}"):
            return bench.begin(seeds=[seed] * envs).obs

    start(0)
    first = start(_LARGEST)
    other = start(_LARGEST - 1)
    again = start(_LARGEST)
    if (first != again).any():
        return bench.fail("seed-ignored", f"SEED={_LARGEST} does not repeat an episode", shown(first[:1]), 0)
    if not bench.memo.get("random starts"):
        return f"SEED=0 and SEED={_LARGEST}"
    # A game may have few starts: two seeds that begin alike say nothing, many do.
    if (first == other).all() and all((first == start(_LARGEST - less)).all() for less in range(2, _ALIKE)):
        text = f"SEED={_LARGEST - _ALIKE + 1} to SEED={_LARGEST} began in the same place: seeds are cut or rounded"
        bench.warn("seed-ignored", text, shown(first[:1]), 0)
    elif all((first == start(_LARGEST - times * 2**32)).all() for times in range(1, _ALIKE)):
        # As a generator with a seed of 32 bits does; nobody draws seeds that differ there alone.
        return f"SEED=0 and SEED={_LARGEST}; only 32 bits of it count"
    return f"SEED=0 and SEED={_LARGEST}"


def options(bench: Bench) -> str:
    """OPTIONS with nothing in them are taken."""
    spec = bench.peer().spec
    if "OPTIONS" not in spec.features or spec.env_type is EnvType.RLBASE:
        raise Skip("FEATURES has no OPTIONS")
    with bench.provoking("options-refused", "OPTIONS=%7B%7D"):
        bench.begin(options=[{}] * spec.num_envs)
        bench.step()
    return "OPTIONS={} is taken"
