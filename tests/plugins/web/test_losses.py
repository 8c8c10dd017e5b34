"""A page that is reloaded, closed, cut off or stopped in the middle of a run: the run goes on with the next one."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.sync.client import ClientConnection

pytest.importorskip("stable_baselines3", reason="the extra train is not installed: a trainer plays here")

import ue_rl
from tests.plugins.web.devtools import DevTools, watched
from tests.plugins.web.pages import CHROMIUM, CONFIG, WEB, Page, needs_node, node
from tests.support.listening import free_port
from tests.support.slack import patient
from tests.support.waiting import when
from ue_rl.connections.dialling import open_transport
from ue_rl.connections.engines.lifecycle import LifeState
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.system import errors

CARTS = WEB / "carts"
ACTIONS = np.zeros((16, 1), np.float32)


def lost_once(env: UnrealVecEnv, within: int = 20_000) -> None:
    """Steps until one ends all episodes as truncated, which no episode of the carts does by itself at once."""
    for _ in range(within):
        _, _, dones, infos = env.step(ACTIONS)
        if dones.all() and all(info["TimeLimit.truncated"] for info in infos):
            assert all(np.isfinite(info["terminal_observation"]).all() for info in infos)
            return
    raise AssertionError("nothing was lost")


def when_lost(env: UnrealVecEnv, undo: Callable[[], object]) -> None:
    """Undoes what stands in the way of the engine as soon as it is given up."""
    when(lambda: env.transport.lives[0].state not in (LifeState.PLAYING, LifeState.EPISODE_OVER), undo)


def goes_on(env: UnrealVecEnv) -> None:
    """Episodes run, and end by themselves."""
    for _ in range(30):
        obs, _, _, _ = env.step(ACTIONS)
        assert np.isfinite(obs).all()


def reload(tools: DevTools) -> None:
    """As with F5."""
    tools.page("Page.reload")


def close_and_open(tools: DevTools) -> None:
    """Its tab is closed, and the address opened in another one."""
    old = tools.target()
    url = tools.page("Runtime.evaluate", expression="location.href")["result"]["value"]
    tools.browser("Target.createTarget", url="about:blank")  # a browser without a tab would end
    tools.browser("Target.closeTarget", targetId=old)
    tools.browser("Target.createTarget", url=url)


def stop_for_longer_than_the_timeout(tools: DevTools) -> None:
    """In the debugger, as by a breakpoint; two minutes of 30 s are three seconds of one here."""
    tools.page("Debugger.enable")
    tools.page("Debugger.pause")
    threading.Timer(3.0, lambda: tools.page("Debugger.resume")).start()


def freeze(tools: DevTools) -> None:
    """As a browser that saves energy does to a hidden tab. Chromium ends a page's WebSockets when it wakes it."""
    tools.page("Page.setWebLifecycleState", state="frozen")
    tools.page("Page.setWebLifecycleState", state="active")


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
@pytest.mark.parametrize(
    "happens",
    [
        reload,
        pytest.param(freeze, marks=pytest.mark.exhaustive),
        pytest.param(close_and_open, marks=pytest.mark.exhaustive),
        pytest.param(stop_for_longer_than_the_timeout, marks=pytest.mark.exhaustive),
    ],
)
def test_in_a_browser(happens: Callable[[DevTools], None]) -> None:
    port = free_port()
    with watched(f"http://127.0.0.1:{port}/") as tools:
        env = ue_rl.connect(f"page://127.0.0.1:{port}?serve={CARTS}", reconnect=60.0, wait=60.0, timeout=1.0)
        try:
            env.reset()
            goes_on(env)
            happens(tools)
            lost_once(env)
            goes_on(env)
        finally:
            env.close()


def test_the_port_stays_open_after_a_loss() -> None:
    """A browser asks once for a page that is reloaded, perhaps before the trainer waits for it again."""
    port = free_port()

    def play_until_the_step(page: ClientConnection) -> None:
        page.send(CONFIG)
        lines = filter(None, page)
        next(lines)
        page.send("OBS=0;REW=0;DONE=0;ENV=0")
        next(lines)

    with ExitStack() as pages:
        pages.enter_context(Page(port, play_until_the_step))
        transport = open_transport(f"page://127.0.0.1:{port}?serve={CARTS}", reconnect=60.0, wait=30.0, timeout=10.0)
        with closing(transport):
            transport.reset()
            transport.receive()
            transport.send_actions(ACTIONS[:1])
            assert transport.receive().lost == {0}
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
                assert b"<script" in answer.read()
            pages.enter_context(Page(port))
            transport.reset()
            assert not transport.receive().lost
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=30)


@needs_node
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="the system cannot stop a process")
def test_a_page_that_stands_still_is_named_and_dialled_again() -> None:
    """Without reconnect= the run ends with a sentence; with it, it goes on once the page does."""
    port = free_port()
    with node(CARTS / "node.js", f"ws://127.0.0.1:{port}") as page:
        with open_transport(f"page://127.0.0.1:{port}", wait=30.0, timeout=20.0) as transport:
            transport.reset()
            transport.receive()
            transport.timeout = 0.5
            os.kill(page.pid, signal.SIGSTOP)
            transport.send_actions(ACTIONS)
            with pytest.raises(errors.EngineTimeout, match=r"answered 0 of 16 envs within 0\.5 s"):
                transport.receive()
        os.kill(page.pid, signal.SIGCONT)
        env = ue_rl.connect(f"page://127.0.0.1:{port}", reconnect=60.0, wait=30.0, timeout=0.5)
        try:
            env.reset()
            goes_on(env)
            os.kill(page.pid, signal.SIGSTOP)
            when_lost(env, lambda: os.kill(page.pid, signal.SIGCONT))
            lost_once(env, 1)
            goes_on(env)
        finally:
            env.close()


class Wire:
    """Between a page and its trainer; what is said on it can be swallowed, as by a network that was cut."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.cut = False
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                page, _ = self._listener.accept()
                try:
                    trainer = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    page.close()
                    continue
                self._sockets += [page, trainer]
                for ends in ((page, trainer), (trainer, page)):
                    threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65_536):
                if not self.cut:
                    other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def mend(self) -> None:
        """The network is there again; connections from before it are not."""
        self._end()
        self.cut = False

    def close(self) -> None:
        """Ends all."""
        self._listener.close()
        self._end()

    def _end(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):  # it has ended itself
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._sockets.clear()


@contextmanager
def a_wire(to: int) -> Iterator[Wire]:
    """See Wire."""
    wire = Wire(to)
    try:
        yield wire
    finally:
        wire.close()


@needs_node
def test_a_network_that_is_cut_without_a_word() -> None:
    port = free_port()
    with a_wire(port) as wire, node(CARTS / "node.js", f"ws://127.0.0.1:{wire.port}"):
        env = ue_rl.connect(f"page://127.0.0.1:{port}", reconnect=60.0, wait=30.0, timeout=0.5)
        try:
            env.reset()
            goes_on(env)
            wire.cut = True
            when_lost(env, wire.mend)
            lost_once(env, 1)
            goes_on(env)
        finally:
            env.close()


def test_an_answer_that_comes_too_late_is_nobodys() -> None:
    """It came on the connection that was given up; the next page's numbers are its own."""
    port, lives = free_port(), []
    given_up = threading.Event()

    def play(page: Any) -> None:
        obs = 0
        page.send("CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=1;VERSION=1;CHANNEL=SHARED")
        for n, line in enumerate(filter(None, page)):
            if n == 0:  # it is the engine now, and was not refused because of the other one
                lives.append(page)
                obs = len(lives)
            if obs == 1 and n == 2:
                given_up.wait(30)
            page.send(f"OBS={obs};REW=0;DONE=0;ENV=0")
            assert line

    with Page(port, play, again=True), Page(port, play, again=True):
        env = ue_rl.connect(f"page://127.0.0.1:{port}", reconnect=60.0, wait=30.0, timeout=patient(1.0))
        try:
            env.reset()
            env.step(np.zeros((1, 1), np.float32))
            obs, _, dones, infos = env.step(np.zeros((1, 1), np.float32))
            given_up.set()
            assert (dones[0], infos[0]["TimeLimit.truncated"]) == (True, True)
            assert infos[0]["terminal_observation"][0] == 1
            for _ in range(5):
                assert obs[0, 0] > 1
                obs, _, dones, _ = env.step(np.zeros((1, 1), np.float32))
                assert not dones[0]
        finally:
            env.close()


@needs_node
def test_without_a_page_a_training_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As over TCP: nobody dials again, and the run ends with what it has learnt so far."""
    from click.testing import CliRunner

    from ue_rl.cli.train import train

    monkeypatch.chdir(tmp_path)
    port = free_port()

    def has_learnt() -> bool:  # which the second line of its table tells
        # The run's folder alone: what is within comes and goes meanwhile.
        return any(len(file.read_text().splitlines()) > 1 for file in tmp_path.glob("*/*/progress.csv"))

    with node(CARTS / "node.js", f"ws://127.0.0.1:{port}") as page:
        when(has_learnt, page.kill, 90)
        words = [f"page://127.0.0.1:{port}?wait=30s", "--timesteps", "1000000", "--timeout", "2s", "--n-steps", "8"]
        done = CliRunner().invoke(train, words)
    assert done.exit_code != 0
    assert list(tmp_path.rglob("*.zip"))
    assert "page" in done.output
