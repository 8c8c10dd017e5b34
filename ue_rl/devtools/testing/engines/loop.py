"""EngineLoop: a listener, a thread, and a selector that close() wakes; no protocol. LineEngine: one that cuts lines."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from typing import TYPE_CHECKING

from ue_rl.system.keepalive import reset_at_close

if TYPE_CHECKING:
    from typing_extensions import Self


class EngineLoop:
    """What the engines of the harness have in common. Use as a context manager, or `start()` and `close()`.

    A subclass implements `_loop`, which runs in the thread until `ending` is set, and `close_clients`.

    Args:
        name: of the thread.
        host, port: the address to listen on; 0: a free port.
        backlog: connections that may wait to be accepted.
        threaded: False: there is no thread, the test makes the engine's steps itself.

    Attributes:
        address: (host, port) listened on; host, port: its parts. url: as ue_rl.connect takes it.
        For subclasses: ending: set when it is to end. listener: the listening socket; None: closed.
    """

    def __init__(self, name: str, host: str, backlog: int, *, threaded: bool = True, port: int = 0) -> None:
        self.ending = threading.Event()
        self._failure: BaseException | None = None
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._watch(self._wake_out)
        self.listener: socket.socket | None = socket.create_server((host, port), backlog=backlog)
        self.address: tuple[str, int] = self.listener.getsockname()[:2]
        self.host, self.port = self.address
        self.url = f"tcp://{self.host}:{self.port}"
        if not threaded:
            self._thread = None
        else:
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Self:
        """Starts the thread, if there is one."""
        if self._thread is not None:
            self._thread.start()
        return self

    def close(self) -> None:
        """Stops and closes everything; idempotent. Raises what the thread died of, if it did."""
        self.ending.set()
        self._wake_in.close()
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join(10)
        self._close_all()
        self._wake_out.close()
        self._selector.close()
        failure = self._failure
        self._failure = None
        if failure is not None:
            raise failure

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- for subclasses

    def _loop(self) -> None:
        """Serves until `ending` is set; waits in `_selector` only, so that close() can wake it."""
        raise NotImplementedError

    def close_clients(self) -> None:
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
        while view and not self.ending.is_set():
            try:
                view = view[sock.send(view) :]
            except (BlockingIOError, TimeoutError):
                self.ending.wait(0.001)
            except OSError:
                return False
        return not view

    def close_listener(self) -> None:
        """From now on nobody can connect; idempotent."""
        if self.listener is not None:
            self._unwatch(self.listener)
            self.listener.close()
            self.listener = None

    # -- own

    def _close_all(self) -> None:
        self.close_listener()
        self.close_clients()

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:  # noqa: BLE001  raised again by close(), in the test's own thread
            self._failure = error
            self._close_all()


class EngineStopped(Exception):
    """The engine is to end, or to drop its client."""


class LineEngine(EngineLoop):
    """What the engines in text have in common: the first connection, those behind it, and unfinished lines.

    A subclass implements `_take` and `_answer`.

    Args:
        name, host, port, backlog, threaded: see EngineLoop.

    Attributes:
        For subclasses: admin: the first connection. env_socks: those of single envs. partial: of each connection the
            line that has begun. lost_by: how the last connection ended that did not end in order.
    """

    def __init__(self, name: str, host: str, backlog: int, port: int = 0, *, threaded: bool = True) -> None:
        self.admin: socket.socket | None = None
        self.env_socks: list[socket.socket] = []
        self.partial: dict[socket.socket, bytes] = {}
        self.lost_by: OSError | None = None
        super().__init__(name, host, backlog, threaded=threaded, port=port)
        assert self.listener is not None
        self._watch(self.listener)

    # -- for subclasses

    def _take(self, sock: socket.socket) -> None:
        """A new connection; it is watched already."""
        raise NotImplementedError

    def _answer(self, sock: socket.socket, line: bytes) -> None:
        """A line that is not empty."""
        raise NotImplementedError

    def _cut(self, sock: socket.socket, data: bytes) -> list[bytes]:
        """What a read brought, as lines; an unfinished one is kept."""
        *lines, self.partial[sock] = (self.partial[sock] + data).split(b"\n")
        return lines

    def _gone(self, sock: socket.socket) -> None:
        """A connection has ended at its other side."""
        if sock is self.admin or not self.env_socks:
            self.close_clients()
        else:
            self._unwatch(sock)

    def _turn(self) -> float | None:
        """Called before each wait; the longest time to wait, None: for ever."""
        return None

    def turn(self) -> bool:
        """Without a thread: accepts, reads and answers what has come. False: there was nothing."""
        return self._serve(0.0)

    # -- own

    def _loop(self) -> None:
        while not self.ending.is_set():
            self._serve(self._turn())

    def _serve(self, wait: float | None) -> bool:
        ready = {key.fileobj for key, _ in self._selector.select(wait)}
        # In the order of the envs, whatever the selector's is: what a fault does to the envs behind it must not
        # depend on that. New connections come last, so that the end of an old one is seen first.
        for sock in [sock for sock in self.partial if sock in ready]:
            if sock in self.partial and not self.ending.is_set():  # it may have been closed in this round
                with contextlib.suppress(EngineStopped):
                    self._read(sock)
        if self.listener is not None and self.listener in ready and not self.ending.is_set():
            with contextlib.suppress(EngineStopped):
                self._accept()
        return bool(ready)

    def _accept(self) -> None:
        assert self.listener is not None
        sock, _ = self.listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(0.05)
        self.partial[sock] = b""
        self._watch(sock)
        self._take(sock)

    def _read(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(65536)
        except OSError as error:
            data = b""
            self.lost_by = error
        if not data:
            self._gone(sock)
            return
        for line in self._cut(sock, data):
            if line.strip() and sock in self.partial:  # an answer may have ended the session
                self._answer(sock, line)

    def rest(self, seconds: float) -> None:
        """Waits; raises EngineStopped where it is to end meanwhile."""
        if self.ending.wait(seconds):
            raise EngineStopped

    def _send(self, sock: socket.socket, data: bytes) -> None:
        if not self._send_all(sock, data):
            self.close_clients()
            raise EngineStopped

    def close_one(self, sock: socket.socket, reset: bool = False) -> None:
        """Closes one connection; `reset`: with a RST."""
        self._unwatch(sock)
        self.partial.pop(sock, None)
        if reset:
            reset_at_close(sock)
        sock.close()

    def close_clients(self, reset: bool = False) -> None:
        """Closes every connection; `reset`: with a RST."""
        for sock in list(self.partial):
            self.close_one(sock, reset)
        self.env_socks.clear()
        self.admin = None
