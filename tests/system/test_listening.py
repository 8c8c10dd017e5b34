"""A name that has several addresses is listened on at each of them, on one port, whatever serves there."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from typing import Any

import pytest

from ue_rl.system.listening import listeners

V4 = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
V6 = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0))
V4_AGAIN = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", 0))


@pytest.fixture
def resolves(monkeypatch: pytest.MonkeyPatch) -> Any:
    """resolves(addresses): what "localhost" stands for."""
    ask = socket.getaddrinfo

    def answer(host: Any, *more: Any, **how: Any) -> Any:
        return found if host == "localhost" else ask(host, *more, **how)

    found: list[Any] = []
    monkeypatch.setattr(socket, "getaddrinfo", answer)

    def to(*addresses: Any) -> None:
        found[:] = addresses

    return to


def test_each_address_of_a_name_has_the_same_port(resolves: Any) -> None:
    resolves(V4, V4, V4_AGAIN)
    with ExitStack() as stack:
        sockets = [stack.enter_context(each) for each in listeners("localhost", 0, 5)]
        port = sockets[0].getsockname()[1]
        assert port
        assert [each.getsockname() for each in sockets] == [("127.0.0.1", port), ("127.0.0.2", port)]
        with pytest.raises(OSError, match=r"in use|permitted"):
            listeners("localhost", port, 5)


def test_a_family_that_this_machine_has_not_is_left_out(resolves: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make = socket.create_server

    def create(address: Any, *, family: int = socket.AF_INET, **more: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "no IPv6 here")
        return make(address, family=family, **more)

    monkeypatch.setattr(socket, "create_server", create)
    resolves(V4, V6)
    (sock,) = listeners("localhost", 0, 5)
    with sock:
        assert sock.getsockname()[0] == "127.0.0.1"
    resolves(V6)
    with pytest.raises(OSError, match="no IPv6"):
        listeners("localhost", 0, 5)
