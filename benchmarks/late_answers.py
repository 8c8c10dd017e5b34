"""An engine that doubles, delays, drops or swaps an answer, or gives it to the next connection: are its rows right?

    python benchmarks/late_answers.py [--repeats 3] [--without-seq]

Each run trains nothing: it takes steps over text, with `reconnect`, and looks at each row, which says what it answers.
One answer goes wrong, after a number of milliseconds; with steps of 0 and of 3 ms, on the shared channel and over env
sockets, with episodes of equal and of unequal length. Prints a markdown table; the exit code is 1 where a row was wrong
although the engine numbers its answers (FEATURES=SEQ).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import logging
import os
import random
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from ue_rl.connections import open_transport
from ue_rl.connections.engines.lifecycle import Change, LifeState
from ue_rl.devtools.testing.engines.loop import LineEngine
from ue_rl.system.errors import RestartsSpent
from ue_rl.system.timing import SYSTEM_TIMING, Timing

FAULTS = {
    "double": "comes a second time, late",
    "delay": "comes late",
    "next": "comes late, on the next connection",
    "drop": "never comes",
    "swap": "comes after the one behind it, or on another env's socket",
}
DELAYS = (0, 1, 5, 20, 50)  # ms
TIMEOUT = 0.03  # seconds that the trainer waits for an answer


@dataclass(frozen=True)
class Case:
    """What goes wrong in a run. delay, step: ms. lengths: of the envs' episodes."""

    fault: str
    delay: int
    step: int = 0
    channel: str = "shared"
    lengths: tuple[int, ...] = (10, 10, 10, 10)
    seq: bool = True
    at: int = 20  # the request whose answer it strikes


@dataclass
class Seen:
    """What a run has seen: rows and wrong ones, the errors, and rows from the blow until the first error."""

    rows: int = 0
    wrong: int = 0
    errors: list[str] = field(default_factory=list)
    rows_until_found: int | None = None


class LateEngine(LineEngine):
    """A MULTI engine on either wiring. A row: OBS = env, what it answers, step of the episode.

    What it answers is the action or the seed, of a reset without a seed minus the action before it. Answers that go
    wrong are sent to whoever is connected when they are due.
    """

    def __init__(self, case: Case, threaded: bool = True) -> None:
        self.case, self.struck = case, False
        count = len(case.lengths)
        self._tags, self._steps = [0.0] * count, [0] * count
        self._requests = 0
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._waiting: list[Callable[[], None]] = []  # for the next connection
        self._behind: list[Callable[[], None]] = []  # for the answer behind
        super().__init__("late-engine", "127.0.0.1", count + 1, threaded=threaded)

    # -- connections

    def _take(self, sock: socket.socket) -> None:
        if self.admin is None:
            self.admin = sock
            channel = "PER_ENV" if self.case.channel == "per_env" else "SHARED"
            self._send(
                sock,
                f"CONFIG:OBS=3;ACT=1;ENV_TYPE=MULTI;ENV_COUNT={len(self._tags)};VERSION=1;CHANNEL={channel};"
                f"FEATURES=SEED{',SEQ' if self.case.seq else ''}\n".encode(),
            )
        else:
            self.env_socks.append(sock)
        if len(self.env_socks) == (0 if self.case.channel == "shared" else len(self._tags)):
            for send in self._waiting:
                self._later(send)
            self._waiting.clear()

    def _turn(self) -> float | None:
        now = time.monotonic()
        ready = [send for due, send in self._due if due <= now]
        self._due = [entry for entry in self._due if entry[0] > now]
        for send in ready:
            send()
        return min((due for due, _ in self._due), default=now + 1) - now

    def turn(self) -> bool:
        self._turn()
        return super().turn()

    def _think(self) -> None:
        """A step of the game; what is due meanwhile is sent meanwhile, as by another thread."""
        until = time.monotonic() + self.case.step / 1000
        while (now := time.monotonic()) < until:
            time.sleep(max(0.0, min(until - now, self._turn() or 0.0)))

    def _later(self, send: Callable[[], None]) -> None:
        self._due.append((time.monotonic() + self.case.delay / 1000, send))

    # -- answers

    def _answer(self, sock: socket.socket, line: bytes) -> None:
        text, _, number = line.decode().strip().partition(";SEQ=")
        own = self.env_socks.index(sock) if sock in self.env_socks else None
        rows = [self._row(dict(pair.split("=") for pair in ask.split(";")), own) for ask in text.split("||")]
        if own in (None, 0):
            self._think()
            self._requests += 1
        answer = ("||".join(rows) + (f";SEQ={number}" if number else "") + "\n").encode()

        def send(to: int | None = own) -> None:
            with contextlib.suppress(Exception):  # nobody is connected
                LineEngine._send(self, self.admin if to is None else self.env_socks[to], answer)

        behind, self._behind = self._behind, []
        if self._requests == self.case.at and own in (None, 0, 1 if self.case.fault == "swap" else 0):
            self._strike(send, own)
        else:
            send()
        for late in behind:
            self._later(late)

    def _row(self, ask: dict[str, str], own: int | None) -> str:
        env = int(ask["ENV"]) if own is None else own
        if ask["ACT"] == "RESET":
            self._tags[env] = float(ask["SEED"]) if "SEED" in ask else -self._tags[env]
            self._steps[env] = 0
        else:
            self._tags[env] = float(ask["ACT"])
            self._steps[env] += 1
        done = int(self._steps[env] >= self.case.lengths[env])
        return f"OBS={env},{self._tags[env]},{self._steps[env]};REW={self._tags[env]};DONE={done};ENV={env}"

    def _strike(self, send: Callable[..., None], own: int | None) -> None:
        self.struck = True
        fault = self.case.fault
        if fault == "double":
            send()
            self._later(send)
        elif fault == "delay":
            self._later(send)
        elif fault == "next":
            self._waiting.append(send)
        elif fault == "swap" and own is None:
            self._behind.append(send)
        elif fault == "swap":
            self._later(lambda: send(1 - own))


def run(case: Case, steps: int = 60, clock: Callable[[LateEngine], Timing] | None = None) -> Seen:
    """One run. Raises AssertionError where it ended by something else than its steps or a named loss.

    Args:
        clock: gives the trainer's time, and calls the engine's `turn`, which then has no thread.
    """
    seen, count = Seen(), len(case.lengths)
    with LateEngine(case, threaded=clock is None) as engine:
        timing = SYSTEM_TIMING
        if clock is not None:
            timing = clock(engine)
        at_blow: list[int] = []

        def told(change: Change) -> None:
            if change.after in (LifeState.TIMEOUT, LifeState.CONNECTION_LOST):
                seen.errors.append(change.reason)
                if engine.struck and seen.rows_until_found is None:
                    seen.rows_until_found = seen.rows - (at_blow[0] if at_blow else seen.rows)

        transport = open_transport(
            engine.url,
            "tcp",
            channel=case.channel,
            timeout=TIMEOUT,
            timing=timing,
            connect_timeout=5.0,
            reconnect=5.0,
            restarts=1000,
            on_change=told,
        )
        try:
            tag = itertools.count(1)
            expected = np.zeros(count)
            over = np.ones(count, np.bool_)

            def begin() -> None:
                seeds = [next(tag) for _ in range(count)]
                transport.reset(None, seeds)
                expected[:] = seeds
                look()

            def look() -> None:
                buffers = transport.receive()
                if engine.struck and not at_blow:
                    at_blow.append(seen.rows)
                if buffers.lost:
                    over[:] = True
                    return
                seen.rows += count
                right = (buffers.obs[:, 0] == np.arange(count)) & (buffers.obs[:, 1] == expected)
                seen.wrong += int(np.count_nonzero(~right))
                over[:] = buffers.dones != 0

            begin()
            for _ in range(steps):
                if over.all():
                    begin()
                    continue
                actions = np.full((count, 1), next(tag), np.float32)
                begun = np.flatnonzero(over)
                transport.send_actions(actions, begun.tolist())
                expected[begun] *= -1
                expected[~over] = actions[0, 0]
                look()
        except RestartsSpent as spent:
            seen.errors.append(str(spent))
        finally:
            transport.close()
    return seen


def cases(seq: bool, repeats: int, seed: int = 0) -> list[Case]:
    """All of them, the strike at a random request."""
    chance = random.Random(seed)
    product = itertools.product(
        range(repeats), FAULTS, DELAYS, (0, 3), ("shared", "per_env"), ((10, 10, 10, 10), (7, 10, 12, 9))
    )
    return [
        Case(fault, delay, step, channel, lengths, seq, chance.randrange(3, 40))
        for _, fault, delay, step, channel, lengths in product
    ]


def table(made: Sequence[Case], seen: Sequence[Seen]) -> str:
    """One row for each fault and wiring, in markdown."""
    lines = ["| one answer | wiring | runs | found | after rows, median | runs with wrong rows | wrong rows |"]
    lines.append("|---|---|---|---|---|---|---|")
    for fault, channel in itertools.product(FAULTS, ("shared", "per_env")):
        mine = [got for case, got in zip(made, seen, strict=True) if (case.fault, case.channel) == (fault, channel)]
        found = [got.rows_until_found for got in mine if got.rows_until_found is not None]
        lines.append(
            f"| {FAULTS[fault]} | {'shared channel' if channel == 'shared' else 'env sockets'} | {len(mine)} "
            f"| {len(found)} | {f'{statistics.median(found):g}' if found else '-'} "
            f"| {sum(got.wrong > 0 for got in mine)} "
            f"| {sum(got.wrong for got in mine):,} of {sum(got.rows for got in mine):,} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Runs all cases and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--without-seq", action="store_true", help="the engine does not number its answers")
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    logging.disable(logging.WARNING)
    made = cases(not a.without_seq, a.repeats, a.seed)
    seen = [run(case) for case in made]
    print(table(made, seen))
    rows, wrong = sum(got.rows for got in seen), sum(got.wrong for got in seen)
    print(f"\n{len(made)} runs, {rows} rows, {wrong} wrong")
    return int(wrong > 0 and not a.without_seq)


if __name__ == "__main__":
    sys.exit(main())
