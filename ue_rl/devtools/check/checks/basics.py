"""What everything else needs: the handshake's keys, a reset and steps of all envs, one answer to each request."""

from __future__ import annotations

import numpy as np

from ue_rl.devtools.check.bench import Bench
from ue_rl.devtools.check.checks.spaces import refused
from ue_rl.devtools.check.peer import AnsweredStates, Skip, Wrong
from ue_rl.devtools.check.text_peer import PER_ENV, SHARED, TextPeer
from ue_rl.protocol.spec import EnvType
from ue_rl.protocol.text.handshake import unknown_words
from ue_rl.system.errors import nearest

_FIELDS = ("OBS", "REW", "DONE", "ENV", "AGENT", "TRUNC", "MASK", "INFO")
_STEPS = 20
_QUIET = 0.1  # seconds in which nothing may come
_AFTER = f"within {_QUIET * 1e3:.0f} ms after the answer"


def keys(bench: Bench) -> str:
    """The handshake says what it should say, in words that are known."""
    peer = bench.peer()
    spec = peer.spec
    shown = ""
    if isinstance(peer, TextPeer):
        shown = peer.handshake.decode("ascii", "backslashreplace").strip()
    for sentence in unknown_words(spec):
        bench.warn("unknown-key", sentence, shown)
    if spec.version == 0 and not bench.options.base:
        bench.tolerate("not-version-1", seen=shown)
    elif not isinstance(peer, TextPeer) or spec.groups or spec.env_type is EnvType.RLBASE:
        pass  # there is no wiring to choose
    elif spec.channel is None and spec.version:
        bench.tolerate("channel-not-said", seen=shown)
    return f"{spec.num_envs} envs, {spec.obs_size} numbers of observation, {spec.act_size} of action"


def reset_all(bench: Bench) -> str:
    """Every env answers its first reset, once."""
    _nothing_comes(bench, "before anything was asked")
    try:
        states = bench.reset()
    except Wrong as wrong:
        raise _first_reset(bench, wrong) from wrong
    _separators(bench)
    _nothing_comes(bench, _AFTER)
    return f"all {bench.peer().spec.num_envs} envs answered within {states.seconds * 1e3:.1f} ms"


def _first_reset(bench: Bench, wrong: Wrong) -> Wrong:
    """`wrong`, or what is behind it where the first request of all brought no answer."""
    if wrong.mistake == "ends-session" and bench.peer().spec.num_envs > 1:
        return _refused_env(bench, wrong)
    if wrong.mistake == "no-answer" and bench.carrier == PER_ENV and bench.peer().spec.channel is None:
        return _other_wiring(bench, wrong)
    return wrong


def _refused_env(bench: Bench, wrong: Wrong) -> Wrong:
    """Is there an env that can be asked alone, and one that cannot?"""
    if not bench.peer().partial or bench.peer().spec.groups:
        return wrong
    if bench.carrier == PER_ENV:  # all their sockets come first
        return wrong
    last = bench.peer().spec.num_envs - 1
    first_taken = _takes(bench, 0)
    last_taken = _takes(bench, last)
    if not first_taken and last > 1 and _takes(bench, 1):
        return Wrong("env-off-by-one", "a request for ENV=0 ends the session, and one for ENV=1 does not", wrong.seen)
    if not first_taken or last_taken:
        return wrong
    # the first is taken, the last is not
    low = 0
    high = last
    while high - low > 1:
        middle = (low + high) // 2
        if _takes(bench, middle):
            low = middle
        else:
            high = middle
    text = f"ENV_COUNT={last + 1}, and a request for ENV={high} ends the session; one for ENV={low} does not"
    if wrong.text:  # the engine's own words, where it has said why
        text = f"{wrong.text}; {text}"
    return Wrong("env-refused", text, wrong.seen, high)


def _takes(bench: Bench, env: int) -> bool:
    """Is the reset of this env answered, as the first request of a session?"""
    bench.drop()
    try:
        bench.begin([env])
    except Wrong:
        return False
    finally:
        bench.drop()
    return True


def _other_wiring(bench: Bench, wrong: Wrong) -> Wrong:
    """An engine that does not say its wiring, and answers on no env socket: does it on the first connection?"""
    bench.drop()
    try:
        peer = TextPeer(bench.address, bench.options.timeout, SHARED, True)
    except (Wrong, OSError):
        return wrong
    try:
        peer.reset()
    except Wrong:
        return wrong
    finally:
        peer.close()
    text = "env sockets, which a trainer tries first then, are accepted and never answered; the first connection is"
    return Wrong("channel-not-said", text, wrong.seen)


def steps_of_all(bench: Bench) -> str:
    """Every env answers its steps."""
    taken = []
    for _ in bench.while_there_is_time(bench.options.patience, _STEPS):
        try:
            taken.append(_step(bench).seconds)
        except Wrong as wrong:
            raise refused(bench, wrong) from wrong
    _separators(bench)
    return f"{len(taken)} steps, {np.median(taken) * 1e3:.2f} ms each by the median"


def silence(bench: Bench) -> str:
    """One answer to each request, and nothing between them."""
    peer = bench.peer()
    if not isinstance(peer, TextPeer):
        raise Skip("a second answer shows itself at the next request")
    _step(bench)
    _nothing_comes(bench, _AFTER)
    return f"nothing came within {_QUIET * 1e3:.0f} ms after an answer"


def _step(bench: Bench) -> AnsweredStates:
    """Of all envs; where one is over all begin anew, so that no request names some envs only (that comes later)."""
    if bench.over():
        return bench.reset()
    return bench.step()


def _nothing_comes(bench: Bench, when: str) -> None:
    """Raises: Wrong, where something comes now, which nobody has asked for."""
    peer = bench.peer()
    if isinstance(peer, TextPeer) and (early := peer.stray(_QUIET)):
        raise peer.unexpected(early, when)


def _separators(bench: Bench) -> None:
    peer = bench.peer()
    if isinstance(peer, TextPeer) and peer.joined:
        bench.fail("missing-separator", seen=peer.joined.decode("ascii", "backslashreplace"))
        peer.joined = b""


def fields(bench: Bench) -> str:
    """No row has had a field that nobody knows; asked once episodes have ended, because some fields come only then."""
    for key, line in bench.note_unknown().items():
        if key == "INFO":
            text = "it is not percent-encoded, and breaks with the first semicolon or bar in it"
            bench.tolerate("bad-info", text, line.decode("utf-8", "backslashreplace"))
            continue
        if nearest(key, _FIELDS):
            text = f"{key}; {nearest(key, _FIELDS)}"
        else:
            text = key
        bench.warn("unknown-field", text, line.decode("utf-8", "backslashreplace"))
    return "no row has a field that nobody knows"
