"""run_in_thread and run_in_process: a BridgeServer beside the program that uses it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

from ue_rl.bridges.child import Child
from ue_rl.bridges.core import BridgeCore


class ThreadHandle:
    """A server in a thread of this process. Close it, or use it as a context manager.

    Attributes:
        bridge: the hosted bridge. server: its BridgeServer. port, url: where it listens.
    """

    def __init__(self, bridge: BridgeCore, **options: Any) -> None:
        from ue_rl.bridges.tcp.server import BridgeServer

        self.bridge = bridge
        self.server = BridgeServer(bridge, **options)
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ue_rl-bridge", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise self._failure
        self.port: int = self.server.port
        self.url: str = self.server.url

    def close(self) -> None:
        """Stops the server and joins the thread; idempotent."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has just ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)
            # a game's callback may close: it cannot wait for the thread that waits for it
            if threading.current_thread() is not self._thread and self.bridge.caller != threading.get_ident():
                self._thread.join()

    def __enter__(self) -> ThreadHandle:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes."""
        self.close()

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            await self.server.start()
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits for the start
            self._failure = error
            return
        finally:
            self._started.set()
        await self._stop.wait()
        await self.server.close()


class ProcessHandle(Child):
    """A server in a process of its own.

    Attributes:
        port, url: where it listens. process: the multiprocessing.Process.

    Raises:
        ConfigurationError: the factory failed in the other process. EngineTimeout: it did not start in time.
    """

    def __init__(self, factory: Callable[[], BridgeCore], timeout: float = 60.0, **options: Any) -> None:
        super().__init__(_host, factory, options, timeout)
        self.port: int = self.ready[0]
        self.url: str = self.ready[1]


def _host(bridge: BridgeCore, options: dict[str, Any], ready: Callable[[Any], None], over: threading.Event) -> None:
    from ue_rl.bridges.tcp.server import BridgeServer

    async def serve() -> None:
        async with BridgeServer(bridge, **options) as server:
            ready((server.port, server.url))
            await asyncio.get_running_loop().run_in_executor(None, over.wait)

    asyncio.run(serve())


def run_in_thread(bridge: BridgeCore, host: str = "127.0.0.1", port: int = 0, **options: Any) -> ThreadHandle:
    """Hosts `bridge` in a thread; options as BridgeServer."""
    return ThreadHandle(bridge, host=host, port=port, **options)


def run_in_process(
    factory: Callable[[], BridgeCore], host: str = "127.0.0.1", port: int = 0, **options: Any
) -> ProcessHandle:
    """Hosts `factory()` in a process of its own; `factory` must be picklable (a function or functools.partial)."""
    return ProcessHandle(factory, host=host, port=port, **options)
