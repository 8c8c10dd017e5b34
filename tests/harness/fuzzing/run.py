"""Feeds targets, and checks what a peer must never be able to do: stop the reader, or make it grow."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import random
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.harness.fuzzing.targets import Target

SLOW = 0.05  # seconds of processor time that no message may cost
HANG = 60.0  # seconds until a process that is stuck in a message is ended, with its traceback
_TURNS, _BLOCK = 20, 50


@dataclass
class Outcome:
    """What came of it.

    Attributes:
        messages: by target. slowest: (seconds of processor time, target, message) of the slowest message.
        faults: what was found, in sentences; empty where all is well.
        grown: bytes by which the process has grown between the first fifth and the end.
    """

    messages: dict[str, int] = field(default_factory=dict)
    slowest: tuple[float, str, bytes] = (0.0, "", b"")
    faults: list[str] = field(default_factory=list)
    grown: int = 0


def run(
    targets: Mapping[str, Target], messages: int, seed: int, *, most_faults: int = 20, block: int = _BLOCK
) -> Outcome:
    """Feeds `messages` messages, split evenly, `block` in a row; the same seed gives the same ones."""
    gc.collect()
    # What is there already is not what a message costs. It stays so: to look at it again would slow what follows.
    gc.freeze()
    outcome, rng, began_with = Outcome(), random.Random(seed), 0
    blocks = max(1, messages // (_TURNS * block * len(targets)))
    for turn in range(_TURNS):
        for name, target in targets.items():
            faulthandler.dump_traceback_later(HANG + blocks * 0.1, exit=True, file=sys.__stderr__ or sys.stderr)
            for _ in range(blocks):
                _feed_block(outcome, name, target, rng, block)
                if len(outcome.faults) >= most_faults:
                    faulthandler.cancel_dump_traceback_later()
                    return outcome
        if turn == _TURNS // 5:
            began_with = _resident()
    faulthandler.cancel_dump_traceback_later()
    outcome.grown = _resident() - began_with
    return outcome


def _feed_block(outcome: Outcome, name: str, target: Target, rng: random.Random, block: int) -> None:
    state, clock = rng.getstate(), time.thread_time
    for n in range(block):
        message, before = b"", clock()
        try:
            message = target(rng)
        except Exception as error:  # noqa: BLE001 - it is what is looked for
            outcome.faults.append(f"{name}: {error!r}")
        took = clock() - before
        if took > outcome.slowest[0]:
            took = min(took, *(_again(target, state, n) for _ in range(3)))
        if took > outcome.slowest[0]:
            outcome.slowest = took, name, message
        if took > SLOW:
            outcome.faults.append(f"{name}: {took * 1000:.0f} ms for {message[:2000]!r}")
    outcome.messages[name] = outcome.messages.get(name, 0) + block


def _again(target: Target, state: Any, n: int) -> float:
    """What the n-th message of a block costs this time: a busy machine bills a process for more than it does."""
    rng, before = random.Random(), 0.0
    rng.setstate(state)
    for _ in range(n + 1):
        before = time.thread_time()
        with contextlib.suppress(Exception):
            target(rng)
    return time.thread_time() - before


def _resident() -> int:
    """Bytes in memory; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
