"""An address of a scheme that another distribution plugs in: served, dialled, inspected and checked."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from functools import partial
from typing import Any

import click
import pytest

import ue_rl
from tests.support.command_line import ok, run
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.cli.common import cannot_listen, listening_url
from ue_rl.cli.serve import host_at
from ue_rl.connections.base.address import Scheme, host_and_port, split_place
from ue_rl.connections.dialling import Hosting, SchemeHandler
from ue_rl.devtools.check import check
from ue_rl.system import errors
from ue_rl.system.plugins import plugins

# line://HOST:PORT: text, which offers nothing else.
LINE = SchemeHandler(
    Scheme("line://HOST:PORT", "line://127.0.0.1:7777", host_and_port, ("timeout", "connect_timeout", "wait")),
    "ue_rl.connections.opening:dial_tcp",
    Hosting(
        "ue_rl.bridges:serve",
        partial(host_and_port, lowest=0),
        lambda place: dict(zip(("host", "port"), split_place(place, 0), strict=True)),
    ),
    text_at=split_place,
)


@pytest.fixture(autouse=True)
def line(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A distribution is installed whose entry point names LINE."""
    place = tmp_path_factory.mktemp("site")
    about = place / "line-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: line\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[ue_rl.carriers]\nline = tests.cli.test_schemes:LINE\n")
    monkeypatch.syspath_prepend(place)
    plugins.cache_clear()
    yield
    plugins.cache_clear()


def test_it_is_dialled_inspected_and_checked() -> None:
    with run_in_thread(GymnasiumBridge("CartPole-v1", 2)) as engine:
        url = f"line://127.0.0.1:{engine.port}"
        env = ue_rl.connect(url)
        assert env.reset().shape == (2, 4)
        env.close()
        assert "tcp" in ok("inspect", url)
        report = check(url, only=["steps of all envs"])
        assert (report.address, report.mistakes) == (url, [])


def test_it_is_served(capsys: pytest.CaptureFixture[str]) -> None:
    found: list[str] = []

    def ready(host: Any) -> None:
        found.append(host.url)
        raise KeyboardInterrupt

    host_at(listening_url("line://127.0.0.1:0", None), GymnasiumBridge("CartPole-v1", 2), ready, shm=False)
    assert len(found) == 1
    assert capsys.readouterr().out == "stopped\n"
    with pytest.raises(errors.ConfigurationError, match="it has no options"):
        listening_url("line://127.0.0.1:0?timeout=2s", None)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--shm"], "line://HOST:PORT cannot: give one of them"),
        (["--token-file", "token"], "a token and TLS are for TCP; line://HOST:PORT takes neither"),
    ],
)
def test_what_it_cannot_do_is_refused(words: list[str], text: str, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text("0123456789abcdef" * 4)
    (tmp_path / "token").chmod(0o600)
    done = run("serve line://127.0.0.1:0 --env CartPole-v1", *words)
    assert done.exit_code == 2
    assert text in done.output


def test_shm_is_refused_at_an_address_of_shared_memory() -> None:
    """By what `ue-rl serve` and `ue-rl replay` have in common."""
    with pytest.raises(click.UsageError, match="shm://NAME cannot: give one of them"):
        host_at(listening_url("shm://arena", None), GymnasiumBridge("CartPole-v1", 2), print, shm=True)


def test_an_address_of_another_machine_is_not_told_as_a_port_that_is_taken() -> None:
    elsewhere = OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
    assert "an address of this machine" in str(cannot_listen("192.0.2.1:7777", elsewhere, "choose another port"))
    taken = OSError(errno.EADDRINUSE, "Address already in use")
    assert "Choose another port" in str(cannot_listen("127.0.0.1:7777", taken, "choose another port"))


def test_what_speaks_no_text_is_not_checked() -> None:
    forms = r"expected tcp://HOST:PORT or shm://NAME or line://HOST:PORT( or page://HOST:PORT)?; got grpc://"
    with pytest.raises(errors.ConfigurationError, match=forms):
        check("grpc://127.0.0.1:7777")
