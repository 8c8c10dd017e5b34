"""How requests arrive: in pieces, joined, long, and in every spelling that the grammar allows.

Each check asks for a new episode and a few steps in its own manner. Where the engine repeats an episode (the same
seeds, where it takes some, and the same actions, asked twice), the episode must be the same in that manner, too: a key
that was skipped, or an action taken for another one, shows itself so. Elsewhere it counts that the engine answers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ue_rl.compliance.bench import PER_ENV, Bench
from ue_rl.compliance.checks import spelling
from ue_rl.compliance.peer import Skip, States, Wrong
from ue_rl.compliance.sampling import Sampler
from ue_rl.compliance.text_peer import Spelling, TextPeer, plain
from ue_rl.spec import EnvType

T = TypeVar("T")
Episode = list[States]

_STEPS = 2
_QUIET = 0.05  # seconds in which envs that were not asked are to be silent
_HASTY = 0.5  # seconds for an answer, once the engine has fallen silent in another manner
_MARGIN = 64  # bytes that a long line stays below the limit
_LONG = (1100, 2300)  # bytes: beyond what engines read at once, 1024 and 2048
# What an engine does that has not understood a request. Anything else is a mistake of its own, and told as such.
_SILENT = ("no-answer", "env-never-answered", "no-newline")
_NOT_UNDERSTOOD = (
    *_SILENT, "ends-session", "unasked-env", "unknown-env", "env-off-by-one", "two-answers", "unasked",
    "malformed-row", "missing-field", "missing-env", "handshake-again", "wrong-socket",
)  # fmt: skip


@dataclass(frozen=True)
class _Manner:
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


_PLAIN = _Manner("no-answer")


# -- the checks


def in_two_pieces(bench: Bench) -> str:
    """A request that arrives in two pieces."""
    return _understood(bench, _Manner("one-read-one-message", spelling.two_pieces, 1.5), "requests in two pieces")


def byte_by_byte(bench: Bench) -> str:
    """A request that arrives one byte at a time."""
    return _understood(bench, _Manner("one-read-one-message", spelling.byte_by_byte), "requests byte by byte")


def joined(bench: Bench) -> str:
    """Each env in a line of its own, all lines in one write."""
    _need_shared(bench)
    return _understood(bench, _Manner("one-message-per-read", apart=True), "several lines in one write")


def pipelined(bench: Bench) -> str:
    """Each env in a line and a write of its own, the second before the answer to the first."""
    _need_shared(bench)
    manner = _Manner("one-request-at-a-time", _line_by_line, 0.1, apart=True)
    return _understood(bench, manner, "resets and steps of one env while another one is open")


def long_lines(bench: Bench) -> str:
    """Lines of more bytes than engines read at once."""
    peer = bench.text()
    if "numbers-not-read" in _failed(bench):
        raise Skip("they are long by the digits of their numbers, which the engine does not read")
    most = peer.max_line - _MARGIN
    sizes = sorted({min(size, most) for size in _LONG if min(size, most) > _LONG[0] - _MARGIN})
    if not sizes:
        raise Skip(f"this engine's lines have at most {peer.max_line} bytes")
    usual, _ = _reference(bench)
    for size in sizes:
        came, same = _asked(bench, _Manner("short-reads", functools.partial(_padded, size)))
        if not same:
            return ""
        if bench.options.base and _slower(came, usual):
            took, before = came[-1].seconds * 1e3, usual[-1].seconds * 1e3
            bench.warn("short-reads", f"a step of {size} bytes took {took:.0f} ms instead of {before:.0f}")
    return f"lines of {' and '.join(map(str, sizes))} bytes"


def crlf(bench: Bench) -> str:
    """Lines that end as Windows ends them."""
    if bench.options.base and _rlbase(bench):
        raise Skip("the plugin's RLBASE knows the word RESET alone, without a carriage return")
    return _understood(bench, _Manner("no-crlf", spelling.crlf), "lines that end in a carriage return and a line feed")


def empty_lines(bench: Bench) -> str:
    """Empty lines around a request."""
    return _understood(bench, _Manner("empty-line-refused", spelling.empty_lines), "empty lines around requests")


def spaces(bench: Bench) -> str:
    """Spaces and tabs around fields."""
    _need_keys(bench)
    return _understood(bench, _Manner("no-spaces", spelling.spaces), "spaces and tabs around fields")


def lower_case(bench: Bench) -> str:
    """Keys in lower case."""
    _need_keys(bench)
    return _understood(bench, _Manner("no-lower-case", spelling.lower_case), "keys in lower case")


def unknown_keys(bench: Bench) -> str:
    """Fields that nobody knows."""
    _need_keys(bench)
    return _understood(bench, _Manner("unknown-key-refused", spelling.unknown_keys), "unknown fields")


def numbers(bench: Bench) -> str:
    """Numbers in other spellings."""
    manner = _Manner("numbers-not-read", spelling.numbers_otherwise)
    return _understood(bench, manner, "numbers as +1, 1e0, 1., .5 and 0.50")


def backwards(bench: Bench) -> str:
    """The last env's row first."""
    _need_shared(bench)
    return _understood(bench, _Manner("row-order", backwards=True), "rows in descending order")


def partial(bench: Bench) -> str:
    """Requests that name some envs."""
    peer = bench.text()
    ids = _ids(bench)
    if len(ids) < 2:
        raise Skip("there is one env")

    def ask() -> None:
        states = bench.reset()
        for envs in (ids[1::2], ids[0::2]):
            states = peer.step(bench.sampler.random(states), envs)
            _silent(peer)
        bench.states = peer.reset(ids[-1:])
        _silent(peer)

    _mapped(bench, "partial-batch", ask)
    return f"{len(ids[1::2])} of {len(ids)} envs, then the others: nobody else answered"


def mixed(bench: Bench) -> str:
    """Steps and resets in one request."""
    peer = bench.text()
    ids = _ids(bench)
    if len(ids) < 2:
        raise Skip("there is one env")

    def ask() -> None:
        states = bench.reset()
        for resets in (ids[1::2], ids[0::2]):
            states = bench.states = peer.step(bench.sampler.random(states), resets=resets)
            if bench.over():
                return

    _mapped(bench, "mixed-batch", ask)
    return "a step of some envs and a reset of the others in one request"


# -- how they ask


def _understood(bench: Bench, manner: _Manner, what: str) -> str:
    _, same = _asked(bench, manner)
    _, repeats = _reference(bench)
    return f"{what}: the same episode" if same and repeats else f"{what}: answered"


def _asked(bench: Bench, manner: _Manner) -> tuple[Episode, bool]:
    """(the episode, it is as it should be, as far as that can be said); what is wrong is in the findings.

    Raises:
        Wrong: the session is over.
    """
    usual, repeats = _reference(bench)
    came = _mapped(bench, manner.mistake, lambda: _episode(bench, manner))
    if not repeats or _equal(came, usual):
        return came, True
    shown = bench.text().seen
    # Once more each, so that an engine whose episodes repeat by chance alone is not blamed.
    plainly = _episode(bench, _PLAIN)
    again = _mapped(bench, manner.mistake, lambda: _episode(bench, manner))
    if not _equal(plainly, usual) or _equal(again, usual):
        bench.memo["episode"] = usual, False
        return came, True
    _failed(bench).add(manner.mistake)
    bench.fail(manner.mistake, "it is answered as if something else had been asked", shown)
    return came, False


def _episode(bench: Bench, manner: _Manner) -> Episode:
    """A reset and some steps of all envs, fewer where an episode ends; always the same actions."""
    peer = bench.text()
    sampler = Sampler(peer.spec, bench.options.seed + 1)
    ids = _ids(bench)[::-1] if manner.backwards else _ids(bench)
    seeds = [bench.options.seed + 2000 + env for env in ids] if "SEED" in peer.spec.features else None
    peer.spell, peer.pause = manner.spell, _pause(bench, manner.pause)
    try:
        bench.states = peer.exchange(_turned(peer.reset_rows(ids, seeds), manner), manner.apart)
        came = [bench.states]
        for _ in range(_STEPS):
            if bench.over() or (bench.states.dones != 0).any():
                break
            rows = _turned(peer.step_rows(sampler.random(bench.states), ids), manner)
            bench.states = peer.exchange(rows, manner.apart)
            came.append(bench.states)
        if manner is not _PLAIN and (early := peer.stray(0.01)):
            raise Wrong("unasked", "something came behind the answer", f"{peer.seen}\n< {early!r}")
        return came
    finally:
        peer.spell, peer.pause = plain, 0.0


def _turned(rows: dict[int, list[str]], manner: _Manner) -> dict[int, list[str]]:
    """An env's rows, those of its agents, stand backwards, too."""
    return {env: texts[::-1] for env, texts in rows.items()} if manner.backwards else rows


def _reference(bench: Bench) -> tuple[Episode, bool]:
    """(the episode as everybody asks for it, a second one was the same)."""
    if "episode" not in bench.memo:
        first, second = _episode(bench, _PLAIN), _episode(bench, _PLAIN)
        bench.memo["episode"] = first, _equal(first, second)
    known: tuple[Episode, bool] = bench.memo["episode"]
    return known


def _mapped(bench: Bench, mistake: str, ask: Callable[[], T]) -> T:
    """What `ask` returns.

    Raises:
        Wrong: of this mistake, where the engine did not understand what it was asked.
    """
    peer = bench.text()
    if bench.memo.get("silent"):
        peer.timeout = min(peer.timeout, _HASTY + 5 * max(states.seconds for states in _reference(bench)[0]))
    try:
        return ask()
    except Wrong as wrong:
        if wrong.mistake not in _NOT_UNDERSTOOD:
            raise
        bench.memo["silent"] = bench.memo.get("silent") or wrong.mistake in _SILENT
        _failed(bench).add(mistake)
        raise Wrong(mistake, wrong.text, wrong.seen or peer.seen, wrong.env_id) from wrong
    finally:
        peer.timeout = bench.options.timeout


def _silent(peer: TextPeer) -> None:
    if early := peer.stray(_QUIET):
        raise Wrong("unasked-env", "envs answered that were not asked", f"{peer.seen}\n< {early!r}")


def _pause(bench: Bench, steps: float) -> float:
    """Seconds between two pieces: longer than a tick, where that is not too long."""
    if not steps or bench.states is None:
        return 0.0
    wires = bench.text().spec.num_envs if bench.carrier == PER_ENV else 1
    return min(max(0.02 * steps / 1.5, steps * bench.states.seconds), 0.1) / wires


def _padded(size: int, text: str) -> Sequence[bytes]:
    return plain(spelling.longer(text, size))


def _line_by_line(text: str) -> Sequence[bytes]:
    return [line.encode() + b"\n" for line in text.split("\n")]


def _equal(one: Episode, other: Episode) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a.obs, b.obs) and np.array_equal(a.dones, b.dones) for a, b in zip(one, other, strict=True)
    )


def _slower(came: Episode, usual: Episode) -> bool:
    """By a tick at least?"""
    return len(came) == len(usual) > 1 and all(
        a.seconds > 1.5 * b.seconds + 0.005 for a, b in zip(came[1:], usual[1:], strict=True)
    )


def _failed(bench: Bench) -> set[str]:
    found: set[str] = bench.memo.setdefault("failed", set())
    return found


def _ids(bench: Bench) -> list[int]:
    return list(range(bench.peer().spec.num_envs))


def _rlbase(bench: Bench) -> bool:
    return bench.peer().spec.env_type is EnvType.RLBASE


def _need_keys(bench: Bench) -> None:
    if _rlbase(bench):
        raise Skip("RLBASE has no keys")


def _need_shared(bench: Bench) -> None:
    bench.text()
    if len(_ids(bench)) < 2:
        raise Skip("there is one env")
    if bench.carrier == PER_ENV:
        raise Skip("an env's socket carries one request at a time")
