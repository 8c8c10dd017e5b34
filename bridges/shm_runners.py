"""A ShmHost beside the program that uses it: in a thread, in a process, or until Ctrl-C.

with run_shm_in_thread(bridge) as handle:        handle.url == "shm://ue_rl_..."
with run_shm_in_process(make_bridge) as handle:
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from ue_rl.bridges.base import BaseBridge
from ue_rl.bridges.shm_host import ShmHost
from ue_rl.errors import ConfigurationError, EngineTimeout, UeRlError


class ShmThread:
    """A host in a thread of this process. Attributes: host; name, url: of the segment."""

    def __init__(self, bridge: BaseBridge, **options: Any) -> None:
        self.host = ShmHost(bridge, **options)
        self.name, self.url = self.host.name, self.host.url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.host.run, args=(self._stop,), name="ue_rl-shm", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops serving and deletes the segment; idempotent."""
        self._stop.set()
        self._thread.join()
        self.host.close()

    def __enter__(self) -> ShmThread:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes."""
        self.close()


class ShmProcess:
    """A host in a process of its own, which ends with this handle or this process.

    Attributes:
        name, url: of the segment. process: the multiprocessing.Process.

    Raises:
        ConfigurationError: the factory failed in the other process. EngineTimeout: it did not start in time.
    """

    def __init__(self, factory: Callable[[], BaseBridge], timeout: float = 60.0, **options: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_host, args=(factory, options, theirs), name="ue_rl-shm", daemon=True)
        self.process.start()
        theirs.close()
        try:
            if not self._pipe.poll(timeout):
                raise EngineTimeout(
                    "the engine's process did not start", fault="engine", expected=f"a segment within {timeout:g} s"
                )
            try:
                answer = self._pipe.recv()
            except EOFError:
                self.process.join()
                answer = ("error", f"the process ended with exit code {self.process.exitcode}")
            if answer[0] == "error":
                raise ConfigurationError("the bridge cannot be hosted", fault="caller", got=answer[1])
        except BaseException:
            self.close()
            raise
        self.name: str = answer[1]
        self.url = f"shm://{self.name}"

    def close(self) -> None:
        """Ends the process; idempotent."""
        self._pipe.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def __enter__(self) -> ShmProcess:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes."""
        self.close()


def _host(factory: Callable[[], BaseBridge], options: dict[str, Any], pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer, which then closes us
    stop = threading.Event()
    try:
        with ShmHost(factory(), **options) as host:
            pipe.send(("name", host.name))
            threading.Thread(target=_until_told, args=(pipe, stop), daemon=True).start()
            host.run(stop)
    except (UeRlError, OSError, ImportError, ValueError, TypeError) as error:
        if not stop.is_set():
            pipe.send(("error", str(error)))


def _until_told(pipe: Connection, stop: threading.Event) -> None:
    try:
        pipe.recv()
    except (EOFError, OSError):
        stop.set()


def serve_shm(bridge: BaseBridge, **options: Any) -> None:
    """Hosts `bridge` until Ctrl-C; options as ShmHost."""
    with ShmHost(bridge, **options) as host, contextlib.suppress(KeyboardInterrupt):
        host.run()


def run_shm_in_thread(bridge: BaseBridge, **options: Any) -> ShmThread:
    """Hosts `bridge` in a thread; options as ShmHost."""
    return ShmThread(bridge, **options)


def run_shm_in_process(factory: Callable[[], BaseBridge], **options: Any) -> ShmProcess:
    """Hosts `factory()` in a process of its own; `factory` must be picklable. Options as ShmHost."""
    return ShmProcess(factory, **options)
