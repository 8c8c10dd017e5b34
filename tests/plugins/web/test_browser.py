"""The browser that a trainer starts, and `ue-rl train --page`."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import webbrowser
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

pytest.importorskip("stable_baselines3", reason="the extra train is not installed: a trainer plays here")

from click.testing import CliRunner

import ue_rl
import ue_rl.cli.train as train_command
from tests.plugins.web.pages import CHROMIUM, WEB, Page
from tests.support.listening import free_port
from tests.support.waiting import eventually
from ue_rl.cli.train import train
from ue_rl.connections.dialling import open_transport
from ue_rl.system import errors

CARTS = WEB / "carts"
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


def browsers(folder: Path) -> list[psutil.Process]:
    """The processes of the headless browsers that show a page of this folder, and of their keepers none."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        shown = [word for word in words if word.startswith(folder.as_uri())]
        if shown and "--headless" in words and "python" not in words[0]:
            found.append(process)
    return found


@needs_chromium
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.skipif(os.name != "posix", reason="it looks at how programs were called")
def test_a_headless_browser_lives_as_long_as_its_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is killed, the run goes on with another one. Each gets the token, which nobody reads."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # of the page that leads to the address with the token
    token = tmp_path / "token"
    token.write_text("a secret & of +these% tests")
    token.chmod(0o600)
    url = f"page://127.0.0.1:{free_port()}?serve={CARTS}&browser=headless&token-file={token}"
    env = ue_rl.connect(url, reconnect=60.0, wait=60.0)
    try:
        env.reset()
        env.step(np.zeros((16, 1), np.float32))
        first = browsers(tmp_path)
        assert first
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                assert "secret" not in " ".join(each.cmdline()), each
        all_of_them = [process for each in first for process in (each, *each.children(recursive=True))]
        for process in all_of_them:  # one of its others would answer for a moment yet
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(all_of_them, timeout=20)
        _, _, dones, infos = env.step(np.zeros((16, 1), np.float32))
        assert dones.all()
        assert infos[0]["TimeLimit.truncated"]
        env.step(np.zeros((16, 1), np.float32))
        assert browsers(tmp_path)
    finally:
        env.close()
    eventually(lambda: not browsers(tmp_path))


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.skipif(os.name != "posix", reason="the stand-in is a shell script")
def test_a_browser_that_ends_is_named_with_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMIUM", script(tmp_path / "browser", "echo no fonts here; exit 3"))
    with pytest.raises(errors.EngineNotStarted, match="no fonts here"):
        open_transport(f"page://127.0.0.1:{free_port()}?serve={CARTS}&browser=headless", wait=30.0)


def test_no_browser_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMIUM", "/no/such/browser")
    with pytest.raises(errors.ConfigurationError, match="Chromium was not found"):
        open_transport(f"page://127.0.0.1:{free_port()}?serve={CARTS}&browser=headless", wait=30.0)


@pytest.mark.parametrize("url", ["page://127.0.0.1:1?browser=headless", "page://127.0.0.1:1?serve=.&browser=firefox"])
def test_a_browser_with_nothing_to_show_is_refused(url: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="browser"):
        open_transport(url)


@pytest.mark.parametrize("display", ["", ":0"])
def test_the_users_browser_is_shown_the_page_once_where_there_is_a_display(
    display: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(webbrowser, "open", shown.append)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    port = free_port()
    with Page(port, again=True):
        for _ in range(2):
            open_transport(f"page://127.0.0.1:{port}?serve={CARTS}&browser=open", wait=10.0).close()
    assert shown == ([f"http://127.0.0.1:{port}/"] if display else [])
    assert ("there is no display" in caplog.text) == (not display)


@pytest.fixture
def understood(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `ue-rl train` has understood; nothing is trained."""
    seen: list[dict[str, Any]] = []

    def stop(given: dict[str, Any], *_: Any, **__: Any) -> None:
        seen.append(given)
        raise errors.ConfigurationError("stopped")

    monkeypatch.setattr(train_command, "resolve", stop)
    return seen


@pytest.mark.parametrize(
    ("words", "url", "reconnect"),
    [
        (["--page", "."], "page://127.0.0.1:7780?serve=HERE&browser=open", 60.0),
        (["--page", ".", "--headless"], "page://127.0.0.1:7780?serve=HERE&browser=headless", 60.0),
        (["--page", ".", "--port", "81", "--reconnect", "5s"], "page://127.0.0.1:81?serve=HERE&browser=open", 5.0),
    ],
)
def test_the_flags(
    understood: list[dict[str, Any]], words: list[str], url: str, reconnect: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CARTS)
    CliRunner().invoke(train, words)
    assert understood[0]["url"] == url.replace("HERE", str(CARTS))
    assert understood[0]["reconnect"] in (reconnect, f"{reconnect:g}s")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--headless"], "--headless is for the page of --page"),
        (["--page", ".", "tcp://a:1"], "--page is short for a URL"),
        (["--page", "nothing-here"], "does not exist"),
        (["--page", "cats & dogs"], "has a &"),
    ],
)
def test_flags_that_do_not_go_together(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cats & dogs").mkdir()
    done = CliRunner().invoke(train, words)
    assert done.exit_code == 2
    assert said in done.output
