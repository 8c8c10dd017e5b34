"""run_in_thread and run_in_process: a BridgeServer beside the program that uses it."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from ue_rl.bridges.base import BaseBridge
from ue_rl.errors import ConfigurationError, EngineTimeout, UeRlError


class ThreadHandle:
    """A server in a thread of this process. Close it, or use it as a context manager.

    Attributes:
        bridge: the hosted bridge. server: its BridgeServer. port, url: where it listens.
    """

    def __init__(self, bridge: BaseBridge, **options: Any) -> None:
        from ue_rl.bridges.server import BridgeServer

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


class ProcessHandle:
    """A server in a process of its own, which ends when this handle is closed or this process dies.

    Attributes:
        port, url: where it listens. process: the multiprocessing.Process.

    Raises:
        ConfigurationError: the factory failed in the other process. EngineTimeout: it did not start in time.
    """

    def __init__(self, factory: Callable[[], BaseBridge], timeout: float = 60.0, **options: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_host, args=(factory, options, theirs), name="ue_rl-bridge", daemon=True)
        self.process.start()
        theirs.close()
        try:
            if not self._pipe.poll(timeout):
                raise EngineTimeout(
                    "the engine's process did not start", fault="engine", expected=f"a port within {timeout:g} s"
                )
            try:
                answer = self._pipe.recv()
            except EOFError:
                self.process.join()
                answer = f"the process ended with exit code {self.process.exitcode}"
            if isinstance(answer, str):
                raise ConfigurationError("the bridge cannot be hosted", fault="caller", got=answer)
        except BaseException:
            self.close()
            raise
        self.port, self.url = answer

    def close(self) -> None:
        """Ends the process; idempotent."""
        self._pipe.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def __enter__(self) -> ProcessHandle:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes."""
        self.close()


def _host(factory: Callable[[], BaseBridge], options: dict[str, Any], pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer, which then closes us
    try:
        asyncio.run(_serve_until_told(factory(), options, pipe))
    except (UeRlError, OSError, ImportError, ValueError, TypeError) as error:
        pipe.send(str(error))


async def _serve_until_told(bridge: BaseBridge, options: dict[str, Any], pipe: Connection) -> None:
    from ue_rl.bridges.server import BridgeServer

    async with BridgeServer(bridge, **options) as server:
        pipe.send((server.port, server.url))
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def wait() -> None:
            try:
                pipe.recv()
            except (EOFError, OSError):
                loop.call_soon_threadsafe(over.set)

        threading.Thread(target=wait, daemon=True).start()
        await over.wait()


def run_in_thread(bridge: BaseBridge, host: str = "127.0.0.1", port: int = 0, **options: Any) -> ThreadHandle:
    """Hosts `bridge` in a thread; options as BridgeServer."""
    return ThreadHandle(bridge, host=host, port=port, **options)


def run_in_process(
    factory: Callable[[], BaseBridge], host: str = "127.0.0.1", port: int = 0, **options: Any
) -> ProcessHandle:
    """Hosts `factory()` in a process of its own; `factory` must be picklable (a function or functools.partial)."""
    return ProcessHandle(factory, host=host, port=port, **options)
