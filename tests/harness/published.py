"""A published port (docker -p, ssh -L): it accepts before the game listens, and closes at once.

python -m tests.harness.published --port PORT --late SECONDS      with the game behind it in the same process
"""

from __future__ import annotations

import argparse
import contextlib
import select
import socket
import struct
import threading
from typing import Any

from tests.support.games import Sum
from ue_rl.bridges import run_in_thread
from ue_rl.protocol.spec import EnvSpec


class PublishedPort:
    """Listens from the start; passes bytes on once `open_to` has named the port of the game.

    Args:
        resets: connections are ended by a reset, and not by the end of what is sent.

    Attributes:
        refused: connections that were accepted and closed.
    """

    def __init__(self, port: int = 0, resets: bool = False) -> None:
        self._resets = resets
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = self._listener.getsockname()[1]
        self.refused = 0
        self._target: int | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def open_to(self, target: int) -> None:
        """The game listens there."""
        self._target = target

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                target = self._target
                if target is None:
                    self.refused += 1
                    if self._resets:
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    sock.close()
                else:
                    threading.Thread(target=self._pass_on, args=(sock, target), daemon=True).start()

    @staticmethod
    def _pass_on(sock: socket.socket, target: int) -> None:
        # A game that has ended, or ends in mid-session, closes what leads to it: as a proxy of Docker's does.
        with contextlib.suppress(OSError), sock, socket.create_connection(("127.0.0.1", target)) as game:
            other: dict[Any, Any] = {sock: game, game: sock}
            while True:
                for ready in select.select([sock, game], [], [])[0]:
                    data = ready.recv(1 << 16)
                    if not data:
                        return
                    other[ready].sendall(data)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--late", type=float, default=1.0)
    parser.add_argument("--resets", action="store_true")
    given = parser.parse_args()
    published = PublishedPort(given.port, given.resets)
    never = threading.Event()
    never.wait(given.late)
    with run_in_thread(Sum(EnvSpec(1, 1))) as game:
        published.open_to(game.port)
        never.wait()


if __name__ == "__main__":
    main()
