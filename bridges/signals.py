"""SIGTERM and SIGHUP, which service managers, containers and closed terminals send, end an engine as Ctrl-C does."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_NAMES = ("SIGTERM", "SIGHUP", "SIGBREAK")  # SIGBREAK: a closed console on Windows


@contextmanager
def ends_in_order(for_good: bool = False) -> Iterator[None]:
    """Within it, the first of these signals raises SystemExit(128 + its number): 143 for SIGTERM, 129 for SIGHUP.

    What comes after the first is ignored: everything is being closed. A signal that is ignored already (nohup), or that
    the program handles itself, is left alone, and so is everything outside of the main thread.

    Args:
        for_good: the process ends with the block: after a first signal the others stay ignored behind it, too.
    """
    came = False
    taken = [
        number
        for number in (getattr(signal, name, None) for name in _NAMES)
        if number is not None
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(number) is signal.SIG_DFL
    ]

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        for one in taken:
            signal.signal(one, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken if not (came and for_good) else ():
            signal.signal(number, signal.SIG_DFL)


def signal_of(code: object) -> str | None:
    """The name of the signal that `ends_in_order` gave this exit code; None: it gave none such."""
    known = {128 + int(getattr(signal, name)): name for name in _NAMES if hasattr(signal, name)}
    return known.get(code) if isinstance(code, int) else None
