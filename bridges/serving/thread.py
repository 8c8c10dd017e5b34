"""LoopServer: a server of asyncio in a thread of its own, which is the only one that it needs."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import Any

# (ready, stop): serves until `stop` is set; ready(url) once it listens
Serve = Callable[[Callable[[str], None], asyncio.Event], Awaitable[Any]]


class LoopServer:
    """Runs `serve` in an event loop of its own; returns when it listens. Close it, or use it as a context manager.

    Attributes:
        url: what a client connects to.

    Raises:
        what `serve` raises before it listens, such as OSError where the port is taken.
    """

    url: str

    def __init__(self, serve: Serve, name: str) -> None:
        self._serve = serve
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name=f"ue_rl-{name}", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            if self._started.is_set():
                raise
            self._failure = error
        finally:
            self._started.set()

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await self._serve(self._listens, self._stop)

    def _listens(self, url: str) -> None:
        self.url = url
        self._started.set()

    def close(self) -> None:
        """Ends its connections and its thread, not the pool; idempotent."""
        if self._thread.is_alive() and self._loop is not None and self._stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def __enter__(self) -> LoopServer:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes."""
        self.close()
