"""A game that hangs: those who ask for something else are answered, and a server closes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from tests.plugins.sessions.game import Drift
from ue_rl.plugins.sessions import sessions_pb2 as messages
from ue_rl.plugins.sessions.sessions_pb2_grpc import SessionsStub


class Hanging(Drift):
    """A tick waits for the gate."""

    gate = threading.Event()

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        type(self).gate.wait(100)
        super().step_envs(actions, env_ids)


@pytest.fixture(autouse=True)
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    event = threading.Event()
    monkeypatch.setattr(Hanging, "gate", event)
    yield event
    event.set()


def closes(server: Any) -> bool:
    closing = threading.Thread(target=server.close)
    closing.start()
    closing.join(30)
    return not closing.is_alive()


def test_states_that_are_asked_for_hold_up_nobody(served: Any, gate: threading.Event) -> None:
    pool, server = served("grpc", Hanging, max_sessions=40, workers=1)
    pool.patience = 0.2
    with grpc.insecure_channel(server.url.removeprefix("grpc://")) as channel:
        stub = SessionsStub(channel)
        names = [stub.CreateSession(messages.CreateSessionRequest()).session_id for _ in range(40)]
        advancing = stub.FastAdvance.future(messages.FastAdvanceRequest(session_id=names[0], ticks=1))
        while pool.get(names[0]).current is None:
            threading.Event().wait(0.01)
        asked = [stub.GetState.future(messages.SessionRequest(session_id=name)) for name in names]
        listed = stub.ListSessions(messages.ListSessionsRequest(), timeout=60)
        assert len(listed.sessions) == 40
        assert {call.result(60).text for call in asked} == {""}
        advancing.cancel()
    assert closes(server)
    gate.set()


@pytest.mark.slow
def test_a_server_closes_while_observations_are_awaited(served: Any, gate: threading.Event) -> None:
    import httpx

    class Loads(Hanging):
        def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
            gate.wait(100)
            super().reset_envs(env_ids, seeds, options)

    pool, server = served("openenv", Loads, workers=1)
    pool.patience = 0.2
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "get_observation"}}

    def ask() -> None:
        with pytest.raises(httpx.HTTPError):
            httpx.post(f"{server.url}/mcp", json=call, timeout=1)

    asking = [threading.Thread(target=ask) for _ in range(8)]
    for each in asking:
        each.start()
    for each in asking:
        each.join()
    assert closes(server)
    gate.set()
