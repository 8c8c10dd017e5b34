"""Pages over TLS, and pages that prove a token."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus
from websockets.sync.client import connect

from tests.plugins.web.pages import (
    CHROMIUM,
    NODE,
    ROOT,
    WEB,
    Page,
    chromium,
    dial,
    knock,
    needs_node,
    process,
)
from tests.support.listening import free_port
from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.dialling import open_transport
from ue_rl.plugins.web.page_port import PagePort, PortSetup
from ue_rl.system import errors

CERTS = ROOT / "tests" / "security" / "certs"
CARTS = WEB / "carts"
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


def trusting(own: str | None = None) -> ssl.SSLContext:
    """Of who dials, with a certificate of its own or not."""
    context = ssl.create_default_context(cafile=CERTS / "ca.pem")
    if own is not None:
        context.load_cert_chain(CERTS / own)
    return context


@contextmanager
def door(**options: Any) -> Iterator[PagePort]:
    """A port with TLS and a place for a page, where nobody waits for one."""
    port = PagePort.at("127.0.0.1", free_port(), "", PortSetup.of(cert=CERTS / "engine.pem", **options))
    try:
        yield port
    finally:
        port.leave("")


def steps(transport: BaseTransport, count: int = 3) -> None:
    """So many, each of which is answered."""
    spec = transport.spec
    transport.reset()
    transport.receive()
    for _ in range(count):
        transport.send_actions(np.zeros((spec.num_envs, spec.act_size), np.float32))
        transport.receive()


def test_a_page_over_tls() -> None:
    port = free_port()
    with Page(port, again=True, ssl=trusting()):
        with open_transport(f"page://127.0.0.1:{port}?cert={CERTS / 'engine.pem'}", wait=20.0, timeout=10.0) as env:
            steps(env, 20)
            assert env.describe()["transport"] == "websocket of a page with tls"


@needs_node
def test_node_dials_wss() -> None:
    assert NODE is not None
    port = free_port()
    words = [NODE, "--no-warnings", "--experimental-websocket", str(CARTS / "node.js"), f"wss://127.0.0.1:{port}"]
    with process(["env", f"NODE_EXTRA_CA_CERTS={CERTS / 'ca.pem'}", *words]):
        with open_transport(f"page://127.0.0.1:{port}?cert={CERTS / 'engine.pem'}", wait=30.0) as env:
            steps(env, 100)


@needs_chromium
@pytest.mark.exhaustive
def test_chromium_dials_wss_and_proves_a_token(token: Path) -> None:
    """A page from https:// dials wss:// by itself; its token stands in the address's fragment."""
    port = free_port()
    url = f"page://127.0.0.1:{port}?cert={CERTS / 'engine.pem'}&serve={CARTS}&token-file={token}"
    with chromium(f"https://127.0.0.1:{port}/#token={quote(token.read_text())}", "--ignore-certificate-errors"):
        with open_transport(url, wait=60.0, connect_timeout=20.0) as env:
            steps(env, 100)


def test_files_over_tls() -> None:
    with door(serve=CARTS) as port:
        assert port.url("") == f"wss://127.0.0.1:{port.port}/"
        assert port.page("left") == f"https://127.0.0.1:{port.port}/#engine=left"
        connection = http.client.HTTPSConnection("127.0.0.1", port.port, timeout=10, context=trusting())
        connection.request("GET", "/carts.js")
        assert b"class Carts" in connection.getresponse().read()


@pytest.mark.parametrize(
    ("origin", "let_in"), [("https://127.0.0.1:PORT", True), ("http://127.0.0.1:PORT", False), ("https://other", False)]
)
def test_origins_over_tls(origin: str, let_in: bool) -> None:
    with door() as port:
        said: Any = origin.replace("PORT", str(port.port))
        if let_in:
            knock(port.port, origin=said, ssl=trusting())
        else:
            with pytest.raises(InvalidStatus, match="403"):
                dial(port.port, origin=said, ssl=trusting())


def test_who_speaks_no_tls_is_dropped() -> None:
    with door() as port:
        with socket.create_connection(("127.0.0.1", port.port), timeout=10) as visitor:
            visitor.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert b"HTTP" not in visitor.recv(4096)
        knock(port.port, ssl=trusting())


def test_a_browsers_certificate_is_asked_for() -> None:
    with door(ca=CERTS / "ca.pem") as port:
        knock(port.port, ssl=trusting("trainer.pem"))
        # A client of TLS 1.3 is told behind its own handshake: by an alert, or by an end where it reads an answer.
        with pytest.raises((ssl.SSLError, ConnectionError, ConnectionClosed, InvalidMessage)):
            sock = socket.create_connection(("127.0.0.1", port.port), timeout=10)
            with sock, connect(f"wss://127.0.0.1:{port.port}/", sock=sock, ssl=trusting()) as page:
                page.recv(timeout=10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (f"key={CERTS / 'engine.pem'}", "TLS needs a certificate"),
        (f"cert={CERTS / 'make.sh'}", "make.sh cannot be used for TLS"),
        ("cert=/no/such/file", "cannot be used for TLS"),
    ],
    ids=["a key alone", "no certificate", "no file"],
)
def test_files_that_cannot_be_used(options: str, words: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=words):
        open_transport(f"page://127.0.0.1:{free_port()}?{options}")


def test_one_port_has_one_certificate() -> None:
    with door() as port, pytest.raises(errors.ConfigurationError, match="is open already, with another certificate"):
        PagePort.at("127.0.0.1", port.port, "left")


@pytest.fixture
def token(tmp_path: Path) -> Path:
    """The file of one that an address must encode."""
    path = tmp_path / "token"
    path.write_text("a secret & of +these% tests")
    path.chmod(0o600)
    return path


# That a browser which we open gets it, and nobody reads it: test_browser.py.
def test_without_a_browser_it_is_said_that_a_token_is_asked_for(token: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(errors.EngineUnreachable):
        open_transport(f"page://127.0.0.1:{free_port()}?token-file={token}", wait=0.2)
    assert "with #token=.. behind the page's address" in caplog.text
    assert "secret" not in caplog.text
