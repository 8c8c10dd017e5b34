"""Manners of asking: the same episode in another spelling, or in other pieces, and whether it is the same then.

An episode here is a reset of all envs and two steps with always the same actions. Where the engine repeats it, in the
manner in which everybody asks, it must be the same in every other manner.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ue_rl.devtools.check.bench import PER_ENV, Bench
from ue_rl.devtools.check.peer import SILENT, AnsweredStates, Skip, Wrong
from ue_rl.devtools.check.sampling import Sampler
from ue_rl.devtools.check.spelling import Spelling, plain

T = TypeVar("T")
Episode = list[AnsweredStates]

_STEPS = 2
_MOST_SECONDS = 4.0  # for all checks that ask so; an engine with 20 steps/s needs 3
_MOST_TIMEOUTS = 2  # instead, where one answer may take longer than it does by default
# What an engine does that has not understood a request. Anything else is a mistake of its own, and told as such.
_NOT_UNDERSTOOD = (
    *SILENT, "ends-session", "unknown-env", "env-off-by-one", "two-answers", "unasked",
    "malformed-row", "missing-field", "missing-env", "handshake-again", "wrong-socket",
)  # fmt: skip
_NOISY = ("two-answers", "unasked", "session-leaks")  # then nobody knows what an answer belongs to


@dataclass(frozen=True)
class RequestStyle:
    """How requests are asked.

    Args:
        mistake: of an engine that does not understand it.
        spell: see TextPeer. pause: between the pieces, in steps of the engine; 0: none.
        apart, backwards: each env in a line of its own; the last env first.
    """

    mistake: str
    spell: Spelling = plain
    pause: float = 0.0
    apart: bool = False
    backwards: bool = False


PLAIN = RequestStyle("no-answer")


@dataclass
class _Memory:
    """What the checks here leave for each other.

    Args:
        usual: the episode as everybody asks for it; empty: not asked yet. repeats: a second one was the same.
        pace: seconds of a step. spent: seconds of all checks.
        broke_off: the session before this one did.
    """

    usual: Episode = field(default_factory=list)
    repeats: bool = False
    pace: float = 0.0
    spent: float = 0.0
    broke_off: bool = False


def understood(bench: Bench, manner: RequestStyle, what: str) -> str:
    """A whole check: what its PASS says."""
    _, same = asked(bench, manner)
    _, repeats = reference(bench)
    if same and repeats:
        return f"{what}: the same episode"
    return f"{what}: answered"


def asked(bench: Bench, manner: RequestStyle) -> tuple[Episode, bool]:
    """(the episode, it is as it should be, as far as that can be said); what is wrong is in the findings.

    Raises:
        Wrong: the session is over.
    """
    came: list[Episode] = []
    _has_sense(bench)
    usual, _ = reference(bench)

    def ask() -> bool:
        came.append(episode(bench, manner))
        return _equal(came[-1], usual)

    right = does_right(bench, manner.mistake, ask)
    if not right:
        bench.fail(manner.mistake, "it is answered as if something else had been asked", bench.text().seen)
    return came[-1], right


def does_right(bench: Bench, mistake: str, ask: Callable[[], bool]) -> bool:
    """Did the engine do what it was asked? Where its episodes do not repeat, True.

    Args:
        ask: asks, and compares.

    Raises:
        Wrong: of this mistake, where the engine did not understand what it was asked.
    """
    _has_sense(bench)
    usual, repeats = reference(bench)
    if mapped(bench, mistake, ask) or not repeats:
        return True
    # Once more each, so that an engine whose episodes repeat by chance alone is not blamed.
    plainly = episode(bench, PLAIN)
    if _equal(plainly, usual) and not mapped(bench, mistake, ask):
        return False
    _memory(bench).repeats = False
    return True


def _has_sense(bench: Bench) -> None:
    """Raises: Skip."""
    bench.needs_right(*_NOISY)
    if _memory(bench).spent > max(_MOST_SECONDS, _MOST_TIMEOUTS * bench.options.timeout):
        raise Skip("the engine is too slow for it")


def begin(bench: Bench) -> AnsweredStates:
    """New episodes of all envs, as `episode` begins them."""
    return bench.text().reset(seeds=seeds_of(bench, ids_of(bench)))


def seeds_of(bench: Bench, envs: Sequence[int]) -> list[int | None] | None:
    """Of the episode; None where the engine takes none."""
    if "SEED" not in bench.peer().spec.features:
        return None
    return [bench.options.seed + 2000 + env for env in envs]


def first_actions(bench: Bench, states: AnsweredStates) -> NDArray[np.float32]:
    """Those of an episode's first step."""
    return _halves(Sampler(bench.peer().spec, bench.options.seed + 1), states)


def _halves(sampler: Sampler, states: AnsweredStates) -> NDArray[np.float32]:
    """Random ones, rounded to 0.5, 1, 1.5, .. inside the space where it allows: they can be spelt in most ways."""
    numbers = sampler.random(states)
    low = sampler.low
    high = sampler.high
    near = np.where(np.abs(numbers) < 0.25, np.copysign(0.5, numbers), np.round(numbers * 2) / 2)
    inside = np.where((low < 0) & (high > 0), 0, low + 0.25)  # bounds have a check of their own
    near = np.where(near == high, high - 0.25, np.where(near == low, inside, near))
    return np.where(~sampler.whole & (low <= near) & (near <= high), near, numbers).astype(np.float32)


def episode(bench: Bench, manner: RequestStyle) -> Episode:
    """A reset and some steps of all envs, fewer where an episode ends; always the same actions."""
    peer = bench.text()
    sampler = Sampler(peer.spec, bench.options.seed + 1)
    if manner.backwards:
        ids = ids_of(bench)[::-1]
    else:
        ids = ids_of(bench)
    peer.spell, peer.pause = manner.spell, _pause(bench, manner.pause)
    try:
        states = peer.exchange(_turned(peer.reset_rows(ids, seeds_of(bench, ids)), manner), manner.apart)
        states.dones[:] = 0  # in the answer to a reset it means nothing
        came = [states]
        while len(came) <= _STEPS and not states.dones.any():
            states = peer.exchange(_turned(peer.step_rows(_halves(sampler, states), ids), manner), manner.apart)
            came.append(states)
        if manner is not PLAIN and (early := peer.stray(0.01)):
            raise Wrong("unasked", "something came behind the answer", f"{peer.seen}\n< {early!r}")
        _memory(bench).pace = states.seconds
        bench.forget()
        return came
    finally:
        peer.spell = plain
        peer.pause = 0.0


def _turned(rows: dict[int, list[str]], manner: RequestStyle) -> dict[int, list[str]]:
    """An env's rows, those of its agents, stand backwards, too."""
    if manner.backwards:
        return {env: texts[::-1] for env, texts in rows.items()}
    return rows


def reference(bench: Bench) -> tuple[Episode, bool]:
    """(the episode as everybody asks for it, a second one was the same).

    Raises:
        Wrong: session-leaks, where a session that follows one that broke off cannot be used.
    """
    memory = _memory(bench)
    if memory.broke_off:
        memory.broke_off = False
        try:
            episode(bench, PLAIN)
        except Wrong as wrong:
            if wrong.mistake in bench.failed:
                raise
            raise Wrong("session-leaks", f"the session after one that broke off: {wrong.text}", wrong.seen) from wrong
    if not memory.usual:
        memory.usual = episode(bench, PLAIN)
        again = _equal(memory.usual, episode(bench, PLAIN))
        memory.repeats = again and "REALTIME" not in bench.peer().spec.features  # there it was chance
    return memory.usual, memory.repeats


def _memory(bench: Bench) -> _Memory:
    memory: _Memory = bench.memo.setdefault("delivery", _Memory())
    return memory


def mapped(bench: Bench, mistake: str, ask: Callable[[], T]) -> T:
    """What `ask` returns; raises Wrong: of this mistake, where the engine did not understand what it was asked."""
    peer = bench.text()
    memory = _memory(bench)
    began = time.perf_counter()
    try:
        return ask()
    except Wrong as wrong:
        memory.broke_off = True
        if wrong.mistake not in _NOT_UNDERSTOOD:
            raise
        bench.fell_silent = bench.fell_silent or wrong.mistake in SILENT
        evidence = wrong.seen
        if not evidence:
            evidence = peer.seen
        raise Wrong(mistake, wrong.text, evidence, wrong.env_id) from wrong
    finally:
        memory.spent += time.perf_counter() - began


def _pause(bench: Bench, steps: float) -> float:
    """Seconds between two pieces: longer than a tick, where that is not too long."""
    wires = 1
    if bench.carrier == PER_ENV:
        wires = bench.text().spec.num_envs
    return min(max(0.013, _memory(bench).pace) * steps, 0.1) / wires


def _equal(one: Episode, other: Episode) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a.obs, b.obs) and np.array_equal(a.dones, b.dones) for a, b in zip(one, other, strict=True)
    )


def ids_of(bench: Bench) -> list[int]:
    """Of all envs."""
    return list(range(bench.peer().spec.num_envs))
