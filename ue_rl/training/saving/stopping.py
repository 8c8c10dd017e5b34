"""Stopping a run on SIGINT (Ctrl-C), SIGTERM, SIGHUP and, on Windows, SIGBREAK, so that it can be saved.

The first signal lets the step end that is under way, the second stops at once; while something is saved, signals are
noted and nothing is interrupted. A stop is the exception RunStopped, raised in the main thread.
"""

from __future__ import annotations

import _thread
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any

from ue_rl.system.forks import notify_of_forks

_UNWINDING = 1.0  # seconds after a stop in which another one would only break what is being closed

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
_SHOWN = {"SIGINT": "Ctrl-C", "SIGBREAK": "Ctrl-Break"}


class RunStopped(KeyboardInterrupt):
    """A signal asked for the end of the run.

    Attributes:
        signal: which. exit_code: what a process that ends for it exits with: 130, 143 or 129.
    """

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        if self.signal.name == "SIGBREAK":
            self.exit_code = 130
        else:
            self.exit_code = 128 + number
        super().__init__(str(self))

    def __str__(self) -> str:
        return f"stopped by {_SHOWN.get(self.signal.name, self.signal.name)}"


def as_python_does(number: int) -> BaseException:
    """For a script: KeyboardInterrupt itself for Ctrl-C (Python exits with 1 for a subclass), otherwise SystemExit."""
    stopped = RunStopped(number)
    if stopped.exit_code == 130:
        return KeyboardInterrupt(str(stopped))
    return SystemExit(stopped.exit_code)


class Stopping:
    """Takes the signals while its `with` block runs, and gives them back to whom they belonged.

    Nothing is interrupted but what runs in an `interruptible` block: saving needs no protection of its own. Signals
    that are ignored (SIGHUP under nohup) stay ignored. Python gives signals to the main thread alone: in another one
    this does nothing. A forked child has the handlers that were there before. It may be entered again, and then knows
    nothing of the time before.

    Args:
        tell: shows a sentence; it is called in a signal handler, so it must not wait for a lock. None: on stderr.
        error: what is raised where RunStopped is said here, made from the signal's number.

    Attributes:
        requested: the signal that came first since it was entered; None while there was none.
        grace: seconds that the first signal gives to what runs; 0: nothing. StopCallback sets it.
    """

    def __init__(
        self, tell: Callable[[str], object] | None = None, error: Callable[[int], BaseException] = RunStopped
    ) -> None:
        self._error = error
        self.requested: signal.Signals | None
        self.grace = 0.0
        self._tell = tell or write_to_stderr
        self._before: dict[int, Any] = {}
        self._left = False
        self._depth = 0  # of interruptible blocks
        self._forget()
        # Its put() is the one that may be called in a signal handler; starting a thread there may not.
        self._graces: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        self._watch: threading.Thread | None = None

    def _forget(self) -> None:
        self.requested = None
        self._count = 0
        self._due = False  # the grace is over
        self._raised = float("-inf")

    def __enter__(self) -> Stopping:
        self._forget()
        self._left = False
        if threading.current_thread() is threading.main_thread():
            for name in _NAMES:
                number = getattr(signal, name, None)
                # None: somebody else's handler in C, which could not be put back.
                if number is not None and signal.getsignal(number) not in (signal.SIG_IGN, None, self._on_signal):
                    self._before[number] = signal.signal(number, self._on_signal)
            self._watch = threading.Thread(target=self._watched, name="ue_rl stopping", daemon=True)
            self._watch.start()
            notify_of_forks(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch is not None:  # first: what it still sends is for our handlers, not for those before
            self._graces.put(None)
            self._watch.join()
            self._watch = None
        self._give_back()

    def _give_back(self) -> None:
        self._left = True
        for number in [*self._before]:
            if signal.getsignal(number) == self._on_signal:  # else somebody has taken it, and may give it back later
                handler = self._before.pop(number)
                while isinstance(other := getattr(handler, "__self__", None), Stopping) and other._left:
                    handler = other._before.pop(number, signal.SIG_DFL)  # was left before this one
                signal.signal(number, handler)

    def forked(self) -> None:
        """In a forked child: its signals are its own, and there is no thread that would end a grace."""
        self._watch = None
        self._forget()
        self._give_back()

    @contextmanager
    def interruptible(self, grace: float = 0.0) -> Iterator[None]:
        """What runs in this block is stopped by RunStopped.

        Args:
            grace: seconds that the first signal gives to it; `check` ends it before.

        Raises:
            Stopped: at once, if a signal came before. Otherwise anywhere in the block.
        """
        outer = self.grace
        self.grace = grace
        self._depth += 1
        try:
            self.check()
            yield
        finally:
            self._depth -= 1
            self.grace = outer

    def check(self) -> None:
        """To be called where a run may end: after a step; raises RunStopped: a signal came."""
        if self.requested is not None and self._depth:
            self._stop()

    def _stop(self) -> None:
        assert self.requested is not None
        self._raised = time.monotonic()
        raise self._error(self.requested)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._left:  # it was given back by another one, which was entered later and left later
            before = self._before.pop(number, signal.SIG_DFL)
            signal.signal(number, before)
            if callable(before):
                before(number, frame)
            else:
                signal.raise_signal(number)
            return
        own = self._due
        self._due = False
        if self.requested is None:
            self.requested = signal.Signals(number)
        self._count += not own
        if not self._depth:
            if not own:
                self._tell("stopping; wait")
        elif own or self._count > 1 or self.grace <= 0:
            if time.monotonic() - self._raised > _UNWINDING:
                self._stop()
        else:
            shown = _SHOWN.get(self.requested.name, self.requested.name)
            again = ""
            if self.requested.name == "SIGINT":
                again = " (again: at once, and saving)"
            self._tell(f"{shown}: stopping after this step, then saving{again}")
            self._graces.put(self.grace)

    def _watched(self) -> None:
        """In a thread of its own: when the grace is over, has the main thread handle the signal again."""
        while (grace := self._graces.get()) is not None:
            try:
                if self._graces.get(timeout=grace) is None:
                    return
            except queue.Empty:
                pass
            number = self.requested
            if number is not None and self._depth:
                self._due = True
                if sys.platform != "win32":  # ends a wait in the kernel, which interrupt_main does not
                    main = threading.main_thread().ident
                    if not main:
                        main = 0
                    signal.pthread_kill(main, number)
                else:
                    _thread.interrupt_main(number)


def write_to_stderr(text: str) -> None:
    """What Stopping tells, where nobody else shows it. Not by print: the signal may have come in the middle of one, and
    its buffer is not to be entered twice.
    """
    with suppress(OSError):  # a terminal that hung up
        stderr = 2
        if sys.__stderr__:
            stderr = sys.__stderr__.fileno()
        os.write(stderr, f"\n{text}\n".encode())
