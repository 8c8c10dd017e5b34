"""How long steps take, and what delays them.

Nagle's algorithm holds a second small write back until the first one is acknowledged, and a peer that acknowledges
late (by 40 ms on Linux) makes that visible: pieces of one answer come 40 ms apart. A game with a tick of 25 Hz may do
the same on purpose. So the answers are looked at twice: with late acknowledgements and with immediate ones. Only a
delay that goes away with them is Nagle's.
"""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np

from ue_rl.devtools.check.bench import PER_ENV, Bench
from ue_rl.devtools.check.peer import Skip
from ue_rl.devtools.check.text_peer import TextPeer
from ue_rl.devtools.check.wire import QUICKACK
from ue_rl.protocol.spec import EnvType

_SECONDS = 0.4
_STEPS = 300
_LOOKS = 8  # steps that are looked at for delays
_HELD = (0.030, 0.210)  # seconds by which a late acknowledgement delays: 40 ms on Linux, 200 ms elsewhere
_SLOW = 0.1  # seconds
_TICKS_OF_RLBASE = 3  # that its dialect takes for a step: one to read it, one for the action, one to answer
_ROUNDS = 3  # of looking, before a delay is more than the work of other programs
# steps; times, and milliseconds, that a step takes longer than it did
_FEW = 3
_GROWN = 4
_GROWN_MS = 20
_TICKED = 0.003  # seconds; a step that takes less waits for no tick
_RATES = (10, 15, 20, 24, 25, 30, 40, 50, 60, 72, 75, 90, 100, 120, 144, 165, 200, 240)


def speed(bench: Bench) -> str:
    """Steps of all envs, one after the other: how long each takes, as this checker sees it (it is no fast trainer)."""
    ticks = 1
    if bench.peer().spec.env_type is EnvType.RLBASE:
        ticks = _TICKS_OF_RLBASE
    bench.step()
    _acknowledge(bench, late=True)  # as it is where trainers wait for whole answers
    taken: list[float] = []
    steps = 0.0  # in a second
    slow = True
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        taken = _seconds(bench, _SECONDS, _STEPS)
        steps = len(taken) / (time.perf_counter() - began)
        # What is slow makes every step long, and another program some.
        slow = float(np.median(taken)) > _SLOW * ticks and min(taken) > _SLOW * ticks / 2
        if not slow:
            break
    _acknowledge(bench, late=False)
    p50, p99 = np.percentile(taken, (50, 99)).tolist()
    envs = bench.peer().spec.num_envs
    bench.speed |= {
        "p50_ms": round(p50 * 1e3, 3),
        "p99_ms": round(p99 * 1e3, 3),
        "steps_per_s": round(steps, 1),
        "env_steps_per_s": round(steps * envs, 1),
    }
    said = f"p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms, {steps:.0f} steps/s, {steps * envs:.0f} env-steps/s"
    if ticks == 1 and (rate := ticks_of(taken)):
        said += f"; evenly, as of a tick of {rate:g} a second"
        bench.speed["ticks_per_s"] = rate
    if slow:
        bench.warn("slow", said)
    return said


def slower(bench: Bench) -> str:
    """After all that was asked steps take no longer than at first."""
    if bench.failed or "p50_ms" not in bench.speed:
        raise Skip("what failed above comes first")
    bench.anew()
    first = bench.speed["p50_ms"]
    now = 0.0
    for _ in range(_ROUNDS):
        taken = [1e3 * seconds for seconds in _seconds(bench, _SECONDS / 2, 2 * _LOOKS)]
        now = float(np.median(taken))
        # What grows makes every step longer, and another program some.
        if min(taken) <= _GROWN * first + _GROWN_MS:
            return f"{now:.2f} ms by the median"
    return bench.warn("slow", f"a step took {first:.1f} ms at first and takes {now:.1f} ms now: what grows?")


def _seconds(bench: Bench, within: float, most: int) -> list[float]:
    """How long each of some steps takes: of a few, even where they take longer than `within`."""
    began = time.perf_counter()
    taken: list[float] = []
    while len(taken) < _FEW or (len(taken) < most and time.perf_counter() < began + within):
        taken.append(bench.step().seconds)
    return taken


def delays(bench: Bench) -> str:
    """Is a part of an answer held back until the part before it is acknowledged?"""
    peer = bench.text()
    late = 0.0
    at_once = 0.0
    for _ in range(_ROUNDS):
        late = _gaps(bench, peer, acknowledge_late=True)
        if not _HELD[0] < late < _HELD[1]:
            if late:
                return f"pieces of an answer come {late * 1e3:.2f} ms apart"
            return "each answer came at once"
        if QUICKACK is None:
            raise Skip(f"pieces of an answer come {late * 1e3:.0f} ms apart; why cannot be seen on this system")
        at_once = _gaps(bench, peer, acknowledge_late=False)
        if at_once > late / 2:
            text = f"pieces of an answer come {late * 1e3:.0f} ms apart, acknowledged or not"
            return f"{text}: that is the game's own time"
    text = f"pieces of one answer come {late * 1e3:.0f} ms apart, and {at_once * 1e3:.1f} ms when they are acknowledged"
    return bench.warn("nagle", f"{text} at once", peer.seen)


def _gaps(bench: Bench, peer: TextPeer, acknowledge_late: bool) -> float:
    """Seconds between two pieces of one answer: the longest of each step, the median of the steps."""
    _acknowledge(bench, acknowledge_late)
    found = []
    for _ in range(_LOOKS):
        bench.step()
        lines = peer.arrivals
        gaps = [line.ended - line.began for line in lines]
        if bench.carrier != PER_ENV:  # there each line has a socket of its own
            gaps += [b.began - a.ended for a, b in pairwise(lines)]
        found.append(max(gaps))
    _acknowledge(bench, late=False)
    return float(np.median(found))


def _acknowledge(bench: Bench, late: bool) -> None:
    peer = bench.peer()
    wires = []
    if isinstance(peer, TextPeer):
        wires = peer.wires
    for wire in wires:
        wire.acknowledges_late = late


def ticks_of(taken: list[float]) -> float:
    """Ticks per second that steps of such lengths suggest; 0.0: none do."""
    low, p50, high = np.percentile(taken, (10, 50, 90))
    if p50 < _TICKED or high > 1.3 * low:
        return 0.0
    rate = 1 / float(p50)
    near = min(_RATES, key=lambda each: abs(each - rate))
    if abs(near - rate) < 0.06 * near:
        return float(near)
    return round(rate, 1)
