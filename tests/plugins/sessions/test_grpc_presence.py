"""Whose client over gRPC is there, and whose is not: who computes stays, who is gone loses its session."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from contextlib import closing
from typing import Any

import grpc
import numpy as np
import pytest

from tests.plugins.sessions.game import Endless
from tests.plugins.sessions.test_grpc import Status, advanced, refused
from tests.support.steps import begin
from tests.support.vanishing import can_vanish, quick_watch, vanish_at, vanish_from
from tests.support.waiting import eventually
from ue_rl.connections.dialling import open_transport
from ue_rl.plugins.sessions import sessions_pb2 as messages
from ue_rl.plugins.sessions.limits import SESSION_ID, client_options
from ue_rl.plugins.sessions.sessions_pb2_grpc import SessionsStub
from ue_rl.system import errors
from ue_rl.system.vanished import UNHEARD

__all__ = ["quick_watch"]

SERVER = """
import sys
import time
from tests.plugins.sessions.game import Drift
from ue_rl.plugins.sessions.grpc import serve
from ue_rl.plugins.sessions.realtime import SessionPool
with SessionPool(Drift, max_sessions=2, workers=1, idle_timeout=float(sys.argv[1])) as pool, serve(pool) as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""
KILLED = """
import asyncio, sys
from ue_rl.plugins.sessions.grpc.client import SessionClient
async def main():
    client = await SessionClient(sys.argv[1], tick_rate=50).__aenter__()
    await client.observe()
    print(client.session_id, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


TRAINER = """
import sys
import time
from ue_rl.connections.dialling import open_transport
transport = open_transport(sys.argv[1], num_envs=2)
print("connected", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_who_is_killed_loses_its_sessions_and_who_stands_still_once_they_are_idle(slack: float) -> None:
    """A trainer of two, then clients of one each.

    Processes of their own: events of grpc.aio may wait for one another where several event loops share a process.
    """
    piped: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    idle = 0.5 * slack
    with subprocess.Popen([sys.executable, "-c", SERVER, str(idle)], **piped) as server:
        url = server.stdout.readline().strip()
        with grpc.insecure_channel(url.removeprefix("grpc://")) as channel:
            stub = SessionsStub(channel)
            with subprocess.Popen([sys.executable, "-c", TRAINER, url], **piped) as trainer:
                assert trainer.stdout.readline() == "connected\n"
                held = [each.session_id for each in stub.ListSessions(messages.ListSessionsRequest()).sessions]
                trainer.kill()
            eventually(lambda: not stub.ListSessions(messages.ListSessionsRequest()).sessions)
            assert len(held) == 2
            for name in held:
                assert "the connection of its trainer was lost" in refused(lambda name=name: advanced(stub, name))[1]
        clients = [subprocess.Popen([sys.executable, "-c", KILLED, url], **piped) for _ in range(2)]
        names = [client.stdout.readline().strip() for client in clients]
        for client, way in zip(clients, (signal.SIGKILL, signal.SIGSTOP), strict=True):
            client.send_signal(way)
        with grpc.insecure_channel(url.removeprefix("grpc://")) as channel:
            stub = SessionsStub(channel)
            eventually(lambda: not stub.ListSessions(messages.ListSessionsRequest()).sessions, 40 * slack)
            for name, why in zip(
                names, ("the stream of its agent was lost", f"nobody used it for {idle:g} s"), strict=True
            ):
                code, details = refused(lambda name=name: advanced(stub, name))
                assert code is Status.ABORTED
                assert why in details
        for client in clients:
            client.kill()
            client.communicate()
        server.stdin.close()
        assert server.wait(20) == 0


async def test_a_client_that_does_not_read_loses_its_session(served: Any) -> None:
    pool, server = served("grpc", Endless, {"stalled_after": 0.3}, kwargs={"obs_size": 100_000})
    async with grpc.aio.insecure_channel(server.url.removeprefix("grpc://"), client_options()) as channel:
        stub: Any = SessionsStub(channel)
        info = await stub.CreateSession(messages.CreateSessionRequest(tick_rate=200.0))
        (session,) = pool.sessions()
        stream = stub.Play(metadata=((SESSION_ID, info.session_id),))
        await stream.read()
        while pool.sessions():
            await asyncio.sleep(0.05)
    assert "has read nothing for 0.3 s" in session.reason


def test_sessions_whose_trainer_is_connected_are_not_idle(served: Any, slack: float) -> None:
    """It computes, or evaluates another env, for longer than a session may be idle."""
    idle_timeout = 0.3 * slack
    pool, server = served("grpc", idle_timeout=idle_timeout)
    with closing(open_transport(server.url, num_envs=2)) as transport:
        begin(transport)
        alone = pool.create()  # of nobody
        eventually(lambda: alone not in pool.sessions(), 20 * slack)
        assert len(pool.sessions()) == 2
        transport.send_actions(np.zeros((2, 2), np.float32))
        transport.receive()
        assert {session.idle_seconds for session in pool.sessions()} == {0.0}
    eventually(lambda: not pool.sessions())


async def test_sessions_that_are_kept_end_with_the_stream_that_keeps_them(served: Any) -> None:
    pool, server = served("grpc", idle_timeout=1000.0)
    async with grpc.aio.insecure_channel(server.url.removeprefix("grpc://"), client_options()) as channel:
        stub: Any = SessionsStub(channel)
        with pytest.raises(grpc.RpcError) as error:
            await stub.Keep(messages.KeepRequest()).read()
        assert error.value.code() is Status.INVALID_ARGUMENT
        names = [(await stub.CreateSession(messages.CreateSessionRequest())).session_id for _ in range(3)]
        stream = stub.Keep(messages.KeepRequest(session_ids=names[:2]))
        await asyncio.to_thread(eventually, lambda: sum(session.kept for session in pool.sessions()) == 2)
        stream.cancel()
        await asyncio.to_thread(eventually, lambda: [session.id for session in pool.sessions()] == names[2:])
        with pytest.raises(errors.SessionEnded, match="the connection of its trainer was lost"):
            pool.get(names[0])


@pytest.mark.slow
@can_vanish
async def test_a_client_that_vanishes_loses_its_session(quick_watch: Any, served: Any) -> None:
    pool, server = served("grpc", Endless)
    async with grpc.aio.insecure_channel(server.url.removeprefix("grpc://")) as channel:
        stub: Any = SessionsStub(channel)
        info = await stub.CreateSession(messages.CreateSessionRequest(tick_rate=20.0))
        stream = stub.Play(metadata=((SESSION_ID, info.session_id),))
        await stream.read()
        # What comes to the server, and not to the client, which would send its own last words again and again.
        assert vanish_at(int(server.url.rsplit(":", 1)[1])) >= 1
        await asyncio.to_thread(eventually, lambda: not pool.sessions())
        stream.cancel()


@can_vanish
async def test_where_nobody_watches_a_client_that_vanishes_is_asked_for_a_sign_of_life(served: Any) -> None:
    """As on systems other than Linux. Who watches here takes 15 seconds."""
    pool, listening = served("grpc", Endless, {"asks_every": 1.0})
    begun = time.monotonic()
    async with grpc.aio.insecure_channel(listening.url.removeprefix("grpc://")) as channel:
        stub: Any = SessionsStub(channel)
        name = (await stub.CreateSession(messages.CreateSessionRequest())).session_id
        stream = stub.Keep(messages.KeepRequest(session_ids=[name]))
        await asyncio.to_thread(eventually, lambda: pool.get(name).kept)
        assert vanish_from(int(listening.url.rsplit(":", 1)[1])) == 1
        await asyncio.to_thread(eventually, lambda: not pool.sessions())
        assert time.monotonic() - begun < UNHEARD
        stream.cancel()
