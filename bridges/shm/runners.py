"""A ShmHost beside the program that uses it: in a thread, in a process, or until Ctrl-C.

with run_shm_in_thread(bridge) as handle:        handle.url == "shm://ue_rl_..."
with run_shm_in_process(make_bridge) as handle:
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from ue_rl.bridges.child import Child
from ue_rl.bridges.core import BridgeCore
from ue_rl.bridges.shm.host import ShmHost


class ShmThread:
    """A host in a thread of this process. Attributes: host; name, url: of the segment."""

    def __init__(self, bridge: BridgeCore, **options: Any) -> None:
        self.host = ShmHost(bridge, **options)
        self.name, self.url = self.host.name, self.host.url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ue_rl-shm", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.host.run(self._stop)
        finally:
            self.host.close()

    def close(self) -> None:
        """Stops serving and deletes the segment; idempotent. From a callback of the game: once that has returned."""
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> ShmThread:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes."""
        self.close()


class ShmProcess(Child):
    """A host in a process of its own.

    Attributes:
        name, url: of the segment. process: the multiprocessing.Process.

    Raises:
        ConfigurationError: the factory failed in the other process. EngineTimeout: it did not start in time.
    """

    def __init__(self, factory: Callable[[], BridgeCore], timeout: float = 60.0, **options: Any) -> None:
        super().__init__(_host, factory, options, timeout)
        self.name: str = self.ready
        self.url = f"shm://{self.name}"


def _host(bridge: BridgeCore, options: dict[str, Any], ready: Callable[[Any], None], over: threading.Event) -> None:
    with ShmHost(bridge, **options) as host:
        ready(host.name)
        host.run(over)


def serve_shm(bridge: BridgeCore, **options: Any) -> None:
    """Hosts `bridge` until Ctrl-C; options as ShmHost."""
    with ShmHost(bridge, **options) as host, contextlib.suppress(KeyboardInterrupt):
        host.run()


def run_shm_in_thread(bridge: BridgeCore, **options: Any) -> ShmThread:
    """Hosts `bridge` in a thread; options as ShmHost."""
    return ShmThread(bridge, **options)


def run_shm_in_process(factory: Callable[[], BridgeCore], **options: Any) -> ShmProcess:
    """Hosts `factory()` in a process of its own; `factory` must be picklable. Options as ShmHost."""
    return ShmProcess(factory, **options)
