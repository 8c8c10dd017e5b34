"""Pages as an engine that listens: `ue-rl check` dials it again and again, and speaks plain text with it.

Each connection is handed the next page that dials, which ue_rl.js does when its session has ended. One is served at a
time; who comes meanwhile is told BUSY, and waits.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from websockets.frames import CloseCode

from ue_rl.connections.base.address import split_place
from ue_rl.plugins.web.browser import opened
from ue_rl.plugins.web.connection import PATIENCE
from ue_rl.plugins.web.page_port import PagePort, PortSetup
from ue_rl.plugins.web.page_socket import PageSocket
from ue_rl.protocol.text.notices import error_line
from ue_rl.system.errors import EngineUnreachable, UeRlError
from ue_rl.system.readiness import ready_to_read, ready_to_write

_LOOK = 0.1  # seconds between two looks whether all is over
_REDIALS = 60.0  # seconds in which a page may dial again: browsers slow down the timers of a page that nobody sees
_FULL = 5.0  # seconds in which the other side must read


@contextmanager
def plain_text(
    place: str,
    *,
    wait: float = 0.0,
    browser: str | None = None,
    token: bytes | None = None,
    **options: Any,
) -> Iterator[tuple[str, int]]:
    """The socket's address at which the pages of such a place are reached; a first page has dialled.

    Args:
        place: HOST:PORT or HOST:PORT/NAME. wait: seconds for the first page; 0: five minutes. browser, options: as for
            `dialling.dial`.

    Raises:
        ConfigurationError, EngineUnreachable: no page has dialled; and what PagePort.at raises.
    """
    where, _, name = place.partition("/")
    host, number = split_place(where)
    port = PagePort.at(host, number, name, PortSetup.of(**options))
    with contextlib.ExitStack() as stack:
        stack.callback(port.leave, name)
        look = stack.enter_context(opened(browser, port.page(name), token))
        first = port.take(name, time.monotonic() + (wait or PATIENCE), look)
        gate = _Gate(port, name, first)
        stack.callback(gate.close)
        yield gate.address


class _Gate:
    """Listens, and passes on what trainer and page say.

    Args:
        port: where the pages dial. name: of their place. first: the page that is there.
    """

    def __init__(self, port: PagePort, name: str, first: PageSocket) -> None:
        self._port = port
        self._name = name
        self._first: PageSocket | None = first
        self._turn = threading.Lock()  # who holds it is served
        self._began = time.monotonic()
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_LOOK)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._threads = [threading.Thread(target=self._accept, name="ue_rl-page-gate", daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Ends all sessions."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()
        if self._first is not None:
            self._first.close_because(CloseCode.GOING_AWAY, "the trainer has ended")
            self._first.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                trainer, _ = self._listener.accept()
            except TimeoutError:
                continue
            trainer.settimeout(_FULL)
            trainer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(target=self._serve, args=(trainer,), name="ue_rl-page-gate-visitor", daemon=True)
            self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
            thread.start()

    def _serve(self, trainer: socket.socket) -> None:
        with closing(trainer), contextlib.suppress(OSError):  # it has gone
            told = False
            while not self._turn.acquire(timeout=_LOOK):
                if not told:
                    told = True
                    seconds = time.monotonic() - self._began
                    trainer.sendall(f"BUSY;SINCE={seconds:.1f};PEER=127.0.0.1\n".encode())
                if self._over.is_set() or _has_left(trainer):
                    return
            try:
                self._began = time.monotonic()
                self._converse(trainer)
            except (OSError, EngineUnreachable):  # either has gone
                pass
            finally:
                self._turn.release()

    def _converse(self, trainer: socket.socket) -> None:
        page = self._first
        self._first = None
        if page is None or not page.is_alive():

            def look() -> None:
                if self._over.is_set() or _has_left(trainer):
                    raise EngineUnreachable("the trainer has gone")

            page = self._port.take(self._name, time.monotonic() + _REDIALS, look, log=False)
        try:
            _pass_on(trainer, page, self._over)
        except UeRlError as error:  # what the page sends is no text within a WebSocket
            trainer.sendall(error_line(error.plain()))
        finally:
            page.close_because(CloseCode.GOING_AWAY, "the trainer has ended")
            page.close()


def _has_left(trainer: socket.socket) -> bool:
    if not ready_to_read([trainer], 0.0):
        return False
    try:
        return not trainer.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def _pass_on(trainer: socket.socket, page: PageSocket, over: threading.Event) -> None:
    """Until one of them ends; raises OSError or what `recv_into` of the page raises."""
    page.settimeout(0.0)
    said = b""  # by the trainer, of a line that has no end yet
    space = bytearray(65_536)
    both: list[socket.socket | PageSocket] = [trainer, page]
    while not over.is_set():
        ready = ready_to_read(both, _LOOK)
        if page in ready:
            with contextlib.suppress(BlockingIOError):
                while count := page.recv_into(space):
                    trainer.sendall(space[:count])
        if trainer in ready:
            came = trainer.recv(65_536)
            if not came:
                return
            said += came
            lines, feed, said = said.rpartition(b"\n")
            if feed:
                _send(page, lines + feed)


def _send(page: PageSocket, lines: bytes) -> None:
    until = time.monotonic() + _FULL
    while True:
        try:
            page.send(lines)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            ready_to_write([page], _LOOK)
