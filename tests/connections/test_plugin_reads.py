"""What the deployed plugin needs beyond the protocol: NUL bytes for its SINGLE and RLBASE, and patience."""

from __future__ import annotations

import errno
import itertools
import logging
import select
import socket
import time
from typing import Any, cast

import numpy as np
import pytest

import ue_rl
from tests.support.clocks import SLICE_MS, EngineClock
from tests.support.games import Sum
from tests.support.steps import advance, begin
from tests.support.vanishing import can_vanish, vanish
from ue_rl.bridges import run_in_thread
from ue_rl.cli.do_nothing import DoNothingBridge
from ue_rl.connections import open_engine
from ue_rl.connections.tcp.greeting import shake_hands
from ue_rl.connections.tcp.kinds import SingleTcpConnection, go_on
from ue_rl.connections.tcp.link import Link
from ue_rl.devtools.testing import PluginStandIn
from ue_rl.protocol.spec import EnvSpec, EnvType
from ue_rl.protocol.text import decode_handshake
from ue_rl.protocol.text.limits import needs_nuls
from ue_rl.system import errors, keepalive
from ue_rl.system.timing import Timing

ACTIONS = [[0.5, -0.25], [0.0, 0.125], [-0.123456, 1.0], [1.0, 1.0]]  # of different lengths as text


def taken(game: PluginStandIn, **options: object) -> list[str]:
    """The lines that the game took for a reset and ACTIONS, and a reset again."""
    with open_engine("127.0.0.1", game.port, **{"timeout": 10.0, **options}) as connection:
        begin(connection)
        for action in ACTIONS:
            advance(connection, np.array([action], np.float32))
        begin(connection)
    return [line.partition(";ENV=")[0] for _, _, line in game.lines]


def wanted(env_type: str) -> list[str]:
    with PluginStandIn(env_type=env_type, num_envs=1) as game:
        return taken(game)


@pytest.mark.parametrize("compiled", [None, False])
@pytest.mark.parametrize("env_type", ["SINGLE", "RLBASE"])
@pytest.mark.parametrize("nul_terminated", [None, True])
def test_with_nul_bytes_a_game_that_reads_stale_memory_takes_each_line_once(
    nul_terminated: bool | None, env_type: str, compiled: bool | None
) -> None:
    with PluginStandIn(env_type=env_type, stale_reads=True) as game:
        assert taken(game, nul_terminated=nul_terminated, compiled=compiled) == wanted(env_type)


@pytest.mark.parametrize("env_type", ["SINGLE", "RLBASE"])
@pytest.mark.parametrize("act_size", [*range(508, 515), 1023, 1024])
def test_lines_that_the_game_reads_in_pieces(act_size: int, env_type: str) -> None:
    """It reads 1024 bytes at a time; these lines have so many, or twice that, or a few more or less."""
    actions = [np.full((1, act_size), value, np.float32) for value in (0.123, 0, 0.5, 1)]
    actions[3][0, :3] = 0.5, -1, -1
    lines = {}
    for stale in (False, True):
        with PluginStandIn(env_type=env_type, act_size=act_size, stale_reads=stale) as game:
            with open_engine("127.0.0.1", game.port, timeout=10.0, nul_terminated=stale or None) as connection:
                begin(connection)
                for action in actions:
                    advance(connection, action)
            lines[stale] = [line for _, _, line in game.lines]
    assert lines[True] == lines[False] == ["ACT=RESET" if env_type == "SINGLE" else "RESET", *lines[True][1:]]
    assert [line.count(",") for line in lines[True][1:]] == [act_size - 1] * 4


@pytest.mark.parametrize("env_type", list(EnvType))
def test_bridges_of_version_0_read_them(env_type: EnvType) -> None:
    """Also in the middle of a long line."""
    spec = EnvSpec(1, 600, env_type=env_type, num_envs=1, version=0)
    seen = []

    game = Sum(spec)
    game.in_step = lambda actions: seen.append(float(actions.mean()))
    with run_in_thread(game, port=0) as server, open_engine("127.0.0.1", server.port, timeout=10.0) as connection:
        begin(connection)
        for value in (0.125, -1, 0.5):
            advance(connection, value)
    assert seen == [0.125, -1, 0.5]


def test_an_engine_that_is_not_the_plugin_gets_none_by_itself() -> None:
    """The plugin names no CHANNEL."""
    for handshake, nuls in [
        ("CONFIG:OBS=1;ACT=1;ENV_TYPE=SINGLE;CHANNEL=SHARED", False),
        ("CONFIG:OBS=1;ACT=1;ENV_TYPE=SINGLE;VERSION=1;CHANNEL=SHARED", False),
        ("CONFIG:OBS=1;ACT=1;ENV_TYPE=SINGLE;VERSION=1", False),
        ("CONFIG:OBS=1;ACT=1;ENV_TYPE=SINGLE", True),
        ("CONFIG:OBS=1;ACT=1", True),
    ]:
        assert needs_nuls(decode_handshake(handshake.encode()), None) == nuls, handshake


@pytest.mark.parametrize("env_type", ["SINGLE", "RLBASE"])
def test_without_them_it_does_not(env_type: str) -> None:
    with PluginStandIn(env_type=env_type, stale_reads=True) as game:
        try:
            lines = taken(game, nul_terminated=False, timeout=1.0)
        except errors.UeRlError:
            return  # a second answer
        assert lines != wanted(env_type)


def test_the_end_of_rlbase_has_one_too() -> None:
    with PluginStandIn(env_type="RLBASE", stale_reads=True) as game:
        connection = open_engine("127.0.0.1", game.port)
        assert isinstance(connection, SingleTcpConnection)
        begin(connection)
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
    with PluginStandIn(num_envs=8, accept_interval=0.06) as game:
        env = ue_rl.connect(game.url, timeout=0.2, connect_timeout=20)  # 9 connections take 0.5 s, and may take 1
        env.reset()
        env.transport.timeout = 20
        env.step(np.zeros((8, 2), np.float32))
        env.close()


def played(**options: Any) -> tuple[PluginStandIn, dict[str, Any]]:
    """A game that ticks when the trainer looks at its clock, and what to connect with."""
    game = PluginStandIn(manual=True, **options)
    return game, {"timeout": 20, "timing": EngineClock(game.tick).timing}


def test_only_the_first_answer_may() -> None:
    game, how = played(num_envs=2, action_ticks=[1, 10**9])
    with game:
        env = ue_rl.connect(game.url, **how)
        env.reset()
        env.transport.timeout = 0.3
        with pytest.raises(errors.EngineTimeout, match=f"1 of 2 envs within {env.transport.timeout:g} s"):
            env.step(np.zeros((2, 2), np.float32))


@pytest.mark.parametrize("env_type", ["MULTI", "SINGLE"])
@pytest.mark.parametrize("at_reset", [False, True])
def test_a_late_plugin_is_not_asked_for_the_shared_channel(at_reset: bool, env_type: str) -> None:
    """It has none. Another engine of version 0 that never answers may have nothing else."""
    game, how = played(env_type=env_type, action_ticks=10**9)
    with game:
        env = ue_rl.connect(game.url, **how)
        if at_reset:
            game.aborted = "it stands still"
        else:
            env.reset()
            env.reset()
        env.transport.timeout = 0.3
        with pytest.raises(errors.EngineTimeout) as caught:
            env.reset() if at_reset else env.step(np.zeros((env.num_envs, 2), np.float32))
        game.aborted = None
    assert "channel='shared'" not in str(caught.value)
    assert ("If it is not the plugin: does it skip the NUL byte" in str(caught.value)) == (env_type == "SINGLE")
    assert ("not the Unreal plugin, and wants one socket" in str(caught.value)) == at_reset


def test_a_late_rlbase_engine_is_not_asked_for_other_sockets() -> None:
    game, how = played(env_type="RLBASE", action_ticks=10**9)
    with game:
        env = ue_rl.connect(game.url, **how)
        env.reset()
        env.transport.timeout = 0.3
        with pytest.raises(errors.EngineTimeout) as caught:
            env.step(np.zeros((1, 2), np.float32))
            env.step(np.zeros((1, 2), np.float32))
    assert "channel" not in str(caught.value)


@pytest.mark.parametrize("channel", ["shared", "per_env"])
def test_the_system_watches_over_an_idle_connection(channel: str) -> None:
    with run_in_thread(DoNothingBridge(2)) as server:
        connection = open_engine("127.0.0.1", server.port, transport="tcp", channel=channel)
        links = [connection._admin, *connection._wiring.links]  # type: ignore[union-attr]
        for link, (name, value) in itertools.product(links, keepalive.OPTIONS):
            assert link is not None
            assert link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            if hasattr(socket, name):
                assert link.sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value
        connection.close()


@can_vanish
@pytest.mark.parametrize("ready", [True, False], ids=["between two steps", "while it waits"])
def test_a_peer_that_the_system_has_given_up(ready: bool) -> None:
    """As after a cable was pulled."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link = Link(socket.create_connection(listener.getsockname()[:2]), 1024)
        link.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 50)  # milliseconds, instead of 20 s
        vanish(link.sock)
        link.send(b"ACT=0\n", time.monotonic() + 1)
        with pytest.raises(errors.EngineDisconnected, match="machine does not answer any more") as caught:
            if ready:
                given_up = select.poll()
                given_up.register(link.sock, select.POLLERR)
                assert given_up.poll(10_000)
                assert not link.has_stray_data()
                link.send(b"ACT=0\n", time.monotonic() + 1)
            else:
                link.next_span(time.monotonic() + 10)
        assert caught.value.fault == "network"
        link.close()


class ReadsLate:
    """A socket whose peer reads the last word after many looks."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.refused = 0
        self.took = b""

    def send(self, data: bytes) -> int:
        if bytes(data).startswith(b"TRAINING_COMPLETE"):
            if self.refused < 500:
                self.refused += 1
                raise BlockingIOError(errno.EAGAIN, "not yet")
            self.took = bytes(data)
        return self._sock.send(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)


def test_the_last_word_to_an_rlbase_engine_may_wait_as_long_as_a_step() -> None:
    """An engine that reads late still hears that training is over."""
    timing = Timing(itertools.count().__next__, slice_ms=SLICE_MS)  # a second for each look
    with PluginStandIn(env_type="RLBASE", num_envs=1) as game:
        # The handshake goes by the real clock: on a busy machine it may take more than ten looks.
        first, spec = shake_hands("127.0.0.1", game.port, 10.0, 0.0, None, Timing())
        late = ReadsLate(first.sock)
        link = Link(cast(socket.socket, late), 1 << 20, timing)
        link.lines.feed(first.lines.unread())  # the engine speaks first
        connection = go_on(link, spec, "127.0.0.1", game.port, timeout=1000.0, timing=timing)
        begin(connection)
        connection.finish()  # type: ignore[union-attr]
    assert late.refused == 500
    assert late.took.rstrip(b"\0\n") == b"TRAINING_COMPLETE"
