"""Opens engines at the same time, each in a thread of its own, so that a step waits for the slowest of them alone."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack

from ue_rl.connections.engines.lifecycle import Change
from ue_rl.connections.engines.part import EnginePart

_LOOK = 0.1  # seconds until a Ctrl-C is seen where waiting for a lock cannot be interrupted


def open_together(parts: Sequence[EnginePart]) -> list[Future[None]]:
    """Opening each of them, done. Listeners are called in this thread, as they are for one engine alone."""
    events: queue.SimpleQueue[Change | int] = queue.SimpleQueue()
    opened: list[Future[None]] = [Future() for _ in parts]

    def work(place: int) -> None:
        try:
            parts[place].open()
        except BaseException as error:  # noqa: BLE001 - raised by the trainer's thread
            opened[place].set_exception(error)
        else:
            opened[place].set_result(None)
        finally:
            events.put(place)

    with ExitStack() as stack:
        listeners = {part.number: stack.enter_context(part.life.told_by(events.put)) for part in parts}
        for place in range(len(parts)):
            threading.Thread(target=work, args=(place,), name=f"engine {parts[place].number}", daemon=True).start()
        left = len(parts)
        while left:
            try:
                event = events.get(timeout=_LOOK)
            except queue.Empty:
                continue
            if not isinstance(event, Change):
                left -= 1
            elif (listener := listeners[event.engine]) is not None:
                listener(event)
    return opened
