"""EngineLoop: a listener on a free port, a thread, and a selector that close() wakes. Knows no protocol."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class EngineLoop:
    """What the engines of the harness have in common. Use as a context manager, or `start()` and `close()`.

    A subclass implements `_loop`, which runs in the thread until `_stop` is set, and `_close_clients`.

    Args:
        name: of the thread.
        host, port: the address to listen on; 0: a free port.
        backlog: connections that may wait to be accepted.
        threaded: False: there is no thread, the test makes the engine's steps itself.

    Attributes:
        address: (host, port) listened on; host, port: its parts. url: as ue_rl.connect takes it.
    """

    def __init__(self, name: str, host: str, backlog: int, *, threaded: bool = True, port: int = 0) -> None:
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._watch(self._wake_out)
        self._listener: socket.socket | None = socket.create_server((host, port), backlog=backlog)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self.host, self.port = self.address
        self.url = f"tcp://{self.host}:{self.port}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True) if threaded else None

    def start(self) -> Self:
        """Starts the thread, if there is one."""
        if self._thread is not None:
            self._thread.start()
        return self

    def close(self) -> None:
        """Stops and closes everything; idempotent. Raises what the thread died of, if it did."""
        self._stop.set()
        self._wake_in.close()
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join(10)
        self._close_all()
        self._wake_out.close()
        self._selector.close()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- for subclasses

    def _loop(self) -> None:
        """Serves until `_stop` is set; waits in `_selector` only, so that close() can wake it."""
        raise NotImplementedError

    def _close_clients(self) -> None:
        """Closes all connections; may be called twice."""
        raise NotImplementedError

    def _watch(self, sock: socket.socket) -> None:
        self._selector.register(sock, selectors.EVENT_READ)

    def _unwatch(self, sock: socket.socket) -> None:
        with contextlib.suppress(KeyError, ValueError):  # it was not watched, or is closed
            self._selector.unregister(sock)

    def _send_all(self, sock: socket.socket, data: bytes) -> bool:
        """Sends `data`, as slowly as the client reads; False: the client is gone, or the engine is to stop."""
        view = memoryview(data)
        while view and not self._stop.is_set():
            try:
                view = view[sock.send(view) :]
            except (BlockingIOError, TimeoutError):
                self._stop.wait(0.001)
            except OSError:
                return False
        return not view

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._unwatch(self._listener)
            self._listener.close()
            self._listener = None

    # -- own

    def _close_all(self) -> None:
        self._close_listener()
        self._close_clients()

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:  # noqa: BLE001  raised again by close(), in the test's own thread
            self._failure = error
            self._close_all()
