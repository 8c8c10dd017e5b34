"""Servers of a few lines, in threads of this process."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ue_rl.connections.launching import ports

_CHOSEN: deque[ports.ReservedPort] = deque()


def free_port() -> int:
    """A port on which nobody listens.

    Not one of those that the system hands out (port 0): on a busy machine somebody else has it before it is used.
    """
    if len(_CHOSEN) == 64:  # each is an open file, and the tests that had the oldest have ended
        _CHOSEN.popleft().release()
    _CHOSEN.append(ports.find())
    return _CHOSEN[-1].number


@contextmanager
def serving(serve: Callable[[socket.socket], object]) -> Iterator[tuple[str, int]]:
    """Its address; it calls `serve` with each connection, in a thread of its own, and closes the connection then."""

    def one(sock: socket.socket) -> None:
        with sock, suppress(OSError):
            serve(sock)

    def accept() -> None:
        with suppress(OSError):  # nobody listens any more
            while True:
                threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[:2]
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


@contextmanager
def nobody() -> Iterator[int]:
    """A port on which nobody listens, nor can anybody else: this process is bound to it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@contextmanager
def engine(
    play: Callable[[socket.socket, socket.socket], None], family: int = socket.AF_INET, host: str = "127.0.0.1"
) -> Iterator[int]:
    """A listener whose first client is handed to `play(listener, client)`; yields the port."""
    listener = socket.create_server((host, 0), family=family)

    def run() -> None:
        client, _ = listener.accept()
        with client, suppress(OSError):  # the test's client has gone
            client.settimeout(20)
            play(listener, client)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
        thread.join(25)
        assert not thread.is_alive()
