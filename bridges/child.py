"""Child: an engine in a process of its own, which ends with its handle or with the process that started it."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from ue_rl.bridges.core import BridgeCore
from ue_rl.errors import ConfigurationError, EngineTimeout, UeRlError

_Self = TypeVar("_Self", bound="Child")

# host(bridge, options, ready, over): serves until `over` is set, after ready(what others need to connect)
Host = Callable[[BridgeCore, dict[str, Any], Callable[[Any], None], threading.Event], None]


class Child:
    """The handle.

    Args:
        host: a function of a module, run in the other process.
        factory: makes the bridge there; picklable. options: for `host`. timeout: seconds to start.

    Attributes:
        ready: what `host` said when it was. process: the multiprocessing.Process.

    Raises:
        ConfigurationError: the factory or the host failed. EngineTimeout: it did not start in time.
    """

    def __init__(
        self, host: Host, factory: Callable[[], BridgeCore], options: dict[str, Any], timeout: float = 60.0
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_run, args=(host, factory, options, theirs), name="ue_rl", daemon=True)
        self.process.start()
        theirs.close()
        try:
            if not self._pipe.poll(timeout):
                raise EngineTimeout(
                    "the engine's process did not start", fault="engine", expected=f"an address within {timeout:g} s"
                )
            try:
                failure, self.ready = self._pipe.recv()
            except EOFError:
                self.process.join()
                failure = f"the process ended with exit code {self.process.exitcode}"
            if failure is not None:
                raise ConfigurationError("the bridge cannot be hosted", fault="caller", got=failure)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the process; idempotent."""
        self._pipe.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def __enter__(self: _Self) -> _Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes."""
        self.close()


def _run(host: Host, factory: Callable[[], BridgeCore], options: dict[str, Any], pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer, which then closes us
    over = threading.Event()

    def wait() -> None:
        with contextlib.suppress(EOFError, OSError):
            pipe.recv()
        over.set()

    def ready(what: Any) -> None:
        pipe.send((None, what))
        threading.Thread(target=wait, daemon=True).start()

    try:
        host(factory(), options, ready, over)
    except (UeRlError, OSError, ImportError, ValueError, TypeError) as error:
        with contextlib.suppress(OSError):  # the handle has gone
            pipe.send((str(error), None))
