"""The offer of another carrier in the handshake: taken, not taken, refused, and what is closed when."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from typing import Any

import numpy as np
import pytest

import ue_rl
from tests.support.games import Sum, bridge
from tests.support.streams import Streams
from ue_rl.bridges import BridgeServer, ShmUpgrader, run_in_thread
from ue_rl.bridges.tcp.server import ServerWaits
from ue_rl.bridges.tcp.session import EngineSession
from ue_rl.connections import open_engine
from ue_rl.protocol.spec import Channel, EnvSpec, EnvType
from ue_rl.system import errors


class Threaded:
    """A carrier for tests: two float32 up, two down, on the first connection, in a thread of its own."""

    def __init__(self, session: EngineSession, events: list[str]) -> None:
        self.session, self.events = session, events
        self.sock = session.detach()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        bridge = self.session.bridge
        while len(frame := self.sock.recv(8, socket.MSG_WAITALL)) == 8:
            with bridge.lock:
                bridge.inbox.actions[:, 0] = np.frombuffer(frame, np.float32)
                bridge.inbox.command[:] = bridge.inbox.STEP
                bridge.update_rl(0)
                bridge.answered[:] = 0
                self.sock.sendall(bridge.outbox.obs.tobytes())
        self.session.finish()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it has gone already
            self.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
        self.sock.close()
        self.events.append("close" if not self.thread.is_alive() else "hangs")


class Offers:
    """Makes the offers and writes down what became of them."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.made: list[Threaded] = []

    def offer(self, bridge: Any) -> str:
        self.events.append("offer")
        return f"segment,token{len(self.events)}"

    def accept(self, line: bytes, session: EngineSession) -> Any:
        if line == b"SHM=later":
            self.events.append("refuse")
            session.write(b"SHM=REFUSED\n")
            return None
        if line != b"SHM=segment":
            raise errors.UnexpectedMessage("another segment", fault="trainer", got=line)
        self.events.append("accept")
        self.made.append(Threaded(session, self.events))
        return self.made[-1]

    def withdraw(self) -> None:
        self.events.append("withdraw")


def hosting(offers: Offers, spec: EnvSpec | None = None, **options: Any) -> BridgeServer:
    bridge = Sum(spec or EnvSpec(1, 1, num_envs=2))
    return BridgeServer(bridge, port=0, upgrader=offers, **options)


async def dial(server: BridgeServer) -> tuple[Streams, str]:
    streams = await asyncio.open_connection("127.0.0.1", server.port)
    return streams, (await asyncio.wait_for(streams[0].readline(), 20)).decode()


async def exchange(streams: Streams, data: bytes, answer: int) -> bytes:
    streams[1].write(data)
    return await asyncio.wait_for(streams[0].readexactly(answer), 20)


def frame(*values: float) -> bytes:
    return np.array(values, np.float32).tobytes()


@pytest.mark.parametrize("options", [{}, {"tick_rate": 1000}])
async def test_taken_in_any_split_and_closed_at_the_end(options: dict[str, Any]) -> None:
    offers = Offers()
    async with hosting(offers, **options) as server:
        for whole in (True, False):
            trainer, config = await dial(server)
            assert config.endswith(f";SHM=segment,token{len(offers.events)}\n")
            line = b"\r\nSHM=segment\r\n"
            for part in [line] if whole else [line[i : i + 1] for i in range(len(line))]:
                trainer[1].write(part)
                await asyncio.sleep(0)
            while len(offers.made) <= offers.events.count("close"):
                await asyncio.sleep(0)
            server.bridge.outbox.obs[:] = 0
            ticks = server.bridge.lockstep.ticks
            for i in range(1, 4):
                assert await exchange(trainer, frame(1, 2), 8) == frame(i, 2 * i)
                await asyncio.sleep(0.005)  # time in which the server could tick, and must not
            assert server.bridge.lockstep.ticks == ticks + 3
            trainer[1].close()
            done = offers.events.count("close")
            while offers.events.count("close") == done:
                await asyncio.sleep(0)
        trainer, _ = await dial(server)  # one that is there when the server stops
        trainer[1].write(b"SHM=segment\n")
        while len(offers.made) < 3:
            await asyncio.sleep(0)
        assert await exchange(trainer, frame(0, 0), 8)
    assert await asyncio.wait_for(trainer[0].read(), 20) == b""
    assert offers.events == ["offer", "accept", "close"] * 3


@pytest.mark.parametrize("per_env", [False, True])
async def test_text_withdraws_the_offer(per_env: bool) -> None:
    offers = Offers()
    async with hosting(offers, waits=ServerWaits(patience=0.1)) as server:  # behind that silent env sockets are taken
        trainer, _ = await dial(server)
        if per_env:
            own = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
            own[1][1].write(b"ACT=RESET\n")
            assert await asyncio.wait_for(own[1][0].readline(), 20) == b"OBS=0;REW=0;DONE=0;ENV=1\n"
        else:
            trainer[1].write(b"ACT=RESET;ENV=1\nACT=2;ENV=0\n")  # what came behind the first line is not lost
            got = await asyncio.wait_for(trainer[0].readline(), 20)
            assert got == b"OBS=2;REW=0;DONE=0;ENV=0||OBS=0;REW=0;DONE=0;ENV=1\n"
        assert offers.events == ["offer", "withdraw"]
        trainer[1].close()
    assert offers.events == ["offer", "withdraw"]


@pytest.mark.parametrize("per_env", [False, True])
async def test_a_refused_trainer_goes_on_in_text(per_env: bool) -> None:
    offers = Offers()
    async with hosting(
        offers, EnvSpec(1, 1, num_envs=2, channel=Channel.PER_ENV if per_env else Channel.ANY)
    ) as server:
        trainer, _ = await dial(server)
        own = trainer
        assert await exchange(trainer, b"SHM=later\n", 12) == b"SHM=REFUSED\n"
        if per_env:
            own = await asyncio.open_connection("127.0.0.1", server.port)
            other = await asyncio.open_connection("127.0.0.1", server.port)
            other[1].write(b"\n")
        own[1].write(b"ACT=RESET;ENV=0\n")
        assert await asyncio.wait_for(own[0].readline(), 20) == b"OBS=0;REW=0;DONE=0;ENV=0\n"
        trainer[1].close()
    assert offers.events == ["offer", "refuse"]


async def test_refused_lines_and_trainers_that_leave(caplog: pytest.LogCaptureFixture) -> None:
    offers = Offers()
    async with hosting(offers) as server:
        for sent, error, said in (
            (b"SHM=other\n", "another segment", b"ERROR="),
            (b"SHM=segment\n12345678", "spoke before its offer was answered", b""),  # it is no text any more
        ):
            trainer, _ = await dial(server)
            trainer[1].write(sent)
            assert (await asyncio.wait_for(trainer[0].read(), 20))[:6] == said
            assert error in caplog.records[-1].getMessage()
            assert "broke the protocol" in caplog.records[-1].getMessage()
        trainer, _ = await dial(server)
        trainer[1].close()
        while offers.events[-1] != "withdraw":
            await asyncio.sleep(0)
        await dial(server)
    assert offers.events == ["offer", "withdraw", "offer", "accept", "close", "offer", "withdraw", "offer", "withdraw"]
    assert logging.ERROR in {record.levelno for record in caplog.records}


@pytest.mark.parametrize("spec", [EnvSpec(1, 1, EnvType.RLBASE), EnvSpec(1, 1, num_envs=2, version=0)])
async def test_no_offer_where_it_cannot_be_said(spec: EnvSpec) -> None:
    offers = Offers()
    async with hosting(offers, spec) as server:
        trainer, config = await dial(server)
        assert "SHM" not in config
        trainer[1].close()
    assert offers.events == []


async def test_without_an_offer_the_line_is_refused() -> None:
    async with BridgeServer(bridge(), port=0) as server:
        trainer, _ = await dial(server)
        trainer[1].write(b"SHM=segment\n")
        assert (await asyncio.wait_for(trainer[0].read(), 20)).startswith(b"ERROR=")


class ReadsAhead(asyncio.SelectorEventLoop):
    """Stands in for Windows' default event loop, which cannot give a socket away."""


async def test_a_loop_that_cannot_give_a_socket_away_makes_no_offer_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(asyncio, "ProactorEventLoop", type(asyncio.get_running_loop()), raising=False)
    offers = Offers()
    with caplog.at_level(logging.WARNING, "ue_rl.bridges.tcp.server"):
        async with hosting(offers) as server:
            for _ in range(2):
                trainer, config = await dial(server)
                assert "SHM" not in config
                trainer[1].close()
    (record,) = caplog.records  # once, at the start
    assert "cannot give a socket away" in record.getMessage()
    assert "SelectorEventLoop" in record.getMessage()
    assert offers.events == []


class ReadsAheadPolicy(asyncio.DefaultEventLoopPolicy):
    """Makes such loops, as Windows does."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return ReadsAhead()


def test_the_runners_choose_a_loop_on_which_upgrades_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio, "ProactorEventLoop", ReadsAhead, raising=False)
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(ReadsAheadPolicy())
    try:
        with run_in_thread(bridge(), upgrader=ShmUpgrader()) as engine:
            env = ue_rl.connect(engine.url, transport="shm", timeout=10)
            assert env.reset().tolist() == [[0], [0]]
            env.close()
    finally:
        asyncio.set_event_loop_policy(before)


def test_a_trainer_that_follows_at_once_is_not_told_that_the_one_before_it_is_served() -> None:
    """Trainers of version 1 do not know BUSY: they would give up."""
    with run_in_thread(bridge(), upgrader=ShmUpgrader()) as engine:
        for _ in range(20):
            with open_engine("127.0.0.1", engine.port, transport="shm") as one:
                one.reset()
            with socket.create_connection(("127.0.0.1", engine.port), timeout=10) as another:
                assert another.recv(4096).startswith(b"CONFIG:")
