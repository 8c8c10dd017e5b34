"""The files that the port serves: those of a folder, and nothing else, to who asks it by its own name."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.listening import free_port
from ue_rl.connections.dialling import address_of, open_transport
from ue_rl.plugins.web.page_port import PagePort, PortSetup
from ue_rl.plugins.web.site import Site
from ue_rl.system.errors import ConfigurationError

Get = Callable[..., "http.client.HTTPResponse"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A page, a module, and a secret beside the folder."""
    served = tmp_path / "game"
    (served / "parts" / "wide").mkdir(parents=True)
    (served / "index.html").write_text("first")
    (served / "other.html").write_text("other")
    (served / "game.js").write_text("export {}")
    (served / "parts" / "index.html").write_text("parts")
    (served / "a name.wasm").write_bytes(b"\0asm")
    (tmp_path / "secret").write_text("secret")
    return served


@pytest.fixture
def get(folder: Path) -> Iterator[Get]:
    """get("/path", first page): the answer."""
    number = free_port()
    ports: list[PagePort] = []

    def ask(path: str, first: str = "", host: str = "", method: str = "GET") -> http.client.HTTPResponse:
        setup = PortSetup(site=Site(folder / first if first else folder))
        ports.append(PagePort.at("127.0.0.1", number, str(len(ports)), setup))
        connection = http.client.HTTPConnection("127.0.0.1", number, timeout=10)
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host or f"127.0.0.1:{number}")
        connection.endheaders()
        return connection.getresponse()

    yield ask
    for n, port in enumerate(ports):
        port.leave(str(n))


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        ("/", "text/html; charset=utf-8", b"first"),
        ("/index.html?1", "text/html; charset=utf-8", b"first"),
        ("/game.js", "text/javascript; charset=utf-8", b"export {}"),
        ("/a%20name.wasm", "application/wasm", b"\0asm"),
        ("/parts/", "text/html; charset=utf-8", b"parts"),
        ("//./game.js", "text/javascript; charset=utf-8", b"export {}"),
    ],
)
def test_a_file(get: Get, path: str, kind: str, body: bytes) -> None:
    answer = get(path)
    assert (answer.status, answer.getheader("Content-Type"), answer.read()) == (200, kind, body)
    assert answer.getheader("Cache-Control") == "no-store"


@pytest.mark.parametrize(
    "path",
    ["/../secret", "/%2e%2e/secret", "/..%2fsecret", "/parts/..%5c..%5csecret", "/nothing", "/a%00b", "/parts/wide/"],
)
def test_what_is_not_there(get: Get, path: str) -> None:
    answer = get(path)
    assert answer.status == 404
    assert b"secret" not in answer.read().replace(path.encode(), b"").replace(b"/secret", b"").replace(b"\\secret", b"")


def test_another_first_page_and_a_folder_without_its_slash(get: Get) -> None:
    answer = get("/", "other.html")
    assert (answer.status, answer.getheader("Location")) == (302, "/other.html")
    answer = get("/parts")
    assert (answer.status, answer.getheader("Location")) == (302, "/parts/")


def test_a_name_that_leads_here_by_somebody_elses_will_gets_nothing(get: Get) -> None:
    assert get("/", host="game.example:80").status == 421


def test_other_methods_get_nothing(get: Get) -> None:
    with contextlib.suppress(http.client.RemoteDisconnected):  # websockets before version 17 refuses it without a word
        assert get("/", method="POST").status == 405


@pytest.mark.parametrize("missing", ["", "nothing.html"])
def test_no_page_to_serve_is_named_before_anybody_dials(tmp_path: Path, missing: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match="a folder"):
        open_transport(f"page://127.0.0.1:{free_port()}?serve={tmp_path / 'empty' / missing}")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("page://localhost:1", "page://localhost:1"),
        ("page://[::1]:1/left", "page://[::1]:1/left"),
        ("page://a:1/", "page://a:1"),
        ("page://a:1?origin=http://my_host:5173,null&serve=.", "page://a:1?origin=http://my_host:5173,null&serve=."),
    ],
)
def test_an_address_has_one_canonical_form(text: str, canonical: str) -> None:
    assert str(address_of(text)) == canonical
    assert address_of(canonical) == address_of(text)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("page://a:1/left/right", "the name of its page"),
        ("page://a:1?origin=localhost", "origin must be an origin such as http://localhost:5173"),
        ("page://a:1?origin=http://a/b", "without a path"),
        ("page://a:1?serve=/no/such/folder", "serve must be a folder or a page that is there"),
        ("page://a:1?channel=shared", "its options are origin, serve, browser, token-file, ca, cert, key"),
        ("tcp://a:1?serve=.", "'serve' cannot stand behind the"),
    ],
)
def test_a_wrong_part_is_named(text: str, part: str) -> None:
    with pytest.raises(ConfigurationError, match=part):
        address_of(text)
