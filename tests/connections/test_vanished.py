"""Peers whose machine vanishes are found out on every server; those that are merely busy stay."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from typing import Any, ClassVar

import pytest

from tests.support.games import bridge
from tests.support.streams import greeted, hosting
from tests.support.vanishing import ask_each_second_at, can_vanish, give_up_after, quick_watch, vanish
from tests.support.waiting import eventually
from ue_rl.system import keepalive
from ue_rl.system.listening import listen
from ue_rl.system.vanished import PortWatch, owes_since_it_was_heard

__all__ = ["quick_watch"]
pytestmark = can_vanish


class Talks(asyncio.Protocol):
    """One connection of a server.

    Attributes:
        made: all of them, in their order. size: bytes that it sends at once.
    """

    made: ClassVar[list[Talks]] = []
    size = 0

    def connection_made(self, transport: Any) -> None:
        self.transport, self.ended = transport, False
        keepalive.notice_dead_peer(transport.get_extra_info("socket"))
        self.made.append(self)
        transport.write(bytes(self.size))

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True


@pytest.fixture
def talks() -> type[Talks]:
    class Own(Talks):
        made: ClassVar[list[Talks]] = []

    return Own


@pytest.mark.slow
async def test_a_peer_that_vanishes_with_something_on_its_way_is_gone(
    quick_watch: PortWatch, talks: type[Talks], caplog: pytest.LogCaptureFixture
) -> None:
    server, port = await listen(talks, "127.0.0.1", 0, 8)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    other = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.to_thread(eventually, lambda: len(talks.made) == 2)
    vanish(writer.get_extra_info("socket"))
    with caplog.at_level(logging.WARNING):
        for one in talks.made:
            one.transport.write(b"are you there?")
        await asyncio.to_thread(eventually, lambda: talks.made[0].ended)
    assert "has vanished: its system has not answered" in caplog.text
    assert not talks.made[1].ended
    for _, client in (other, (reader, writer)):
        client.close()
    server.close()
    await asyncio.to_thread(eventually, lambda: port not in quick_watch.ports, 10, "nothing is left to look at")


@pytest.mark.slow
async def test_a_trainer_that_vanishes_while_nothing_is_said_ends_its_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with hosting(bridge()) as server:
        trainer = await greeted(server)
        assert ask_each_second_at(server.port)
        vanish(trainer[1].get_extra_info("socket"))
        with caplog.at_level(logging.INFO):
            await asyncio.to_thread(eventually, lambda: "the trainer has gone" in caplog.text)


@pytest.mark.slow
async def test_a_peer_that_reads_nothing_stays(quick_watch: PortWatch, talks: type[Talks]) -> None:
    """Its system has no room for more, and says so whenever it is asked: TCP_USER_TIMEOUT alone would end it."""
    talks.size = size = 16 * 2**20
    server, port = await listen(talks, "127.0.0.1", 0, 8)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    await asyncio.to_thread(eventually, lambda: talks.made)
    give_up_after(1000, port)  # instead of 20 s
    until = time.monotonic() + 3
    while time.monotonic() < until:
        await asyncio.sleep(0.05)
        assert not any(one.ended for one in talks.made)
    assert len(await asyncio.wait_for(reader.readexactly(size), 20)) == size
    writer.close()
    server.close()


def test_the_system_s_counters_stand_where_they_are_read() -> None:
    """The layout of struct tcp_info: what is under way, and since when nothing was heard."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        served, _ = listener.accept()
        with client, served:
            assert owes_since_it_was_heard(served) is None
            vanish(client)
            time.sleep(0.05)
            served.send(b"are you there?")
            first = owes_since_it_was_heard(served)
            assert first is not None
            time.sleep(0.1)
            later = owes_since_it_was_heard(served)
            assert later is not None
            assert later - first >= 0.05
