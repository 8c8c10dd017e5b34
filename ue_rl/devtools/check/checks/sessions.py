"""The end of a session, and the next one: trainers that leave, that break off, that send garbage, and a second one.

These run last: an engine that serves one session alone ends here.
"""

from __future__ import annotations

import random
from contextlib import suppress

from ue_rl.devtools.check.bench import PER_ENV, Bench
from ue_rl.devtools.check.diagnosing import of_stray
from ue_rl.devtools.check.garbage import mutate
from ue_rl.devtools.check.peer import Skip, Wrong
from ue_rl.devtools.check.text_peer import TextPeer
from ue_rl.devtools.check.wire import Ended, NoLine, Wire, greet
from ue_rl.protocol.spec import EnvType
from ue_rl.protocol.text.notices import notice_of

_QUIET = 0.02  # seconds in which nothing may come before the first request
_BUSY_WITHIN = 0.3  # seconds; of an engine that announces ERROR, and so BUSY, as long as for an answer
_TURN = 1.0  # seconds within which a trainer that waits should get its turn
_HEARD = 0.01  # seconds that an engine gets for each piece of garbage
_GARBAGE_SECONDS = 1.0
_MUTATED = 40
_ENDLESS = 1 << 20  # bytes; engines with longer lines are not sent an endless one


def next_trainer(bench: Bench) -> str:
    """The session ends in good order, and the next trainer comes."""
    bench.peer()
    bench.drop()
    _serve(bench, "serves-once", "a trainer that left")
    return "the next trainer got a handshake and its own answers"


def breaks_off(bench: Bench) -> str:
    """Trainers that leave in the middle of something, in good order or as a process that was killed."""
    _one_play(bench)
    spec = bench.text().spec
    for what in ("half a request", "an open request"):
        for reset, how in ((False, "closed"), (True, "was reset")):
            peer = bench.text()
            if what == "half a request":
                peer.send_raw(b"ACT=")
            else:
                peer.ask(peer.reset_rows(range(spec.num_envs)))
            for wire in peer.wires:
                wire.close(reset)
            bench.drop()
            _serve(bench, "dies-of-disconnect", f"{what}, and the connection {how}", peer.seen)
    if bench.carrier == PER_ENV and spec.num_envs > 1:
        bench.drop()
        wires = [_dial(bench) for _ in range(1 + spec.num_envs // 2)]
        for wire in wires:
            wire.close()
        _serve(bench, "dies-of-disconnect", f"a trainer with {len(wires) - 1} of {spec.num_envs} env sockets")
    return "after half a request and an open one, closed and reset, the next trainer was served"


def probes(bench: Bench) -> str:
    """Connections that say nothing, as a port probe makes them."""
    _one_play(bench)
    for reset in (False, True):
        bench.text()
        bench.drop()
        _dial(bench).close(reset)
        _serve(bench, "dies-of-disconnect", "a connection that said nothing and closed")
    return "after connections that said nothing the next trainer was served"


def second_trainer(bench: Bench) -> str:
    """A trainer that comes while another one is served must not get a game of its own (WARN; FAIL where strict)."""
    _one_play(bench)
    peer = bench.text()
    bench.reset()
    wire = _dial(bench)
    try:
        if "ERROR" in peer.spec.features:
            within = bench.options.timeout
        else:
            within = _BUSY_WITHIN
        said = _first_line(wire, within)
        with bench.provoking("disturbed-session"):
            bench.step()
        line = said or b""
        notice = notice_of(line)
        if said is not None and said[:7].upper() == b"CONFIG:":
            return bench.tolerate("two-at-once", seen=said.decode("ascii", "backslashreplace"))
        if notice is None or notice[0] != "BUSY":
            if "ERROR" in peer.spec.features:
                bench.warn("no-busy", f"nothing came within {within * 1e3:.0f} ms")
            return f"it {'is sent away' if _has_ended(wire) else 'waits'}, and the session goes on"
        bench.drop()
        with suppress(Wrong):
            greet(wire, _TURN, False)
            return "it is told BUSY, the session goes on, and then it gets the handshake"
        return "it is told BUSY, and the session goes on"
    finally:
        wire.close()


def garbage(bench: Bench) -> str:
    """Trainers that send what no engine can read."""
    _one_play(bench)
    lines = _garbage(bench)
    sent = 0
    for n in bench.while_there_is_time(_GARBAGE_SECONDS, len(lines)):
        if n == 0:
            peer = bench.text()
        else:
            peer = _open_after(bench, lines[n - 1])
        with suppress(Wrong, NoLine):
            peer.send_raw(lines[n])
            place = 0
            if bench.carrier == PER_ENV:
                place = -1
            peer.wires[place].line(_HEARD)
        bench.drop()
        sent += 1
    _serve(bench, "dies-of-garbage", "garbage", _shown(lines[sent - 1]))
    return f"after {sent} trainers that sent garbage the next one was served"


# -- the next one


def _serve(bench: Bench, mistake: str, after: str, shown: str = "") -> None:
    """A session, a reset and a step in it.

    Raises:
        Wrong: of this mistake where there is no session, session-leaks where it is not a fresh one.
    """
    try:
        peer = bench.peer()
    except Wrong as wrong:
        evidence = shown
        if not evidence:
            evidence = wrong.seen
        raise Wrong(mistake, f"after {after}: {wrong.text or wrong.mistake}", evidence) from wrong
    try:
        if early := peer.stray(_QUIET):
            name, text = of_stray(early)
            raise Wrong(name, f"before the first request {text}", early)
        bench.reset()
        bench.step()
    except Wrong as wrong:
        if wrong.mistake in bench.failed:  # it comes whoever was there before
            raise
        raise Wrong("session-leaks", f"after {after}: {wrong.text or wrong.mistake}", wrong.seen or shown) from wrong


def _open_after(bench: Bench, line: bytes) -> TextPeer:
    try:
        return bench.text()
    except Wrong as wrong:
        problem = wrong.text
        if not problem:
            problem = wrong.mistake
        raise Wrong("dies-of-garbage", problem, f"> {_shown(line)}") from wrong


def _dial(bench: Bench) -> Wire:
    try:
        return Wire(bench.address, bench.options.timeout)
    except OSError as error:
        raise Wrong("serves-once", f"connecting failed: {error}") from error


def _first_line(wire: Wire, within: float) -> bytes | None:
    try:
        return wire.line(within).data.lstrip()
    except NoLine:
        return None


def _has_ended(wire: Wire) -> bool:
    try:
        wire.quiet(0.0)
    except Ended:
        return True
    return False


def _one_play(bench: Bench) -> None:
    """Skips what needs a second session of the deployed plugin."""
    if bench.options.base:
        raise Skip("the plugin serves one session in each Play")
    bench.text()


# -- garbage


def _garbage(bench: Bench) -> list[bytes]:
    """Requests with one thing wrong, other protocols, an endless line, and changed requests; the same for a seed."""
    peer = bench.text()
    envs = bench.peer().spec.num_envs
    states = bench.reset()
    (row,) = peer.step_rows(bench.sampler.random(states), [0])[0][:1]
    reset = peer.reset_rows([0])[0][0]
    rlbase = peer.spec.env_type is EnvType.RLBASE
    if rlbase:
        action = row
    else:
        action = row.split(";")[0].removeprefix("ACT=")
    wrong = [f"{action},1", "nan", "1e999", "0x10", "yes", "", action[:-1] + "-"]
    if rlbase:
        texts = wrong
    else:
        texts = [f"ACT={text};ENV=0" for text in wrong]
        texts += [f"ACT=RESET;ENV={env}" for env in (envs, -1, "99999999999999999999", "0;ENV=0", "", "x")]
        texts += [row.removeprefix("ACT="), f"{row}||{row}", f"{row}||", f"{reset};SEED=-1", f"{reset};AGENT=99", "="]
    lines = [text.encode() + b"\n" for text in texts]
    lines += [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\n",
        b"\0" * 64 + b"\n",
        row.encode() + b"\xff\xfe\n",
        b"\xc3\x28\r\r\n",
        b"||" * 500 + b"\n",
    ]
    if peer.max_line <= _ENDLESS:
        lines.append(b"A" * (peer.max_line + 4096))
    rng = random.Random(bench.options.seed)
    good = [row.encode(), reset.encode()]
    lines += [mutate(rng, rng.choice(good), good)[: peer.max_line] + b"\n" for _ in range(_MUTATED)]
    return lines


def _shown(line: bytes) -> str:
    return repr(line[:200])
