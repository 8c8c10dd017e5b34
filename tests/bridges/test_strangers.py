"""Connections that are no part of a session: port probes, scanners, second trainers, sockets whose machine has gone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from typing import Any

import pytest

import ue_rl
from tests.support.clocks import fast
from tests.support.games import bridge
from tests.support.steps import begin
from tests.support.streams import ask, dial, greeted, hosting, largest_turn, line, say, settle
from ue_rl.bridges import BridgeServer, run_in_thread
from ue_rl.bridges.tcp.pending import PendingConnections
from ue_rl.bridges.tcp.server import ServerWaits
from ue_rl.connections import open_engine
from ue_rl.protocol.spec import Channel
from ue_rl.system import errors

ALL = "ACT=RESET;ENV=0||ACT=RESET;ENV=1\n"


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("stays", [False, True])
async def test_a_silent_stranger_does_not_end_the_session_of_a_trainer_that_prepares(stays: bool, version: int) -> None:
    options: dict[str, Any] = {} if version else {"channel": None, "version": 0}
    async with hosting(bridge(**options)) as server:
        trainer = await greeted(server)
        probe = await dial(server)
        await settle()
        if not stays:
            probe[1].close()
            await settle()
        assert (await ask(trainer, ALL)).startswith("OBS=0;REW=0;DONE=0;ENV=0||")
        if stays and version:
            assert (await line(probe)).startswith("BUSY;SINCE=")
        assert server.sessions == 1


@pytest.mark.parametrize("said", ["", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "\x16\x03\x01", "hello\n"])
@pytest.mark.parametrize("when", [0, 1, 2])
async def test_a_stranger_between_env_sockets_is_none_of_them(
    said: str, when: int, caplog: pytest.LogCaptureFixture
) -> None:
    waits = ServerWaits(patience=20.0)  # behind which a silent one would be taken
    async with hosting(bridge(), waits=waits) as server:
        _admin = await greeted(server)  # which stays
        envs = []
        for n in range(2):
            if n == when:
                stranger = await dial(server)
                await say(stranger, said)
                await settle()
            envs.append(await dial(server))
            await say(envs[-1], "ACT=RESET\n")
            await settle()
        if when == 2:
            stranger = await dial(server)
            await say(stranger, said)
        for n, env in enumerate(envs):
            assert await line(env) == f"OBS=0;REW=0;DONE=0;ENV={n}\n"
        if said:
            rest = await asyncio.wait_for(stranger[0].read(), 20)
            assert b"CONFIG" not in rest
            assert "which no trainer says before it is served" in caplog.text
        await say(envs[1], "ACT=3\n")
        assert await line(envs[1]) == "OBS=3;REW=0;DONE=0;ENV=1\n"
        assert server.sessions == 1


async def test_env_sockets_of_which_one_is_silent_are_taken_after_a_while() -> None:
    async with hosting(bridge(), waits=ServerWaits(patience=0.05)) as server:
        streams = [await dial(server) for _ in range(3)]
        assert (await line(streams[0])).startswith("CONFIG")
        await say(streams[2], "ACT=RESET\n")
        assert await line(streams[2]) == "OBS=0;REW=0;DONE=0;ENV=1\n"


@pytest.mark.parametrize("stranger", [False, True])
@pytest.mark.parametrize("version", [0, 1])
async def test_env_sockets_may_be_silent_for_long(version: int, stranger: bool, slack: float) -> None:
    """The plugin's own trainer: its worker processes connect one by one, and speak when all of them run."""
    waits = ServerWaits(silence=0.03 * slack)  # the probe is gone sooner than in four fifths of it
    options: dict[str, Any] = {} if version else {"channel": None, "version": 0}
    async with hosting(bridge(**options), waits=waits) as server:
        admin = await greeted(server)
        envs = []
        for _ in range(2):
            envs.append(await dial(server))
            await asyncio.sleep(0.07 * slack)
        if stranger:
            gone = await dial(server)
            gone[1].close()  # a port probe
            probe = await dial(server)
            await asyncio.sleep(0.07 * slack)
        for streams in envs:
            await say(streams, "ACT=RESET\n")
        for n, streams in enumerate(envs):
            assert await line(streams) == f"OBS=0;REW=0;DONE=0;ENV={n}\n"
        assert server.sessions == 1
        if stranger:
            for streams in [*envs, admin]:
                streams[1].close()
            said = await line(probe)
            assert (await line(probe) if said.startswith("BUSY") else said).startswith("CONFIG")


async def test_a_probe_among_silent_env_sockets_holds_nobody_up() -> None:
    """A first connection that closes is no session, whoever waits behind it."""
    async with hosting(bridge()) as server:
        probe = await greeted(server)
        trainer = await dial(server)
        await settle()
        probe[1].close()
        assert (await line(trainer)).startswith("CONFIG")


@pytest.mark.parametrize("channel", list(Channel))
async def test_who_says_nothing_gives_way_to_who_waits(channel: Channel, caplog: pytest.LogCaptureFixture) -> None:
    async with hosting(bridge(channel=channel), waits=ServerWaits(silence=0.1, starting=1)) as server:
        silent = await greeted(server)
        following = await dial(server)
        said = await line(following)
        if said.startswith("BUSY"):
            said = await line(following)
        assert said.startswith("CONFIG")
        assert (await line(silent)).startswith("ERROR=it%20has%20said%20nothing")
        assert "it has said nothing for 0.1 s, and somebody else waits" in caplog.text


async def test_a_trainer_that_waited_in_vain_was_no_env_socket() -> None:
    """Behind a silent connection that stays open, the next trainer is served as soon as one has given up."""
    async with hosting(bridge(), waits=ServerWaits(silence=0.2)) as server:
        silent = await greeted(server)
        gives_up = await dial(server)
        await asyncio.sleep(0.5)
        assert server.sessions == 1
        gives_up[1].close()
        await settle()
        await greeted(server)
        assert (await line(silent)).startswith("ERROR=it%20has%20said%20nothing")


def test_ours_waits_for_its_turn_behind_a_silent_connection() -> None:
    """It is not told that it has to wait: it might be an env socket of the silent one, whose address is the same."""
    # Its clock is a hundred times as fast: half a minute, behind which it dials once more, is 0.3 s.
    timing = fast(100)
    with run_in_thread(bridge(), waits=ServerWaits(silence=0.2)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as silent:
            assert silent.recv(6) == b"CONFIG"
            with pytest.raises(errors.HandshakeError, match=r"sent no handshake.*within 10 s"):
                open_engine("127.0.0.1", server.port, transport="tcp", connect_timeout=10, timing=timing)
            options: dict[str, Any] = {"connect_timeout": 10, "timeout": 2000, "wait": 2000, "timing": timing}
            connection = open_engine("127.0.0.1", server.port, transport="tcp", **options)
            begin(connection)
            connection.close()


async def test_a_trainer_that_has_spoken_may_be_silent_for_ever() -> None:
    async with hosting(bridge(), waits=ServerWaits(silence=0.02)) as server:
        trainer = await greeted(server)
        await say(trainer, "\n")
        waiting = await dial(server)
        assert (await line(waiting)).startswith("BUSY")
        await asyncio.sleep(0.1)
        assert (await ask(trainer, ALL)).startswith("OBS=0;")


def test_ours_says_at_once_that_it_is_there() -> None:
    """So a trainer that prepares for long is not taken for a port probe, on any wiring."""
    for channel in Channel:
        with run_in_thread(bridge(channel=channel)) as server:
            for wiring in ["auto"] if channel is not Channel.ANY else ["shared", "per_env"]:
                env = ue_rl.connect(server.url, transport="tcp", channel=wiring, timeout=20)
                probe = socket.create_connection(("127.0.0.1", server.port))
                probe.settimeout(20)
                assert probe.recv(5) == b"BUSY;"
                env.reset()
                probe.close()
                env.close()


async def test_a_peer_whose_machine_has_gone_is_found_within_about_a_minute() -> None:
    async with hosting(bridge()) as server:
        trainer = await greeted(server)
        sock = server._members[0]._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for name, most in (
            ("TCP_KEEPIDLE", 30),
            ("TCP_KEEPINTVL", 10),
            ("TCP_KEEPCNT", 3),
            ("TCP_USER_TIMEOUT", 60_000),
        ):
            if hasattr(socket, name):
                assert 0 < sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) <= most
        trainer[1].close()


async def test_a_turn_of_the_loop_accepts_a_few_connections_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crowd of hundreds must not keep the one that is served waiting."""
    assert await largest_turn(BridgeServer, hosting(bridge()), monkeypatch) <= 4


async def test_a_crowd_is_told_of_in_one_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    async with hosting(bridge()) as server:
        began = time.monotonic()
        trainer = await greeted(server)
        await ask(trainer, ALL)
        crowd = [await dial(server) for _ in range(60)]
        for streams in crowd[-20:]:
            await asyncio.wait_for(streams[0].read(), 20)
        lines = sum("was refused: 16 trainers wait" in record.getMessage() for record in caplog.records)
        assert 1 <= lines <= 4 + time.monotonic() - began
        for streams in [*crowd, trainer]:
            streams[1].close()


def test_a_connection_from_another_host_is_no_env_socket() -> None:
    """Each socket says where it comes from: those of another machine's trainer are not taken for the served one's."""

    class Waiting:
        told = gone = False
        heard = True

        def __init__(self, host: str) -> None:
            self.host = host

        def closed_by_peer(self) -> bool:
            return False

    queue, mine, theirs = PendingConnections(), Waiting("10.0.0.1"), Waiting("10.0.0.2")
    for one in (theirs, mine):
        queue.add(one)  # type: ignore[arg-type]
    for patient in (True, False):
        assert queue.env_sockets(2, "10.0.0.1", patient) == []
    second = Waiting("10.0.0.1")
    queue.add(second)  # type: ignore[arg-type]
    assert queue.env_sockets(2, "10.0.0.1", True) == [mine, second]
    assert [*queue] == [theirs]


async def test_whoever_says_a_mebibyte_before_it_is_served_is_sent_away(caplog: pytest.LogCaptureFixture) -> None:
    """What waits for its turn is kept, so it must not be kept without end."""
    async with hosting(bridge()) as server:
        trainer = await greeted(server)
        assert (await ask(trainer, ALL)).startswith("OBS=0")
        waiting = await dial(server)
        assert (await line(waiting)).startswith("BUSY")
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                await say(waiting, "1" * 65_536)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(waiting[0].read(), 20) == b""
        assert "which no trainer says before it is served" in caplog.text
        assert (await ask(trainer, ALL)).startswith("OBS=0")
