"""A server of a few lines, in threads of this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


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
