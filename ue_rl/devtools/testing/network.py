"""FaultyNetwork: a loopback TCP proxy between a trainer and an engine, which fails when told to. Knows no protocol.

    with FaultyNetwork(engine.url) as network:
        env = ue_rl.connect(network.url)
        network.delay = 0.05              every piece arrives 50 ms later, both ways
        network.cut(1)                    closes the second connection; reset=True: with RST instead of FIN
        network.hold()                    half-open: nothing is forwarded any more, all sockets stay; release() goes on
        network.garble(b"\\xff" * 64)      garbage for the trainer, in the middle of the stream
        network.piece = 1                 single bytes
        network.refuse()                  nobody listens any more; accept() listens again, on the same port

Shared memory that was negotiated over a proxied connection keeps that socket as its doorbell, so that cut() and hold()
strike there, too. Where the engine does not listen, a connection is taken and reset at once.
"""

from __future__ import annotations

import contextlib
import math
import queue
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Literal
from urllib.parse import urlsplit

from ue_rl.devtools.testing.engines.loop import EngineLoop
from ue_rl.system.keepalive import reset_at_close

__all__ = ["FaultyNetwork"]

_CHUNK = 65_536
_FULL = 1 << 20  # bytes that may be under way in one direction
_AGAIN = 0.001  # seconds until a full socket is tried again
Side = Literal["trainer", "engine"]


class _Way:
    """One direction of a connection: what was read and is not yet written."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.pieces: deque[tuple[float, bytes]] = deque()  # (when it is due, the bytes)
        self.size = 0
        self.not_before = 0.0
        self.ended = False  # the source has no more
        self.told = False  # and the target knows

    def put(self, data: bytes, due: float) -> None:
        self.pieces.append((due, data))
        self.size += len(data)


class _Line:
    """One connection through the proxy."""

    def __init__(self, trainer: socket.socket, engine: socket.socket) -> None:
        self.sockets = {"trainer": trainer, "engine": engine}
        self.ways = {"engine": _Way(trainer, engine), "trainer": _Way(engine, trainer)}  # by where it goes
        self.held = False
        self.open = True


class FaultyNetwork(EngineLoop):
    """The proxy, in a thread of its own. Use as a context manager, or `start()` and `close()`.

    Args:
        engine: tcp://HOST:PORT of the engine; it need not run yet.

    Attributes:
        url: what the trainer connects to; host, port: its parts.
        delay: seconds that each piece is under way, set at any time. piece: bytes a piece has at most, 0: any number.
        pause: seconds between two pieces.
        count: connections that were accepted so far; they are numbered from 0 in that order.
    """

    def __init__(self, engine: str) -> None:
        parts = urlsplit(engine)
        if parts.scheme != "tcp" or not parts.hostname or not parts.port:
            raise ValueError(f"not tcp://HOST:PORT: {engine!r}")
        self._engine = (parts.hostname, parts.port)
        self.delay = self.pause = 0.0
        self.piece = 0
        self._lines: list[_Line] = []
        self._hold_new = False
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        super().__init__("faulty-network", "127.0.0.1", 128)
        assert self.listener is not None
        self._watch(self.listener)

    @property
    def count(self) -> int:
        """Connections accepted so far."""
        return len(self._lines)

    # -- blows; each has happened when it returns

    def cut(self, connection: int | None = None, *, reset: bool = False) -> None:
        """Closes connection number `connection` on both sides, None: all; what is under way is lost.

        Args:
            reset: with RST, as a crashed host or a firewall does; otherwise in good order.
        """

        def job() -> None:
            for line in self._chosen(connection):
                self._close_line(line, reset)

        self._do(job)

    def hold(self, connection: int | None = None) -> None:
        """Half-open: nothing is read or forwarded, the sockets stay. None: all connections, new ones too."""
        self._do(lambda: self._set_held(connection, True))

    def release(self, connection: int | None = None) -> None:
        """Ends `hold`; what came meanwhile arrives now."""
        self._do(lambda: self._set_held(connection, False))

    def garble(self, data: bytes, connection: int = 0, to: Side = "trainer") -> None:
        """Puts `data` into the stream of one connection, behind what is already under way."""
        self._do(lambda: self._lines[connection].ways[to].put(data, 0.0))

    def refuse(self) -> None:
        """Stops listening: further connections are refused. Open ones stay."""
        self._do(self.close_listener)

    def accept(self) -> None:
        """Listens again, on the same port.

        Raises:
            OSError: another process has taken it.
        """
        if self.listener is None:
            listener = socket.create_server(self.address, backlog=128)
            self._do(lambda: self._use(listener))

    # -- the loop

    def _do(self, job: Callable[[], object]) -> None:
        done = threading.Event()
        failed: list[BaseException] = []

        def run() -> None:
            try:
                job()
            except (IndexError, OSError) as error:
                failed.append(error)
            finally:
                done.set()

        self._jobs.put(run)
        self._wake_in.send(b"x")
        if not done.wait(10):
            raise RuntimeError("the network's thread has ended")
        if failed:
            raise failed[0]

    def _use(self, listener: socket.socket) -> None:
        self.listener = listener
        self._watch(listener)

    def _loop(self) -> None:
        while not self.ending.is_set():
            now = time.monotonic()
            due = min((self._due(line, way) for line in self._lines for way in line.ways.values()), default=math.inf)
            ready = {key.fileobj for key, _ in self._selector.select(None if due == math.inf else max(0.0, due - now))}
            if self._wake_out in ready:
                self._wake_out.recv(4096)
                while not self._jobs.empty():
                    self._jobs.get()()
            if self.listener is not None and self.listener in ready:
                self._take()
            for line in self._lines:
                for way in line.ways.values():
                    if line.open and way.source in ready:
                        self._read(line, way)
                for way in line.ways.values():
                    if line.open and not line.held:
                        self._write(line, way)
                self._rewatch(line)

    def _due(self, line: _Line, way: _Way) -> float:
        if not line.open or line.held or not way.pieces:
            return math.inf
        return max(way.pieces[0][0], way.not_before)

    def _take(self) -> None:
        assert self.listener is not None
        trainer, _ = self.listener.accept()
        try:
            engine = socket.create_connection(self._engine, timeout=5)
        except OSError:
            reset_at_close(trainer)
            trainer.close()
            return
        for sock in (trainer, engine):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setblocking(False)
        line = _Line(trainer, engine)
        line.held = self._hold_new
        self._lines.append(line)

    def _read(self, line: _Line, way: _Way) -> None:
        try:
            data = way.source.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self._close_line(line, reset=True)
            return
        if data:
            due = 0.0
            if self.delay:
                due = time.monotonic() + self.delay
            way.put(data, due)
        else:
            way.ended = True

    def _write(self, line: _Line, way: _Way) -> None:
        now = time.monotonic()
        while way.pieces and way.pieces[0][0] <= now and way.not_before <= now:
            due, data = way.pieces.popleft()
            try:
                size = self.piece
                if not size:
                    size = len(data)
                sent = way.target.send(data[:size])
            except BlockingIOError:
                sent = 0
                way.not_before = now + _AGAIN
            except OSError:
                self._close_line(line, reset=True)
                return
            way.size -= sent
            if sent < len(data):
                way.pieces.appendleft((due, data[sent:]))
            if self.pause and sent:
                way.not_before = now + self.pause
        if way.ended and not way.pieces and not way.told:
            way.told = True
            with contextlib.suppress(OSError):
                way.target.shutdown(socket.SHUT_WR)
            if all(other.told for other in line.ways.values()):
                self._close_line(line, reset=False)

    def _rewatch(self, line: _Line) -> None:
        for way in line.ways.values():
            wanted = line.open and not line.held and not way.ended and way.size < _FULL
            watched = line.open and way.source in self._selector.get_map()
            if wanted and not watched:
                self._selector.register(way.source, selectors.EVENT_READ)
            elif watched and not wanted:
                self._unwatch(way.source)

    def _chosen(self, connection: int | None) -> list[_Line]:
        if connection is None:
            return self._lines
        return [self._lines[connection]]

    def _set_held(self, connection: int | None, held: bool) -> None:
        if connection is None:
            self._hold_new = held
        for line in self._chosen(connection):
            line.held = held

    def _close_line(self, line: _Line, reset: bool) -> None:
        if line.open:
            line.open = False
            for sock in line.sockets.values():
                self._unwatch(sock)
                if reset:
                    reset_at_close(sock)
                sock.close()

    def close_clients(self) -> None:
        """Closes every connection."""
        for line in self._lines:
            self._close_line(line, reset=False)
