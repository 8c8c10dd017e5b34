"""LoopServer: a server of asyncio in a thread of its own, which is the only one that it needs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from ue_rl.system.closing import Closing
from ue_rl.system.threads import start_thread

# (ready, stop): serves until `stop` is set; ready(url) once it listens
Serve = Callable[[Callable[[str], None], asyncio.Event], Awaitable[Any]]


class LoopServer(Closing):
    """Runs `serve` in an event loop of its own; returns when it listens.

    Attributes:
        url: what a client connects to.

    Raises:
        what `serve` raises before it listens, such as OSError where the port is taken.
    """

    url: str
    _loop: asyncio.AbstractEventLoop
    _stop: asyncio.Event

    def __init__(self, serve: Serve, name: str) -> None:
        async def main(ready: Callable[[], None]) -> None:
            def listens(url: str) -> None:
                self.url = url
                ready()

            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            await serve(listens, self._stop)

        self._thread = start_thread(f"ue_rl-{name}", lambda ready: asyncio.run(main(ready)))

    def close(self) -> None:
        """Ends its connections and its thread, not the pool; idempotent."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
