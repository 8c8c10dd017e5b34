"""How requests arrive: in pieces, joined, long, and in every spelling that the grammar allows.

Each check asks for a new episode and a few steps in its own manner (ue_rl/devtools/check/request_styles.py). A key that
was skipped, or an action that was taken for another one, shows itself where the engine repeats an episode; elsewhere
it counts that the engine answers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from ue_rl.devtools.check import spelling
from ue_rl.devtools.check.bench import PER_ENV, Bench
from ue_rl.devtools.check.peer import AnsweredStates, Skip, Wrong
from ue_rl.devtools.check.request_styles import (
    PLAIN,
    RequestStyle,
    asked,
    begin,
    does_right,
    episode,
    first_actions,
    ids_of,
    mapped,
    reference,
    seeds_of,
    understood,
)
from ue_rl.devtools.check.spelling import plain
from ue_rl.devtools.check.text_peer import TextPeer
from ue_rl.protocol.spec import EnvType

_QUIET = 0.05  # seconds in which envs that were not asked are to be silent
_PAIRS = 4  # of episodes with usual and with long lines
_MARGIN = 64  # bytes that a long line stays below the limit
_LONG = (1100, 2300)  # bytes: beyond what engines read at once, 1024 and 2048
# What a game does wrong shows itself in the effect of each request.
_GAME = (
    *("wrong-env-acted", "resets-all", "reset-ignored", "stale-reset", "resets-itself", "one-step-late"),
    *("same-trajectory", "not-repeatable"),
)


# -- what a check needs


def _padded(size: int, text: str) -> Sequence[bytes]:
    return plain(spelling.longer(text, size))


def _line_by_line(text: str) -> Sequence[bytes]:
    return [line.encode() + b"\n" for line in text.split("\n")]


def _rlbase(bench: Bench) -> bool:
    return bench.peer().spec.env_type is EnvType.RLBASE


def _need_whole_reads(bench: Bench) -> None:
    if bench.options.base and bench.text().nul:
        raise Skip("the plugin's SINGLE and RLBASE need a NUL byte behind each read: docs/unreal.md")


def _need_keys(bench: Bench) -> None:
    if _rlbase(bench):
        raise Skip("RLBASE has no keys")


def _need_two(bench: Bench) -> TextPeer:
    if len(ids_of(bench)) < 2:
        raise Skip("there is one env")
    return bench.text()


def _need_shared(bench: Bench) -> None:
    _need_two(bench)
    if bench.carrier == PER_ENV:
        raise Skip("an env's socket carries one request at a time")


def _manner(manner: RequestStyle, what: str, need: Callable[[Bench], object], *right: str) -> Callable[[Bench], str]:
    """A check that asks in one manner.

    Args:
        need: raises Skip where it has no sense. right: mistakes with which it says nothing.
    """

    def check(bench: Bench) -> str:
        need(bench)
        if right:
            bench.needs_right(*right)
        return understood(bench, manner, what)

    return check


# -- the checks

_BACKWARDS = RequestStyle("row-order", backwards=True)
_HALVES = RequestStyle("one-read-one-message", spelling.two_pieces, 1.5)
_BYTES = RequestStyle("one-read-one-message", spelling.byte_by_byte)
_SEVERAL = RequestStyle("one-message-per-read", apart=True)  # each env in a line of its own
# in a write of its own, too, the second before the answer to the first
_OPEN = RequestStyle("one-request-at-a-time", _line_by_line, 0.1, apart=True)
_PARTS = ("partial-batch", "unasked-env", *_GAME)
in_two_pieces = _manner(_HALVES, "requests in two pieces", _need_whole_reads)
byte_by_byte = _manner(_BYTES, "requests byte by byte", _need_whole_reads)
joined = _manner(_SEVERAL, "several lines in one write", _need_shared, *_PARTS)
pipelined = _manner(_OPEN, "resets and steps of one env while another one is open", _need_shared, *_PARTS)
empty_lines = _manner(
    RequestStyle("empty-line-refused", spelling.empty_lines), "empty lines around requests", Bench.text
)
spaces = _manner(RequestStyle("no-spaces", spelling.spaces), "spaces and tabs around fields", _need_keys)
lower_case = _manner(RequestStyle("no-lower-case", spelling.lower_case), "keys in lower case", _need_keys)
unknown_keys = _manner(RequestStyle("unknown-key-refused", spelling.unknown_keys), "unknown fields", _need_keys)
backwards_effect = _manner(_BACKWARDS, "rows in descending order", _need_shared, "row-order", *_GAME)


def long_lines(bench: Bench) -> str:
    """Lines of more bytes than engines read at once."""
    peer = bench.text()
    _need_whole_reads(bench)
    bench.needs_right("numbers-not-read")  # they are long by the digits of their numbers
    most = peer.max_line - _MARGIN
    sizes = sorted({min(size, most) for size in _LONG if min(size, most) > _LONG[0] - _MARGIN})
    if not sizes:
        raise Skip(f"this engine's lines have at most {peer.max_line} bytes")
    came: list[AnsweredStates] = []
    for size in sizes:
        came, same = asked(bench, RequestStyle("short-reads", functools.partial(_padded, size)))
        if not same:
            return ""
    if bench.options.base and len(came) > 1:
        _reads_on_later(bench, sizes[-1])
    return f"lines of {' and '.join(map(str, sizes))} bytes"


def _reads_on_later(bench: Bench, size: int) -> None:
    """The plugin reads 1024 bytes in a tick. So does it take a tick more for a long line, and for each of them?"""
    usual = []
    long = []
    for _ in range(_PAIRS):
        usual.append(min(states.seconds for states in episode(bench, PLAIN)[1:]))
        manner = RequestStyle("short-reads", functools.partial(_padded, size))
        long.append(min(states.seconds for states in episode(bench, manner)[1:]))
    # A busy machine makes some steps longer, of either kind.
    if min(long) > 1.4 * min(usual) + 0.003 and np.median(long) > 1.2 * np.median(usual):
        text = f"a step of {size} bytes took {min(long) * 1e3:.0f} ms instead of {min(usual) * 1e3:.0f}"
        bench.warn("short-reads", text)


def crlf(bench: Bench) -> str:
    """Lines that end as Windows ends them."""
    if bench.options.base and _rlbase(bench):
        raise Skip("the plugin's RLBASE knows the word RESET alone, without a carriage return")
    return understood(
        bench, RequestStyle("no-crlf", spelling.crlf), "lines that end in a carriage return and a line feed"
    )


def numbers(bench: Bench) -> str:
    """Numbers in other spellings."""
    said = ""
    for way, spell in ((way, functools.partial(spelling.numbers_otherwise, way)) for way in spelling.WAYS):
        said = understood(bench, RequestStyle("numbers-not-read", spell), f"numbers as {', '.join(spelling.WAYS)}")
        if "numbers-not-read" in bench.failed:
            return f"not as {way}"
    return said


def backwards(bench: Bench) -> str:
    """The last env's row first: all are answered."""
    _need_shared(bench)
    mapped(bench, "row-order", lambda: episode(bench, _BACKWARDS))
    return "rows in descending order are answered"


def partial(bench: Bench) -> str:
    """Requests that name some envs: nobody else answers."""
    _need_two(bench)
    mapped(bench, "partial-batch", lambda: _in_parts(bench))
    return "some envs, then the others: nobody else answered"


def partial_effect(bench: Bench) -> str:
    """Requests that name some envs: the others stay where they are."""
    _need_two(bench)
    bench.needs_right("partial-batch", *_GAME)

    seen = ""
    what = ""

    def ask() -> bool:
        nonlocal seen, what
        usual = reference(bench)[0]
        for n, (envs, states, exchange) in enumerate(_in_parts(bench)):
            if len(usual) > 1 and not _equal_rows(bench, states, usual[1], envs):
                part = "did something else"
                if n:
                    part = "the others, asked in the next one, had gone on, too"
                seen = exchange
                what = f"in a request for some envs {'these did right, and ' if n else 'these '}{part}"
                return False
        return True

    if not does_right(bench, "partial-batch", ask):
        bench.fail("partial-batch", what, seen)
    return _compared(bench)


def _in_parts(bench: Bench) -> list[tuple[list[int], AnsweredStates, str]]:
    """(the envs, their answers, the exchange) of a step of every other env, then of the rest. One is reset too."""
    peer = bench.text()
    found = []
    halves = ids_of(bench)[1::2], ids_of(bench)[0::2]
    actions = first_actions(bench, begin(bench))
    for envs in halves:
        found.append((envs, peer.step(actions, envs), peer.seen))
        _silent(peer)
    peer.reset(halves[0][-1:])
    _silent(peer)
    bench.forget()
    return found


def mixed(bench: Bench) -> str:
    """Steps and resets in one request: all of them are answered."""
    _need_two(bench)
    bench.needs_right("partial-batch")
    mapped(bench, "mixed-batch", lambda: _together(bench))
    return "a step of some envs and a reset of the others in one request"


def mixed_effect(bench: Bench) -> str:
    """Steps and resets in one request: each env does its own."""
    _need_two(bench)
    bench.needs_right("mixed-batch", "partial-batch", *_GAME)

    def ask() -> bool:
        usual = reference(bench)[0]
        return all(
            _equal_rows(bench, states, usual[0], resets)
            and (len(usual) < 2 or _equal_rows(bench, states, usual[1], steps))
            for steps, resets, states in _together(bench)
        )

    if not does_right(bench, "mixed-batch", ask):
        bench.fail("mixed-batch", "it is answered as if something else had been asked", bench.text().seen)
    return _compared(bench)


def _together(bench: Bench) -> list[tuple[list[int], list[int], AnsweredStates]]:
    """(envs that were stepped, envs that were reset, what they answered), twice, each env once of either."""
    peer = bench.text()
    found = []
    halves = ids_of(bench)[1::2], ids_of(bench)[0::2]
    for steps, resets in (halves, halves[::-1]):
        rows = peer.step_rows(first_actions(bench, begin(bench)), steps)
        rows |= peer.reset_rows(resets, seeds_of(bench, resets))
        found.append((steps, resets, peer.exchange({env: rows[env] for env in ids_of(bench)})))
    bench.forget()
    return found


def _compared(bench: Bench) -> str:
    if reference(bench)[1]:
        return "the same episode as all at once"
    return "its episodes do not repeat, so nothing is seen"


# -- helpers


def _silent(peer: TextPeer) -> None:
    if early := peer.stray(_QUIET):
        raise Wrong("unasked-env", "envs answered that were not asked", f"{peer.seen}\n< {early!r}")


def _equal_rows(bench: Bench, one: AnsweredStates, other: AnsweredStates, envs: Sequence[int]) -> bool:
    per_env = bench.peer().spec.agents_per_env
    rows = [env * per_env + agent for env in envs for agent in range(per_env)]
    return np.array_equal(one.obs[rows], other.obs[rows])
