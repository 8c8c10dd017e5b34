"""What everything else needs: the handshake's keys, a reset and steps of all envs, one answer to each request."""

from __future__ import annotations

import numpy as np

from ue_rl.compliance.bench import Bench
from ue_rl.compliance.checks.spaces import refused
from ue_rl.compliance.peer import Skip, States, Wrong
from ue_rl.compliance.text_peer import TextPeer
from ue_rl.errors import nearest
from ue_rl.spec import EnvType
from ue_rl.wire.handshake import unknown_words

_FIELDS = ("OBS", "REW", "DONE", "ENV", "AGENT", "TRUNC", "MASK", "INFO")
_STEPS = 20
_QUIET = 0.1  # seconds in which nothing may come


def keys(bench: Bench) -> str:
    """The handshake says what it should say, in words that are known."""
    peer = bench.text()
    spec = peer.spec
    shown = peer.handshake.decode("ascii", "backslashreplace").strip()
    for sentence in unknown_words(spec):
        bench.warn("unknown-key", sentence, shown)
    judge = bench.fail if bench.options.strict else bench.warn
    if spec.version == 0 and not bench.options.base:
        judge("not-version-1", seen=shown)
    elif spec.channel is None and spec.version and not spec.groups and spec.env_type is not EnvType.RLBASE:
        judge("channel-not-said", seen=shown)
    return f"{spec.num_envs} envs, {spec.obs_size} numbers of observation, {spec.act_size} of action"


def reset_all(bench: Bench) -> str:
    """Every env answers its first reset, once."""
    peer = bench.peer()
    if isinstance(peer, TextPeer) and (early := peer.stray(_QUIET)):
        raise Wrong("unasked", "before anything was asked", early)
    states = bench.reset()
    _separators(bench)
    _nothing_more(bench)
    return f"all {peer.spec.num_envs} envs answered within {states.seconds * 1e3:.1f} ms"


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
    _nothing_more(bench)
    return f"nothing came within {_QUIET * 1e3:.0f} ms after an answer"


def _step(bench: Bench) -> States:
    """Of all envs; where one is over all begin anew, so that no request names some envs only (that comes later)."""
    return bench.reset() if bench.over() else bench.step()


def _nothing_more(bench: Bench) -> None:
    """Raises: Wrong, where something comes behind the last answer."""
    peer = bench.peer()
    if isinstance(peer, TextPeer) and (early := peer.stray(_QUIET)):
        name = "two-answers" if early.split(b"\n")[0].strip() in [line.data for line in peer.arrivals] else "unasked"
        shown = f"{peer.seen}\n< {early.decode('utf-8', 'backslashreplace')}"
        raise Wrong(name, f"within {_QUIET * 1e3:.0f} ms after the answer something else came", shown)


def _separators(bench: Bench) -> None:
    peer = bench.peer()
    if isinstance(peer, TextPeer) and peer.joined:
        judge = bench.warn if bench.options.base else bench.fail
        judge("missing-separator", seen=peer.joined.decode("ascii", "backslashreplace"))
        peer.joined = b""


def fields(bench: Bench) -> str:
    """No row has had a field that nobody knows; asked once episodes have ended, because some fields come only then."""
    for key, line in bench.note_unknown().items():
        text = f"{key}; {nearest(key, _FIELDS)}" if nearest(key, _FIELDS) else key
        bench.warn("unknown-field", text, line.decode("utf-8", "backslashreplace"))
    return "no row has a field that nobody knows"
