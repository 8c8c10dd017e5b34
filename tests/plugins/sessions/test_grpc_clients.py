"""Clients of sessions over gRPC: as envs, in real time, and what becomes of those that are lost."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="the extra train is not installed: a trainer plays here")

import gymnasium

import ue_rl
from tests.plugins.sessions.game import Endless
from tests.plugins.sessions.test_grpc import Status
from tests.support.listening import free_port
from tests.support.steps import begin
from tests.support.waiting import eventually
from ue_rl.connections.dialling import open_transport
from ue_rl.plugins.sessions import sessions_pb2 as messages
from ue_rl.plugins.sessions.grpc import playing
from ue_rl.plugins.sessions.grpc.client import SessionClient
from ue_rl.plugins.sessions.limits import ASKED, OBSERVATIONS, SESSION_ID, client_options
from ue_rl.plugins.sessions.sessions_pb2_grpc import SessionsStub
from ue_rl.system import errors


def test_connect_makes_a_vec_env(served: Any) -> None:
    pool, server = served("grpc")
    env = ue_rl.connect(server.url, num_envs=4, game="Drift")
    with closing(env):
        assert env.num_envs == 4
        assert len(pool.sessions()) == 4
        env.reset()
        infos = env.step(np.zeros((4, 2), np.float32))[3]
        assert [info["pushed"] for info in infos] == [0.0] * 4
    eventually(lambda: not pool.sessions())


def test_make_vec_makes_as_many_as_it_is_asked_for(served: Any) -> None:
    _, server = served("grpc")
    with closing(gymnasium.make_vec("ue_rl/Engine-v0", num_envs=3, url=server.url)) as env:
        assert env.reset()[0].shape[0] == env.num_envs == 3


def test_a_reset_of_some_with_options(served: Any) -> None:
    _, server = served("grpc")
    with closing(open_transport(server.url, num_envs=3)) as transport:
        begin(transport)
        seen = begin(transport, [1], seeds=[4], options=[{"start": 100.0}])
        assert seen.obs[1, 0] > 90
        assert (abs(seen.obs[[0, 2], 0]) < 10).all()


def test_the_client_says_who_is_not_there() -> None:
    port = free_port()
    with pytest.raises(errors.EngineUnreachable, match="ue-rl sessions"):
        open_transport(f"grpc://127.0.0.1:{port}", num_envs=2)
    with pytest.raises(errors.ConfigurationError):
        open_transport("grpc://", num_envs=2)
    with pytest.raises(errors.ConfigurationError):
        open_transport("grpc://127.0.0.1:1", num_envs=0)


def test_a_session_that_is_lost_is_a_lost_engine(served: Any) -> None:
    pool, server = served("grpc")
    with closing(open_transport(server.url, num_envs=2)) as transport:
        begin(transport)
        pool.sessions()[1].detach("somebody pulled the plug")
        transport.send_actions(np.zeros((2, 2), np.float32))
        with pytest.raises(errors.EngineDisconnected, match="pulled the plug"):
            transport.receive()
        with pytest.raises(errors.ConnectionUnusable):
            transport.reset()


@pytest.mark.slow
def test_more_sessions_than_there_are(served: Any) -> None:
    pool, server = served("grpc", max_sessions=2)
    with pytest.raises(errors.ResourceExhausted, match="all 2 sessions"):
        open_transport(server.url, num_envs=3, connect_timeout=20)
    eventually(lambda: not pool.sessions())


# -- real time


async def test_play_sends_the_newest_observation_and_takes_actions(served: Any) -> None:
    pool, server = served("grpc")
    async with SessionClient(server.url, tick_rate=25, seed=1, options={"start": 0.0}) as client:
        ticks, pushed = [], []
        async for seen in client.play():
            ticks.append(seen.tick)
            pushed.append(json.loads(seen.info_json or "{}").get("pushed", 0.0))
            await client.act([1.0, 0.0])
        assert ticks == sorted(set(ticks))
        assert 1.0 in pushed
        assert seen.terminated or seen.truncated
        state = await client.state()
        assert state.phase == "GAME_OVER"
    await asyncio.to_thread(eventually, lambda: not pool.sessions())


async def test_a_slow_reader_reads_the_newest(served: Any) -> None:
    pool, server = served("grpc", Endless)
    async with SessionClient(server.url, tick_rate=100) as client:
        first = await client.observe()
        (session,) = pool.sessions()
        await asyncio.to_thread(eventually, lambda: session.latest.tick > first.tick + 30)
        second = await client.observe()
        assert second.tick > first.tick + 10, "not the one behind the first"


async def test_a_mind_that_blocks_its_event_loop_gets_the_newest(served: Any) -> None:
    """It never gives way while it computes: what came meanwhile must not wait for it in a row."""
    pool, server = served("grpc", Endless)
    async with SessionClient(server.url, tick_rate=100) as client:
        (session,) = pool.sessions()
        turns, ticks, dropped, decided = 0, 0, 0, 0
        async for seen in client.play():
            assert seen.tick >= decided, "older than what was there when it asked"
            assert not turns or seen.dropped_observations > dropped
            ticks += seen.ticks_advanced
            assert ticks == seen.tick, "what was dropped is in the next one"
            dropped = seen.dropped_observations
            turns += 1
            if turns == 5:
                break
            eventually(lambda seen=seen: session.latest.tick > seen.tick + 10)  # it computes, without `await`
            decided = session.latest.tick
            await client.act([1.0, 0.0])


async def test_an_observe_that_is_cancelled_has_asked_for_what_the_next_one_gives(served: Any) -> None:
    pool, server = served("grpc", Endless, planning=1000.0)
    async with SessionClient(server.url, tick_rate=100) as client:
        assert (await client.observe()).tick == 0
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.observe(), 0.05)
        pool.get(client.session_id).start()
        first = await client.observe()
        second = await client.observe()
        assert 0 < first.tick < second.tick
        one, other = await asyncio.gather(client.observe(), client.observe())
        assert one.tick != other.tick


async def test_a_stream_that_is_asked_sends_nothing_else(served: Any) -> None:
    pool, server = served("grpc", Endless)
    async with grpc.aio.insecure_channel(server.url.removeprefix("grpc://"), client_options()) as channel:
        stub: Any = SessionsStub(channel)
        info = await stub.CreateSession(messages.CreateSessionRequest(tick_rate=100.0))
        (session,) = pool.sessions()
        named = (SESSION_ID, info.session_id)
        stream = stub.Play(metadata=(named, (OBSERVATIONS, ASKED)))
        await stream.write(messages.Action(action=bytes(8)))
        await asyncio.to_thread(eventually, lambda: session.latest.tick > 20)
        assert session.mailbox.unread
        at_least = session.latest.tick
        await stream.write(messages.Action(action=bytes(8), ask=True))
        seen = await stream.read()
        assert seen.tick >= at_least
        assert seen.ticks_advanced == seen.tick
        stream.cancel()


async def test_who_asks_without_having_said_so_is_told(served: Any) -> None:
    _, server = served("grpc", Endless)
    async with grpc.aio.insecure_channel(server.url.removeprefix("grpc://"), client_options()) as channel:
        stub: Any = SessionsStub(channel)
        info = await stub.CreateSession(messages.CreateSessionRequest(tick_rate=50.0))
        named = (SESSION_ID, info.session_id)
        for metadata, field in (((named,), "field ask"), ((named, (OBSERVATIONS, "all")), f"field {OBSERVATIONS}")):
            stream = stub.Play(metadata=metadata)
            if metadata == (named,):
                await stream.write(messages.Action(ask=True))
            with pytest.raises(grpc.RpcError) as error:
                while await stream.read() is not grpc.aio.EOF:
                    pass
            assert error.value.code() is Status.INVALID_ARGUMENT
            assert field in str(error.value.details())


async def test_a_wrong_action_ends_the_stream_with_its_reason(served: Any) -> None:
    pool, server = served("grpc")
    async with SessionClient(server.url, tick_rate=50) as client:
        await client.observe()
        with pytest.raises(errors.ConfigurationError, match="wrong size"):
            while True:
                await client.act([1.0, 2.0, 3.0])
                await client.observe()
        assert [session.id for session in pool.sessions()] == [client.session_id], "the session goes on"


async def test_the_reason_is_the_server_s_also_where_it_comes_while_the_client_writes(served: Any) -> None:
    _, server = served("grpc")

    async def play() -> str:
        async with SessionClient(server.url, tick_rate=50) as client:
            with pytest.raises(errors.UeRlError) as error:
                while True:
                    await client.act([1.0, 2.0, 3.0])
                    await asyncio.sleep(0)
        return error.value.message

    told = {each for _ in range(4) for each in await asyncio.gather(*(play() for _ in range(8)))}
    assert len(told) == 1
    assert told.pop().startswith("the action has a wrong size")


async def test_a_stream_ends_though_an_observation_is_just_being_written() -> None:
    """Before Python 3.12 `asyncio.wait_for` may forget that it is cancelled."""
    subscribed: list[Any] = []

    def subscribe(notify: Any) -> Any:
        subscribed.append(notify)
        return subscribed.clear

    async def actions(good: int) -> Any:
        for n in range(good + 1):
            await asyncio.sleep(0)
            yield messages.Action(action=bytes(8 if n < good else 3))

    session: Any = SimpleNamespace(
        pool=SimpleNamespace(spec=SimpleNamespace(act_size=2)), subscribe=subscribe, attach=lambda: None,
        act=lambda action: None, observe=lambda timeout: subscribed[0] if subscribed else None,
    )  # fmt: skip
    client: Any = SimpleNamespace(write=lambda seen: asyncio.sleep(0))
    for good in range(8):
        with pytest.raises(errors.ActionError, match="wrong size"):
            playing_on = playing.play(session, actions(good), client, 5.0, lost_within=0.0, pack=lambda seen: seen)
            await asyncio.wait_for(playing_on, 5)


async def test_a_session_that_ends_ends_its_stream(served: Any) -> None:
    pool, server = served("grpc")
    async with SessionClient(server.url, tick_rate=50) as client:
        await client.observe()
        await asyncio.to_thread(pool.destroy, client.session_id)
        with pytest.raises(errors.SessionEnded, match="destroyed"):
            while True:
                await client.observe()


async def test_play_needs_a_session(served: Any) -> None:
    _, server = served("grpc")
    async with grpc.aio.insecure_channel(server.url.removeprefix("grpc://")) as channel:
        stub: Any = SessionsStub(channel)
        for metadata, status in (((), Status.INVALID_ARGUMENT), (((SESSION_ID, "nobody"),), Status.NOT_FOUND)):
            with pytest.raises(grpc.RpcError) as error:
                await stub.Play(metadata=metadata).read()
            assert error.value.code() is status


async def test_a_session_that_cannot_be_made_is_refused_as_it_begins() -> None:
    port = free_port()
    client = SessionClient(f"grpc://127.0.0.1:{port}", timeout=2.0)
    with pytest.raises(errors.EngineUnreachable):
        await client.__aenter__()
