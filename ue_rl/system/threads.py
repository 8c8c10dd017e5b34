"""Threads that somebody waits for until they have begun."""

from __future__ import annotations

import threading
from collections.abc import Callable


def start_thread(name: str, run: Callable[[Callable[[], None]], None]) -> threading.Thread:
    """Calls `run(ready)` in a daemon thread; returns once that has called `ready`, or has returned.

    Raises:
        what `run` raised before; what it raises later ends its thread alone.
    """
    started = threading.Event()
    failures: list[BaseException] = []

    def main() -> None:
        try:
            run(started.set)
        except BaseException as error:
            if started.is_set():
                raise
            failures.append(error)  # raised by who waits for the start
        finally:
            started.set()

    thread = threading.Thread(target=main, name=name, daemon=True)
    thread.start()
    started.wait()
    if failures:
        thread.join()
        raise failures[0]
    return thread
