"""Engines at a policy server: those that misbehave, those that come and go, and the server's own end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.inference.serving import ask, numbers, serving, until
from tests.support.streams import largest_turn
from tests.support.vanishing import can_vanish, vanish
from ue_rl.inference.server.engine import ServedEngine
from ue_rl.system import keepalive


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("OBS=1,2\n", "wrong number of numbers"),
        ("OBS=1,2,3||OBS=1,2,3\n", "stands twice"),
        ("OBS=1,2,3;gr\xfc\xdfe=1\n", "a number was expected"),
        ("x" * 200_000, "longer than"),
    ],
)
async def test_a_bad_line_costs_its_engine_the_connection_and_nobody_else(
    pendulum: Path, text: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(pendulum) as server:
        good, bad = await server.dial(), await server.dial()
        assert await ask(good, "OBS=0,0,0\n")
        with caplog.at_level(logging.ERROR, "ue_rl.inference.server.server"):
            last = await ask(bad, text)
            assert re.fullmatch(r"ERROR=[A-Za-z]+: [ -:<-{}~]*\n", last)
            assert said in last
            assert await asyncio.wait_for(bad[0].read(), 20) == b""
        assert said in caplog.text
        assert "at fault: engine" in caplog.text
        assert (await ask(good, "OBS=0,0,0\n")).startswith("ACT=")
        assert server.dropped == 1


async def test_a_row_without_its_env_is_not_taken_for_env_0(pendulum: Path) -> None:
    async with serving(pendulum) as server:
        engine = await server.dial("CONFIG:OBS=3;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=2\n")
        last = await ask(engine, "OBS=1,2,3;ENV=1||OBS=1,2,3;RESET=1\n")
        assert last.startswith("ERROR=MalformedMessage: a required field is missing (field ENV)")
        assert await asyncio.wait_for(engine[0].read(), 20) == b""
        assert server.requests == 0


@pytest.mark.parametrize("spare", [1, 0])
async def test_the_longest_line_is_that_of_the_protocol(pendulum: Path, spare: int) -> None:
    """48 bytes a number, and not 64; the numbers of one env are its observation and a reward."""
    longest = 1024 + 48 * 4 + 64
    async with serving(pendulum) as server:
        engine = await server.dial()
        line = "OBS=1,2,3;X=" + "x" * (longest - 12 - spare) + "\n"
        assert len(line) == longest + 1 - spare
        assert (await ask(engine, line)).startswith("ACT=" if spare else "ERROR=LineTooLong")


@pytest.mark.parametrize(
    ("hello", "said"),
    [
        ("HELLO\n", "not a handshake"),
        ("CONFIG:OBS=3;ACT=2\n", "not the model's"),
        ("CONFIG:OBS=3;ACT=1;ACT_SPACE=DISCRETE(3)\n", "spaces are not the model's"),
        ("CONFIG:OBS=3;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=5000\n", "more envs than"),
    ],
)
async def test_other_sizes_and_strangers_are_refused(
    pendulum: Path, hello: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(pendulum) as server:
        with caplog.at_level(logging.ERROR):
            engine = await server.dial(hello)
            last = await asyncio.wait_for(engine[0].read(), 20)
        assert last.startswith(b"ERROR=HandshakeError: ")
        assert said in last.decode()
        assert said in caplog.text


@pytest.mark.parametrize("space", ["\xa0", " ", ""], ids=["no-break", "ordinary", "none"])
async def test_a_handshake_of_millions_is_refused_before_it_costs_anything(
    pendulum: Path, space: str, slack: float
) -> None:
    async with serving(pendulum) as server:
        good = await server.dial()
        await until(lambda: server.greeted == 1)
        began = time.process_time()  # the server's and ours
        bad = await server.dial(f"CONFIG:OBS=3;ACT{space}=16777216\n")
        assert (await asyncio.wait_for(bad[0].read(1000), 20)).startswith(b"ERROR=HandshakeError: ")
        assert (await ask(good, "OBS=0,0,0\n")).startswith("ACT=")
        assert time.process_time() - began < 0.05 * slack


async def test_strangers_who_say_nothing_and_engines_who_do_not_read_are_dropped(pendulum: Path) -> None:
    async with serving(pendulum, hello_timeout=0.3, write_timeout=0.05) as server:
        silent = await server.dial("")
        assert b"no hello came" in await asyncio.wait_for(silent[0].read(), 20)
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that little is enough to fill the way
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", server.port))
        with contextlib.suppress(ConnectionError):
            await loop.sock_sendall(sock, b"CONFIG:OBS=3;ACT=1\n")
            await until(lambda: server.greeted == 1)
            (engine,) = server.engines
            assert engine._transport is not None
            engine._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            while True:  # asks for ever, reads nothing: what waits stays bounded and the deadline comes
                await asyncio.wait_for(loop.sock_sendall(sock, b"OBS=0,0,0\n" * 1000), 30)
        assert not server.engines
        assert server.dropped == 2
        silent[1].close()
        await until(lambda: not server.connections)  # although the one that does not read never closes
        sock.close()


async def test_an_engine_that_reads_late_is_served_on(pendulum: Path) -> None:
    async with serving(pendulum, write_timeout=60.0) as server:
        reader, writer = await server.dial()
        await until(lambda: server.greeted == 1)
        (engine,) = server.engines
        engine.pause_writing()  # as asyncio does when the system takes no more
        writer.write(b"OBS=0,0,0\n" * 3)
        await until(lambda: len(engine._lines) > 0)
        assert server.requests == 0
        engine.resume_writing()
        answers = [await asyncio.wait_for(reader.readline(), 20) for _ in range(3)]
        assert answers == [answers[0]] * 3
        assert engine._deadline is None
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 20) == b""


async def test_too_many_engines_are_refused_by_name(pendulum: Path) -> None:
    async with serving(pendulum, max_engines=1) as server:
        first = await server.dial()
        assert (await ask(first, "OBS=0,0,0\n")).startswith("ACT=")
        second = await server.dial()
        assert b"too many engines" in await asyncio.wait_for(second[0].read(), 20)
        first[1].close()
        await first[1].wait_closed()
        await until(lambda: not server.engines)
        third = await server.dial()
        assert (await ask(third, "OBS=0,0,0\n")).startswith("ACT=")


async def test_the_last_line_arrives_although_the_engine_goes_on_talking(pendulum: Path) -> None:
    """A socket closed over unread bytes is reset, and what was said before may be lost."""
    async with serving(pendulum) as server:
        for _ in range(5):
            engine = await server.dial()
            engine[1].write(b"OBS=what\n" + b"OBS=0,0,0\n" * 200_000)
            assert (await asyncio.wait_for(engine[0].read(), 10)).startswith(b"ERROR=MalformedMessage: ")
            engine[1].close()
        await until(lambda: not server.connections)


async def test_an_engine_that_ends_its_side_is_answered_first(pendulum: Path) -> None:
    async with serving(pendulum) as server:
        engine = await server.dial()
        engine[1].write(b"OBS=0,0,0\n" * 3000 + b"OBS=0,0")
        engine[1].write_eof()
        lines = (await asyncio.wait_for(engine[0].read(), 10)).splitlines()
        assert len(lines) == 3000
        assert len(set(lines)) == 1
        idle = await server.dial()
        idle[1].write_eof()
        assert await asyncio.wait_for(idle[0].read(), 10) == b""
        idle[1].close()
        await until(lambda: not server.connections)


class FakeTransport(asyncio.Transport):
    """A connection without a socket."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = False

    def is_closing(self) -> bool:
        return self.ended

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = True


async def test_who_comes_in_while_the_server_closes_does_not_stay(pendulum: Path) -> None:
    async with serving(pendulum) as server:
        await server.close()
        late, transport = ServedEngine(server), FakeTransport()
        late.connection_made(transport)
        assert transport.ended
        late.connection_lost(None)
        assert not server.engines
        assert not server.connections


async def test_closing_with_asks_and_unread_answers_at_hand_and_starting_again(pendulum: Path) -> None:
    async with serving(pendulum, max_wait=30.0) as server:
        first, second = await server.dial(), await server.dial()
        await until(lambda: server.greeted == 2)
        first[1].write(b"OBS=0,0,0\n")
        await until(lambda: bool(server._waiting))
        await server.close()
        await server.close()
        for streams in (first, second):
            assert await asyncio.wait_for(streams[0].read(), 20) == b""
            streams[1].close()
        assert server.requests == 0
        assert not server.connections
        await server.start()
        third = await server.dial()
        assert (await ask(third, "OBS=0,0,0\n")).startswith("ACT=")


async def test_closing_does_not_wait_for_ever_for_who_does_not_read(pendulum: Path) -> None:
    async with serving(pendulum, write_timeout=60.0) as server:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", server.port)) as deaf:
            deaf.sendall(b"CONFIG:OBS=3;ACT=1\n")
            await until(lambda: server.greeted == 1)
            (engine,) = server.engines
            engine.write(b"ACT=0\n" * 2_000_000)
            assert engine.unsent
            await asyncio.wait_for(server.close(), 5)
            await until(lambda: not server.connections)
            deaf.setblocking(False)
            with pytest.raises(ConnectionError):  # what never went out does not wait in the system
                while await asyncio.wait_for(loop.sock_recv(deaf, 2**20), 5):
                    pass


async def test_without_descriptors_it_says_so_once_serves_on_and_accepts_later(
    pendulum: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accept, refused = socket.socket.accept, 0
    full = True

    def refuse(sock: socket.socket) -> Any:
        nonlocal refused
        if not full:
            return accept(sock)
        refused += 1
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio.constants, "ACCEPT_RETRY_DELAY", 0.02)
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["message"]))
    async with serving(pendulum) as server:
        engine = await server.dial()
        await until(lambda: server.greeted == 1)
        monkeypatch.setattr(socket.socket, "accept", refuse)
        waiting = await server.dial()
        await until(lambda: refused > 20)
        assert numbers(await ask(engine, "OBS=1,0,0\n"))
        assert len(caplog.records) == 1
        assert "Too many open files, with 1 connected" in caplog.text
        assert not caplog.records[0].exc_info
        full = False
        assert numbers(await ask(waiting, "OBS=1,0,0\n"))
        server.loop.call_exception_handler({"message": "something else"})
        assert told == ["something else"]
    assert asyncio.get_running_loop().get_exception_handler() is not None
    asyncio.get_running_loop().set_exception_handler(None)


async def test_connections_that_drip_do_not_crowd_out_an_engine_that_says_hello(pendulum: Path) -> None:
    async with serving(pendulum) as server:
        drips = [await server.dial("C") for _ in range(60)]
        served = await server.dial()
        assert numbers(await ask(served, "OBS=1,0,0\n"))
        await until(lambda: len(server.engines) == 61)
        for _, writer in drips:
            writer.write(b"ONFIG:OBS=3;ACT=1\nOBS=1,0,0\n")
        for reader, _ in drips:
            assert (await asyncio.wait_for(reader.readline(), 20)).startswith(b"ACT=")


async def test_a_turn_of_the_loop_accepts_a_few_engines_only(pendulum: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await largest_turn(ServedEngine, serving(pendulum), monkeypatch) <= 4


@pytest.mark.slow
@can_vanish
async def test_an_engine_that_vanishes_gives_its_place_at_the_policy_server_free(pendulum: Path) -> None:
    async with serving(pendulum, max_engines=1) as server:
        engine = await server.dial()
        await until(lambda: len(server.engines) == 1)
        (served,) = server.engines
        sock = served._transport.get_extra_info("socket")  # type: ignore[union-attr]
        for option, seconds in ((socket.TCP_KEEPIDLE, keepalive.IDLE), (socket.TCP_KEEPINTVL, keepalive.EVERY)):
            assert sock.getsockopt(socket.IPPROTO_TCP, option) == seconds
            sock.setsockopt(socket.IPPROTO_TCP, option, 1)
        vanish(engine[1].get_extra_info("socket"))
        await until(lambda: not server.engines)
        other = await server.dial()
        assert (await ask(other, "OBS=0,0,0\n")).startswith("ACT=")
