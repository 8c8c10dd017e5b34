"""Who listens on a port: a look that costs no connection."""

from __future__ import annotations

import socket

import pytest

from ue_rl.connections.launching.listening import _url, somebody_listens


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


@pytest.mark.parametrize(
    ("listens", "dialled"),
    [
        ("::ffff:127.0.0.1", "tcp://127.0.0.1:7801"),  # so does Java, on a socket for both families
        ("::ffff:0.0.0.0", "tcp://127.0.0.1:7801"),
        ("::", "tcp://127.0.0.1:7801"),
        ("::1", "tcp://[::1]:7801"),
        ("10.0.0.5", "tcp://10.0.0.5:7801"),
    ],
)
def test_an_address_is_dialled_as_people_write_it(listens: str, dialled: str) -> None:
    assert _url(listens, 7801) == dialled
