"""An engine that says what a test lets it say."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def engine(
    play: Callable[[socket.socket, socket.socket], None], family: int = socket.AF_INET, host: str = "127.0.0.1"
) -> Iterator[int]:
    """A listener whose first client is handed to `play(listener, client)`; yields the port."""
    listener = socket.create_server((host, 0), family=family)

    def run() -> None:
        client, _ = listener.accept()
        with client, contextlib.suppress(OSError):  # the test's client has gone
            client.settimeout(5)
            play(listener, client)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
        thread.join(5)
        assert not thread.is_alive()
