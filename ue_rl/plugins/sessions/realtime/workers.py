"""Workers: a fixed number of threads that run worlds in turns, and one that knows what time it is.

Games that compute in Python, or in many short calls of NumPy, are slower in two threads than in one: what one of them
does, the other waits for. So the workers look how much of the time in which they run side by side they compute. Where
that is about what one alone could do, one works at a time for a while; a job that does not come back stops nobody.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ue_rl.plugins.sessions.realtime.shared_game import SharedGame

_log = logging.getLogger("ue_rl.plugins.sessions.realtime")
RAISED = (Exception, SystemExit)  # a game that calls sys.exit() has failed: the worker goes on
_SLICE = 0.005  # seconds after which a job lets the others go on
_STUCK = 0.02  # seconds after which others do not wait for the job that runs
# seconds of work side by side that are judged, and for which one works at a time then
_TRIED = 0.1
_KEPT = 10.0


class Turn(Enum):
    """Where a world stands. AGAIN: it runs, and something has come for it meanwhile."""

    IDLE = auto()
    WAITING = auto()
    RUNNING = auto()
    AGAIN = auto()


class Workers:
    """Args: count: of threads, beside the one of the clock. All are daemons and end with `close`."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._work: SimpleQueue[None] = SimpleQueue()  # a token for each job that waits, and one to end each thread
        self._time = threading.Condition(self._lock)
        self._waiting: deque[SharedGame] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._closed = False
        self._one_until = self._begun = 0.0
        self._running = 0
        self._passed = 0.0
        self._computed = 0.0
        self._count = count
        self.threads = [
            threading.Thread(target=self._run, name=f"ue_rl-session-{number}", daemon=True) for number in range(count)
        ]
        self.threads.append(threading.Thread(target=self._watch, name="ue_rl-session-clock", daemon=True))
        for thread in self.threads:
            thread.start()

    def schedule(self, job: SharedGame, first: bool = False) -> bool:
        """Runs `job` soon; False: the workers have been closed.

        Args:
            first: before all others that wait.
        """
        with self._lock:
            if job.turn is Turn.RUNNING:
                job.turn = Turn.AGAIN
            elif job.turn is Turn.IDLE or (job.turn is Turn.WAITING and first):
                if job.turn is Turn.WAITING:
                    self._waiting.remove(job)
                self._queue(job, first)
            return not self._closed

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Calls `call`, which must be quick, once it is `when` (time.perf_counter())."""
        with self._lock:
            heapq.heappush(self._timers, (when, next(self._numbers), call))
            if self._timers[0][0] == when:
                self._time.notify()

    def close(self, within: float) -> None:
        """Ends the threads; waits `within` seconds for those that run a job."""
        with self._lock:
            self._closed = True
            for _ in self.threads:
                self._work.put(None)
            self._time.notify_all()
        deadline = time.monotonic() + within
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _queue(self, job: SharedGame, first: bool) -> None:
        job.turn = Turn.WAITING
        if first:
            self._waiting.appendleft(job)
        else:
            self._waiting.append(job)
        self._work.put(None)

    def _run(self) -> None:
        while not self._closed:
            self._work.get()
            while self._running and self._begun + _STUCK > time.perf_counter() < self._one_until:
                time.sleep(_STUCK)
            while self._run_next() and time.perf_counter() < self._one_until:
                pass  # also what others wait to run

    def _run_next(self) -> bool:
        with self._lock:
            if self._closed or not self._waiting:
                return False
            job = self._waiting.popleft()
            job.turn = Turn.RUNNING
            self._begun = begun = time.perf_counter()
            self._running += 1
            crowded = self._running > 1
        computed = time.thread_time()
        try:
            left = job.run(begun + _SLICE)
        except RAISED:
            _log.exception("a worker's job failed; the worker goes on")
            left = False
        with self._lock:
            self._running -= 1
            if crowded:
                self._judge(time.perf_counter() - begun, time.thread_time() - computed)
            if left or job.turn is Turn.AGAIN:
                self._queue(job, False)
            else:
                job.turn = Turn.IDLE
        return True

    def _judge(self, passed: float, computed: float) -> None:
        self._passed = self._passed + passed
        self._computed = self._computed + computed
        if self._passed > _TRIED:
            if 0.7 < self._count * self._computed / self._passed < 0.8 * self._count:
                self._one_until = time.perf_counter() + _KEPT
            self._passed = self._computed = 0.0

    def _watch(self) -> None:
        while True:
            with self._lock:
                if self._closed:
                    return
                wait = None
                if self._timers:
                    wait = self._timers[0][0] - time.perf_counter()
                if wait is None or wait > 0:
                    self._time.wait(wait)
                    continue
                _, _, call = heapq.heappop(self._timers)
            call()
