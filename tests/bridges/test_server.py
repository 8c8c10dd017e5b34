"""BridgeServer over real sockets: both wirings, one trainer after the other, and trainers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from typing import Any

import numpy as np
import pytest

import ue_rl
from tests.support.games import Steps, Sum, bridge
from tests.support.streams import ask, closed, dial, greeted, hosting, is_closed_by_the_server, line, say, settle
from ue_rl.bridges import BridgeServer, run_in_thread
from ue_rl.bridges.tcp.server import ServerWaits
from ue_rl.protocol.spec import Channel, EnvSpec, EnvType
from ue_rl.system import errors

FIRST = "OBS=0;REW=0;DONE=0;ENV=0||OBS=0;REW=0;DONE=0;ENV=1\n"


class Slow(Steps):
    """An action takes as many ticks as it says."""

    def show(self, env: int) -> Any:
        return [self.lockstep.ticks]

    def runs(self, env: int) -> int:
        return int(self.acted[env])


async def test_shared_channel_bytewise_crlf_and_partial_requests() -> None:
    async with hosting(bridge()) as server:
        trainer = await dial(server)
        told = "CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=2;VERSION=1;CHANNEL=ANY;FEATURES=AUTORESET,ERROR,SEQ\n"
        assert await line(trainer) == told
        for byte in "\r\n\nACT=RESET;ENV=0||ACT=RESET;ENV=1\r\n":
            await say(trainer, byte)
        assert await line(trainer) == FIRST
        assert await ask(trainer, "ACT=0.5;ENV=1\n") == "OBS=0.5;REW=0;DONE=0;ENV=1\n"
        await say(trainer, "ACT=1;ENV=1||ACT=2;ENV=0\nACT=")  # several in one read, the rest later
        assert await line(trainer) == "OBS=2;REW=0;DONE=0;ENV=0||OBS=1.5;REW=0;DONE=0;ENV=1\n"
        assert await ask(trainer, "1;ENV=0\n") == "OBS=3;REW=0;DONE=0;ENV=0\n"
        await closed(trainer)


async def test_per_env_sockets_are_silent_until_all_are_there_and_early_commands_wait() -> None:
    async with hosting(bridge(3), waits=ServerWaits(patience=0.2)) as server:
        admin = await greeted(server)
        first, second = await dial(server), await dial(server)
        await say(first, "ACT=RESET\n")
        await say(second, "ACT=RESET\n")
        await settle()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(first[0].readline(), 0.05)
        third = await dial(server)
        assert await line(first) == "OBS=0;REW=0;DONE=0;ENV=0\n"
        assert await line(second) == "OBS=0;REW=0;DONE=0;ENV=1\n"
        assert await ask(third, "ACT=RESET;ENV=2\n") == "OBS=0;REW=0;DONE=0;ENV=2\n"
        await say(admin, "whatever is said on the admin socket is not read\n")
        await say(second, "ACT=4||ACT=5;ENV=0\n")  # a batch on one env's socket; answers come on each env's own
        assert await line(second) == "OBS=4;REW=0;DONE=0;ENV=1\n"
        assert await line(first) == "OBS=5;REW=0;DONE=0;ENV=0\n"
        for streams in (first, second, third, admin):
            await closed(streams)


async def test_one_trainer_after_the_other_and_one_that_waits() -> None:
    hosted = bridge()
    async with hosting(hosted) as server:
        for _ in range(3):  # at once, without a pause
            trainer = await greeted(server)
            assert await ask(trainer, "ACT=RESET;ENV=0||ACT=RESET;ENV=1\n") == FIRST
            await closed(trainer)
        began = time.monotonic()
        busy = await greeted(server)
        await ask(busy, "ACT=RESET;ENV=0\n")
        waiting = await dial(server)
        gone = await dial(server)
        await settle()
        await closed(gone)  # one that lost its patience
        await closed(busy)
        told = re.match(r"BUSY;SINCE=(\d+\.\d);PEER=127\.0\.0\.1:", await line(waiting))
        assert told is not None
        assert float(told[1]) <= time.monotonic() - began + 0.1
        assert (await line(waiting)).startswith("CONFIG")
        assert await ask(waiting, "ACT=RESET;ENV=1\n") == "OBS=0;REW=0;DONE=0;ENV=1\n"
        await closed(waiting)
        assert server.sessions == 5


async def test_a_trainer_lost_half_way_through_its_env_sockets_leaves_no_trace() -> None:
    async with hosting(bridge(3)) as server:
        admin = await greeted(server)
        env0 = await dial(server)
        await say(env0, "\n")  # nothing is an env socket before it has said something
        await settle()
        await closed(admin)
        assert await is_closed_by_the_server(env0)
        following = await greeted(server)
        await closed(following)


async def test_a_lost_env_socket_ends_the_session() -> None:
    async with hosting(bridge(2)) as server:
        links = [await dial(server) for _ in range(3)]
        await line(links[0])
        for link in links[1:]:
            await say(link, "\n")
        await settle()
        await closed(links[1])
        assert await is_closed_by_the_server(links[2])
        assert await is_closed_by_the_server(links[0])


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("JUMP=1;ENV=0\n", "MalformedMessage|not a field|required field"),
        ("ACT=1,2;ENV=0\n", "wrong number of numbers"),
        ("ACT=nan;ENV=0\n", "NaN"),
        ("ACT=1;ENV=7\n", "does not exist"),
        ("ACT=1;ENV=0||ACT=1;ENV=0\n", "asked again"),
        ("x" * 2_000_000, "longer than the session allows"),
    ],
)
async def test_a_trainer_that_breaks_the_protocol_is_dropped_by_name(
    text: str, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with hosting(bridge()) as server:
        trainer = await greeted(server)
        with caplog.at_level(logging.ERROR, "ue_rl.bridges.tcp.server"):
            try:
                await say(trainer, text)
                await trainer[0].read()
            except ConnectionError:
                pass  # dropped while it was still talking
        (record,) = caplog.records
        assert re.search(error, record.getMessage()), record.getMessage()
        assert "at fault: trainer" in record.getMessage()
        following = await greeted(server)
        await closed(following)


class Infinite(Sum):
    def step_envs(self, actions: Any, env_ids: Any) -> None:
        self.outbox.obs.fill(np.nan)


async def test_a_game_that_gives_nan_ends_the_session_by_name(caplog: pytest.LogCaptureFixture) -> None:
    async with hosting(bridge(kind=Infinite)) as server:
        trainer = await greeted(server)
        with caplog.at_level(logging.ERROR, "ue_rl.bridges.tcp.server"):
            assert await ask(trainer, "ACT=1;ENV=0||ACT=1;ENV=1\n") == "OBS=nan;REW=0.0;DONE=0;ENV=0\n"
            assert await is_closed_by_the_server(trainer)
        assert "not a finite number (env 0, field OBS)" in caplog.text


async def test_only_what_is_offered_is_served() -> None:
    async with hosting(bridge(2, Channel.PER_ENV)) as server:
        trainer = await greeted(server)
        await say(trainer, "ACT=RESET;ENV=0\n")
        assert await is_closed_by_the_server(trainer)
    async with hosting(bridge(2, Channel.SHARED)) as server:
        trainer, other = await dial(server), await dial(server)
        await line(trainer)
        assert await ask(trainer, "ACT=RESET;ENV=0||ACT=RESET;ENV=1\n") == FIRST
        await closed(trainer)
        assert (await line(other)).startswith("BUSY")
        assert (await line(other)).startswith("CONFIG")  # it was the next trainer, not an env socket


async def test_rlbase_speaks_first_and_ends_when_training_is_complete() -> None:
    async with hosting(Sum(EnvSpec(2, 2, EnvType.RLBASE))) as server:
        trainer = await dial(server)
        assert await line(trainer) == "CONFIG:OBS=2;ACT=2;ENV_TYPE=RLBASE;VERSION=1\n"
        assert await line(trainer) == "0,0;0;0\n"
        assert await ask(trainer, "RESET\n") == "0,0;0;0\n"
        assert await ask(trainer, "0.5,-1\n") == "0.5,-1;0;0\n"
        await ask(trainer, "TRAINING_COMPLETE\n")
        assert await is_closed_by_the_server(trainer)
        await greeted(server)


@pytest.mark.parametrize("tick_rate", [None, 500])
async def test_rlbase_queues_what_comes_before_the_answer(tick_rate: float | None) -> None:
    """The plugin's own trainer does not read the first state, takes it for RESET's, and is one answer ahead."""
    async with hosting(Sum(EnvSpec(1, 1, EnvType.RLBASE)), tick_rate=tick_rate) as server:
        trainer = await dial(server)
        await say(trainer, "RESET\n")  # before anything was read
        assert (await line(trainer)).startswith("CONFIG")
        for action in ("1\n", "2\n", "3\n", "4\n"):
            await say(trainer, action)
        answers = [await line(trainer) for _ in range(6)]
        assert answers == ["0;0;0\n", "0;0;0\n", "1;0;0\n", "3;0;0\n", "6;0;0\n", "10;0;0\n"]
        assert await ask(trainer, "5\nTRAINING_COMPLETE\n6\n") == "15;0;0\n"
        assert await line(trainer) == "0;0;0\n"
        assert await is_closed_by_the_server(trainer)  # and nothing is taken behind it


async def test_rlbase_does_not_queue_without_end(caplog: pytest.LogCaptureFixture) -> None:
    async with hosting(Sum(EnvSpec(1, 1, EnvType.RLBASE)), tick_rate=2) as server:
        trainer = await dial(server)
        with caplog.at_level(logging.ERROR, "ue_rl.bridges.tcp.server"):
            with contextlib.suppress(ConnectionError):
                await say(trainer, "1\n" * 100_000)
                await trainer[0].read()
        assert "sends without reading the answers" in caplog.text


async def test_actions_that_run_on_are_ticked_without_starving_the_loop() -> None:
    hosted = bridge(1, kind=Slow)
    async with hosting(hosted) as server:
        trainer = await greeted(server)
        await ask(trainer, "ACT=RESET;ENV=0\n")
        await say(trainer, "ACT=3000;ENV=0\n")
        other = await dial(server)  # the loop still accepts while it ticks
        assert float((await line(trainer))[4:].split(";")[0]) > 3000
        await closed(other)
        await closed(trainer)


async def test_a_trainer_that_never_pauses_leaves_the_loop_to_others() -> None:
    async with hosting(bridge()) as server:

        def steps() -> float:
            env = ue_rl.connect(server.url, channel="shared", timeout=30)
            env.reset()
            for _ in range(500):
                obs, *_ = env.step(np.ones((2, 1), np.float32))
            env.close()
            return float(obs[0, 0])

        trainer, turns = asyncio.create_task(asyncio.to_thread(steps)), 0
        while not trainer.done():
            turns += 1
            await asyncio.sleep(0)
        assert await trainer == 500
        assert turns > 10
        await greeted(server)


async def test_a_fixed_tick_rate_answers_once_a_tick() -> None:
    hosted = bridge(1)
    async with hosting(hosted, tick_rate=200) as server:
        trainer = await greeted(server)
        loop = asyncio.get_running_loop()
        await ask(trainer, "ACT=RESET;ENV=0\n")
        begun = loop.time()
        for _ in range(20):
            await ask(trainer, "ACT=1;ENV=0\n")
        assert loop.time() - begun > 19 / 200 * 0.8
        assert hosted.lockstep.ticks >= 20


async def test_close_is_idempotent_and_a_taken_port_is_an_error() -> None:
    server = BridgeServer(bridge(), port=0)
    await server.start()
    second = BridgeServer(bridge(), port=server.port)
    with pytest.raises(OSError, match="in use"):
        await second.start()
    trainer = await greeted(server)
    await server.close()
    await server.close()
    assert await is_closed_by_the_server(trainer)
    with pytest.raises(errors.ConfigurationError, match="tick rate"):
        BridgeServer(bridge(), tick_rate=0)
    for port in (-1, 99999):
        with pytest.raises(errors.ConfigurationError, match=f"port.*got {port}"):
            run_in_thread(bridge(), port=port)


async def test_serving_for_ever_ends_with_its_task() -> None:
    async with BridgeServer(Sum(EnvSpec(2, 2)), port=0) as server:
        task = asyncio.create_task(server.serve_forever())
        streams = await asyncio.open_connection("127.0.0.1", server.port)
        assert (await asyncio.wait_for(streams[0].readline(), 20)).startswith(b"CONFIG:")
        streams[1].close()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)


async def test_a_game_that_cannot_start_training_leaves_nothing_listening() -> None:
    class Broken(Sum):
        def start_training(self) -> None:
            raise RuntimeError("no level is loaded")

    game = Broken(EnvSpec(1, 1))
    server = BridgeServer(game, port=0)
    with pytest.raises(RuntimeError, match="no level"):
        await server.start()
    assert game.host is None
    with pytest.raises(ConnectionRefusedError):
        await dial(server)
