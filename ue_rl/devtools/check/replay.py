"""Episodes that are played again: the same seeds and actions, or with something changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ue_rl.devtools.check.bench import Bench
from ue_rl.devtools.check.peer import AnsweredStates, Skip
from ue_rl.protocol.spec import EnvType

_MOST = 64  # steps
Change = Callable[[int, NDArray[np.float32]], NDArray[np.float32]]


@dataclass(frozen=True)
class ProbeEpisode:
    """One episode of each env, from a reset with seeds; T steps, fewer where all ended sooner.

    Args:
        obs: float32 [T + 1, N, D], first the answers to the reset. rewards: float32 [T + 1, N]. over: bool [T + 1, N].
        there: bool [T + 1, N], the env had not ended before.
        actions: float32 [T, num_rows, act_size], as they were sent.
    """

    obs: NDArray[np.float32]
    rewards: NDArray[np.float32]
    over: NDArray[np.bool_]
    there: NDArray[np.bool_]
    actions: NDArray[np.float32]

    def differs(self, other: ProbeEpisode) -> list[int]:
        """For each env the first step, 0 for the reset, in which the two are not equal to the bit; -1 for none."""
        most = min(len(self.obs), len(other.obs))
        said = []
        for env in range(self.obs.shape[1]):
            both = self.there[:most, env] & other.there[:most, env]
            unlike = (self.obs[:most, env] != other.obs[:most, env]).any(axis=1)
            unlike |= self.over[:most, env] != other.over[:most, env]
            unlike[1:] |= self.rewards[1:most, env] != other.rewards[1:most, env]
            found = np.flatnonzero(unlike & both)
            if len(found):
                place = int(found[0])
            else:
                place = -1
            said.append(place)
        return said

    def first_difference(self, other: ProbeEpisode) -> tuple[int, int] | None:
        """(env, step) of the first env of which `differs` says one; None: of none."""
        return next(((env, step) for env, step in enumerate(self.differs(other)) if step >= 0), None)

    def first(self, steps: int) -> ProbeEpisode:
        """The same, no longer than this."""
        most = steps + 1
        return ProbeEpisode(
            self.obs[:most], self.rewards[:most], self.over[:most], self.there[:most], self.actions[:steps]
        )

    def until_an_end(self) -> ProbeEpisode:
        """The same, until the first env ends: as long as all of them are asked."""
        ended = np.flatnonzero(self.over.any(axis=1))
        if len(ended):
            end = int(ended[0])
        else:
            end = len(self.actions)
        return self.first(end)

    def distance(self, other: ProbeEpisode) -> float:
        """The greatest difference between two numbers of observations, as a share of the greatest number."""
        most = min(len(self.obs), len(other.obs))
        both = (self.there[:most] & other.there[:most])[:, :, None]
        one, two = (np.where(both, x.obs[:most], 0).astype(np.float64) for x in (self, other))
        return float(np.abs(one - two).max(initial=0.0) / max(np.abs(one).max(initial=0.0), 1e-9))


def takes_seeds(bench: Bench) -> bool:
    """RLBASE has no field for a seed, whatever FEATURES say. In real time a seed does not decide an episode."""
    spec = bench.peer().spec
    return "SEED" in spec.features and "REALTIME" not in spec.features and spec.env_type is not EnvType.RLBASE


def need_seeds(bench: Bench) -> None:
    """Raises Skip where a seed does not decide an episode."""
    if not takes_seeds(bench):
        real_time = "REALTIME" in bench.peer().spec.features
        why = "FEATURES has no SEED"
        if real_time:
            why = "in real time no seed decides an episode"
        raise Skip(why)


def replayed(bench: Bench) -> ProbeEpisode | None:
    """The episode that came twice the same with the same seeds and actions; None: none did, or not each time."""
    known = bench.memo.get("replayed")
    if bench.shared.get("remembers"):  # that it came so was chance, and the next difference has no other cause
        return None
    if isinstance(known, ProbeEpisode) and "not-repeatable" not in bench.failed:
        return known
    return None


def need_replayed(bench: Bench) -> ProbeEpisode:
    """The same; raises Skip where there is none."""
    known = replayed(bench)
    if known is None:
        raise Skip("episodes do not repeat")
    return known


def affordable(bench: Bench) -> int:
    """How many steps an episode has that is played again and again."""
    return int(np.clip(bench.options.patience / 15 / bench.pace, 8, _MOST))


def seeds_of(bench: Bench, kind: int = 0) -> list[int]:
    """One for each env; other ones for another `kind`."""
    return [bench.options.seed + 1000 + 7919 * kind + 31 * env for env in range(bench.peer().spec.num_envs)]


def replay(
    bench: Bench,
    seeds: Sequence[int],
    steps: int,
    like: ProbeEpisode | None = None,
    *,
    change: Change | None = None,
    order: Sequence[int] | None = None,
    again: int | None = None,
) -> ProbeEpisode:
    """Plays an episode of each env.

    Args:
        seeds: of the envs. steps: at most.
        like: an episode whose actions are sent again; None: random ones.
        change: (step, actions) -> other actions.
        order: of the envs in each request; None: the usual one.
        again: an env that is reset in the middle, with its seed; before any env's episode is over.
    """
    spec = bench.peer().spec
    bench.tape.cut()
    if order is None:
        ids = list(range(spec.num_envs))
    else:
        ids = list(order)
    rows = None
    if order is not None:
        rows = ids
    kept = [bench.begin(rows, [seeds[env] for env in ids])]
    over = [np.zeros(spec.num_envs, np.bool_)]
    there = [np.ones(spec.num_envs, np.bool_)]
    actions = []
    if like is None:
        count = steps
    else:
        count = min(steps, len(like.actions))
    for t in range(count):
        ended = bench.over()
        if again is not None and t == _middle(like):
            bench.begin([again], [seeds[again]])
            ended = bench.over()
        if not (there[-1] & ~over[-1]).any() or len(ended) == spec.num_envs:
            break
        if like is None:
            chosen = bench.sampler.random(kept[-1])
        else:
            chosen = like.actions[t]
        if change is not None:
            chosen = change(t, chosen.copy())
        there.append(there[-1] & ~over[-1])
        rest = None
        if order is not None:
            rest = [env for env in ids if env not in ended]
        kept.append(bench.play(chosen, rest, ended))
        actions.append(chosen)
        flags = np.zeros(spec.num_envs, np.bool_)
        flags[bench.over()] = True
        over.append(flags)
    return ProbeEpisode(
        np.array([_rows(states, spec.num_envs) for states in kept]),
        np.array([states.rewards.reshape(spec.num_envs, -1).sum(axis=1) for states in kept]),
        np.array(over),
        np.array(there),
        np.array(actions, np.float32).reshape(-1, spec.num_rows, spec.act_size),
    )


def _middle(like: ProbeEpisode | None) -> int:
    if like is None:
        return 0
    return int(like.there.sum(axis=0).min() - 1) // 2


def _rows(states: AnsweredStates, envs: int) -> NDArray[np.float32]:
    return np.where(states.present[:, None] != 0, states.obs, 0).reshape(envs, -1)
