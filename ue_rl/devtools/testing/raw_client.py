"""RawClient: a bare socket that sends bytes and reads lines, each wait with a deadline; knows no protocol."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

from ue_rl.system.readiness import ready_to_read


class RawClient:
    """A connected line socket.

    Args:
        address: (host, port).
        timeout: seconds that each wait may take.
    """

    def __init__(self, address: tuple[str, int], timeout: float = 20.0) -> None:
        self.timeout = timeout
        self._buffer = b""
        self.sock = socket.create_connection(address, timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: str | bytes) -> None:
        """Sends `data` as it is, without adding a newline."""
        if isinstance(data, str):
            raw = data.encode()
        else:
            raw = data
        self.sock.sendall(raw)

    def ask(self, line: str) -> str:
        """Sends `line` with a newline, and reads one line."""
        self.send(line + "\n")
        return self.line()

    def line(self) -> str:
        """The next line, without its newline.

        Raises:
            TimeoutError: none came in time.
            ConnectionError: the peer closed before a line was whole.
        """
        deadline = time.monotonic() + self.timeout
        while b"\n" not in self._buffer:
            if not (chunk := self._receive(deadline)):
                raise ConnectionError(f"closed by the peer after {self._buffer!r}")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line.decode()

    def has_data(self) -> bool:
        """Whether anything (data or the peer's close) is there to be read; does not wait."""
        return bool(self._buffer) or bool(ready_to_read([self.sock], 0.0))

    def read_to_end(self) -> bytes:
        """Everything until the peer closes or resets the connection.

        Raises:
            TimeoutError: it did not close in time.
        """
        deadline = time.monotonic() + self.timeout
        data = self._buffer
        self._buffer = b""
        with suppress(ConnectionError):
            while chunk := self._receive(deadline):
                data += chunk
        return data

    def close(self) -> None:
        """Closes the socket; idempotent."""
        self.sock.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _receive(self, deadline: float) -> bytes:
        left = deadline - time.monotonic()
        try:
            if left <= 0:
                raise TimeoutError
            self.sock.settimeout(left)
            return self.sock.recv(65536)
        except TimeoutError:
            raise TimeoutError(f"no line within {self.timeout} s; so far {self._buffer!r}") from None
