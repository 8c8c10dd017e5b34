"""What the deployed plugin needs beyond the protocol: NUL bytes for its SINGLE and RLBASE, and patience."""

from __future__ import annotations

import errno
import itertools
import logging
import socket
import sys
import time

import numpy as np
import pytest

import ue_rl
from ue_rl import errors, keepalive
from ue_rl.bridges import run_in_thread
from ue_rl.connections import open_engine
from ue_rl.connections.tcp.connection import SingleTcpConnection
from ue_rl.connections.tcp.link import Link
from ue_rl.testing import PluginStandIn
from ue_rl.testing.do_nothing import DoNothingBridge

ACTIONS = [[0.5, -0.25], [0.0, 0.125], [-0.123456, 1.0], [1.0, 1.0]]  # of different lengths as text


def taken(game: PluginStandIn, **options: object) -> list[str]:
    """The lines that the game took for a reset and ACTIONS, and a reset again."""
    with open_engine("127.0.0.1", game.port, timeout=1.0, **options) as connection:
        connection.reset()
        connection.receive()
        for action in ACTIONS:
            connection.send_actions(np.array([action], np.float32))
            connection.receive()
        connection.reset()
        connection.receive()
    return [line.partition(";ENV=")[0] for _, _, line in game.lines]


def wanted(env_type: str) -> list[str]:
    with PluginStandIn(env_type=env_type, num_envs=1) as game:
        return taken(game)


@pytest.mark.parametrize("compiled", [None, False])
@pytest.mark.parametrize("env_type", ["SINGLE", "RLBASE"])
def test_with_nul_bytes_a_game_that_reads_stale_memory_takes_each_line_once(
    env_type: str, compiled: bool | None
) -> None:
    with PluginStandIn(env_type=env_type, stale_reads=True) as game:
        assert taken(game, nul_terminated=True, compiled=compiled) == wanted(env_type)


@pytest.mark.parametrize("env_type", ["SINGLE", "RLBASE"])
def test_without_them_it_does_not(env_type: str) -> None:
    with PluginStandIn(env_type=env_type, stale_reads=True) as game:
        try:
            lines = taken(game)
        except errors.UeRlError:
            return  # a second answer
        assert lines != wanted(env_type)


def test_the_end_of_rlbase_has_one_too() -> None:
    with PluginStandIn(env_type="RLBASE", stale_reads=True) as game:
        connection = open_engine("127.0.0.1", game.port, nul_terminated=True)
        assert isinstance(connection, SingleTcpConnection)
        connection.reset()
        connection.receive()
        connection.finish()
        while not game.aborted:
            time.sleep(0.001)
    assert [line for _, _, line in game.lines] == ["RESET", "TRAINING_COMPLETE"]


def test_who_reads_rightly_gets_none(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ue_rl.connections")
    with PluginStandIn(num_envs=1) as game:
        assert taken(game, nul_terminated=True) == wanted("MULTI")
    with run_in_thread(DoNothingBridge(1)) as server:
        ue_rl.connect(server.url, nul_terminated=True).close()
    assert "\0" not in "".join(line for _, _, line in game.lines)
    assert "no NUL bytes are sent" in caplog.text


def test_the_first_answer_may_take_as_long_as_the_plugin_needs_to_accept_all_envs() -> None:
    with PluginStandIn(num_envs=8, accept_interval=0.1) as game:
        env = ue_rl.connect(game.url, timeout=0.4)  # 8 connections take 0.9 s
        env.reset()
        env.step(np.zeros((8, 2), np.float32))
        env.close()


def test_only_the_first_answer_may() -> None:
    with PluginStandIn(num_envs=2, action_ticks=[1, 10**9], tick_rate=200) as game:
        env = ue_rl.connect(game.url, timeout=0.3)
        env.reset()
        with pytest.raises(errors.EngineTimeout, match=r"1 of 2 envs within 0\.3 s"):
            env.step(np.zeros((2, 2), np.float32))


def test_a_late_rlbase_engine_is_not_asked_for_other_sockets() -> None:
    with PluginStandIn(env_type="RLBASE", action_ticks=10**9, tick_rate=200) as game:
        env = ue_rl.connect(game.url, timeout=0.3)
        env.reset()
        with pytest.raises(errors.EngineTimeout) as caught:
            env.step(np.zeros((1, 2), np.float32))
            env.step(np.zeros((1, 2), np.float32))
    assert "channel" not in str(caught.value)


@pytest.mark.parametrize("channel", ["shared", "per_env"])
def test_the_system_watches_over_an_idle_connection(channel: str) -> None:
    with run_in_thread(DoNothingBridge(2)) as server:
        connection = open_engine("127.0.0.1", server.port, transport="tcp", channel=channel)
        links = [connection._admin, *connection._wiring.links]  # type: ignore[union-attr]
        for link, (name, value) in itertools.product(links, keepalive._OPTIONS):
            assert link is not None
            assert link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if hasattr(socket, name):
                assert link.sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value
        connection.close()


class GivenUp:
    """A socket whose keepalive found nobody: it fails once with ETIMEDOUT, and then as a closed one."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._told = False

    def recv(self, *_: object) -> bytes:
        if self._told:
            return b""
        self._told = True
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    def recv_into(self, *_: object) -> int:
        return len(self.recv())

    def send(self, *_: object) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)


@pytest.mark.skipif(sys.platform == "win32", reason="there ETIMEDOUT is the end of a slice, too")
@pytest.mark.parametrize("ready", [True, False], ids=["between two steps", "while it waits"])
def test_a_peer_that_the_system_has_given_up(ready: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a cable was pulled."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link = Link(socket.create_connection(listener.getsockname()[:2]), 1024)
        lost = GivenUp(link.sock)
        monkeypatch.setattr(link, "sock", lost)
        monkeypatch.setattr(link, "_receive", lost.recv_into)
        with pytest.raises(errors.EngineDisconnected, match="machine does not answer any more") as caught:
            if ready:
                assert not link.has_stray_data()
                link.send(b"ACT=0\n", time.monotonic() + 1)
            else:
                link.next_span(time.monotonic() + 1)
        assert caught.value.fault == "network"
        link.close()
