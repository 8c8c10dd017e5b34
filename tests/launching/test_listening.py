"""Who listens on a port: a look that costs no connection."""

from __future__ import annotations

import socket

import pytest

from ue_rl.launching.listening import somebody_listens


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_only_who_listens_is_seen(host: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        try:
            server.bind((host, 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        port = server.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)):
            assert not somebody_listens(port) or not hasattr(socket, "AF_NETLINK")
        server.listen()
        assert somebody_listens(port)


def test_where_the_system_cannot_be_asked_a_slower_look_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "AF_NETLINK", raising=False)
    assert somebody_listens(1)
