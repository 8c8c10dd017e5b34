"""Sessions over gRPC: what each call answers, and its status codes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.plugins.sessions.game import LIMIT, Drift, Half
from tests.support.waiting import eventually
from ue_rl.plugins.sessions import sessions_pb2 as messages
from ue_rl.plugins.sessions.grpc.client.client import an_action, numbers
from ue_rl.plugins.sessions.limits import SERVICE, client_options
from ue_rl.plugins.sessions.sessions_pb2_grpc import SessionsStub

Status = grpc.StatusCode


@pytest.fixture
def dialled(served: Callable[..., Any]) -> Any:
    """(the pool, a stub) of a pool of Drift, without the client's retries."""
    channels = []

    def dial(**options: Any) -> Any:
        pool, server = served("grpc", **options)
        plain = [option for option in client_options() if option[0] != "grpc.service_config"]
        channels.append(grpc.insecure_channel(server.url.removeprefix("grpc://"), plain))
        return pool, SessionsStub(channels[-1])

    yield dial
    for channel in channels:
        channel.close()


def refused(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as error:
        call()
    return error.value.code(), error.value.details()


def created(stub: Any, **fields: Any) -> str:
    return stub.CreateSession(messages.CreateSessionRequest(**fields), timeout=10).session_id


def advanced(stub: Any, name: str, **fields: Any) -> messages.Observation:
    return stub.FastAdvance(messages.FastAdvanceRequest(session_id=name, **fields), timeout=10)


def test_a_session_says_what_it_is_and_goes_its_way(dialled: Any) -> None:
    pool, stub = dialled()
    info = stub.CreateSession(messages.CreateSessionRequest(seed=3), timeout=10)
    assert info.handshake == pool.handshake
    assert [(each["name"], each["input_schema"]["type"]) for each in json.loads(info.tools_json)] == [
        ("nudge", "object"), ("break_down", "object"),
    ]  # fmt: skip
    push = an_action([1.0, 0.0])
    seen = advanced(stub, info.session_id, ticks=3, actions=[push])
    assert (seen.tick, seen.ticks_advanced, seen.dropped_actions) == (3, 3, 0)
    assert json.loads(seen.info_json) == {"pushed": 0.0}, "the action is for the first tick"
    state = stub.GetState(messages.SessionRequest(session_id=info.session_id))
    assert (state.phase, state.tick, state.text) == ("PLAYING", 3, f"x is {numbers(seen)[0]:.3f}")
    (listed,) = stub.ListSessions(messages.ListSessionsRequest()).sessions
    assert listed.session_id == info.session_id
    stub.DestroySession(messages.SessionRequest(session_id=info.session_id))
    assert not stub.ListSessions(messages.ListSessionsRequest()).sessions
    stub.DestroySession(messages.SessionRequest(session_id="nobody"))


def test_ticks_are_clamped_and_an_episode_ends_early(dialled: Any) -> None:
    _, stub = dialled()
    name = created(stub)
    seen = advanced(stub, name, reset=True, seed=5, ticks=4_000_000_000)
    assert seen.truncated or seen.terminated
    assert seen.tick <= LIMIT
    assert seen.result in ("win", "lose", "draw")
    assert seen.interrupt == "game_over"
    code, details = refused(lambda: advanced(stub, name, ticks=1))
    assert code is Status.INVALID_ARGUMENT
    assert "the episode is over" in details
    assert advanced(stub, name, reset=True).tick == 0, "without ticks: the begin of the episode"
    assert advanced(stub, name).tick == 1, "none are one"


def test_an_interrupt_ends_an_advance(dialled: Any) -> None:
    _, stub = dialled()
    name = created(stub, options_json='{"start": 0.5}', seed=1)
    seen = advanced(stub, name, ticks=100, interrupts=["crossed_zero"], actions=[an_action([-7.0, 0])])
    assert seen.interrupt == "crossed_zero" or seen.tick == LIMIT
    assert refused(lambda: advanced(stub, name, interrupts=["no such"]))[0] is Status.INVALID_ARGUMENT


def test_a_tool_is_called_in_its_place(dialled: Any) -> None:
    _, stub = dialled()
    name = created(stub, seed=1)
    seen = advanced(stub, name, actions=[an_action(tool="nudge", arguments={"by": 0.1, "times": 2})])
    (answer,) = json.loads(seen.info_json)["tools"]
    assert answer["tool"] == "nudge"
    seen = advanced(stub, name, actions=[an_action(tool="break_down")])
    (answer,) = json.loads(seen.info_json)["tools"]
    assert answer["code"] == "TOOL_EXECUTION_FAILED"


WRONG: dict[str, tuple[dict[str, Any], grpc.StatusCode, str]] = {
    "too few numbers": ({"actions": [messages.Action(action=b"1234")]}, Status.INVALID_ARGUMENT, "8 bytes"),
    "too many": ({"actions": [an_action([0, 0])] * 5001}, Status.INVALID_ARGUMENT, "at most 5000"),
    "NaN": ({"actions": [an_action([np.nan, 0])]}, Status.INVALID_ARGUMENT, "ACT"),
    "an unknown tool": ({"actions": [an_action(tool="fly")]}, Status.INVALID_ARGUMENT, "TOOL_NOT_FOUND"),
    "wrong arguments": (
        {"actions": [an_action(tool="nudge", arguments={"by": "far"})]}, Status.INVALID_ARGUMENT, "INVALID_PARAMETERS",
    ),
    "no JSON": (
        {"actions": [messages.Action(tool="nudge", arguments_json="{")]}, Status.INVALID_ARGUMENT, "INVALID_PARAMETERS",
    ),
    "no session": ({"session_id": "nobody"}, Status.NOT_FOUND, "no such session"),
    "a seed beyond 2**63": ({"reset": True, "seed": 2**64 - 1}, Status.INVALID_ARGUMENT, "seed"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_refused_and_costs_nothing(dialled: Any, case: str) -> None:
    _, stub = dialled()
    name = created(stub)
    fields, status, says = WRONG[case]
    code, details = refused(lambda: stub.FastAdvance(messages.FastAdvanceRequest(**{"session_id": name, **fields})))
    assert code is status
    assert says in details
    assert advanced(stub, name).tick == 1


def test_creating_says_what_is_wrong(dialled: Any) -> None:
    _, stub = dialled(max_sessions=2)
    assert refused(lambda: created(stub, game="chess"))[0] is Status.NOT_FOUND
    assert refused(lambda: created(stub, options_json="[]"))[0] is Status.INVALID_ARGUMENT
    assert refused(lambda: created(stub, tick_rate=-1.0))[0] is Status.INVALID_ARGUMENT
    created(stub), created(stub)
    code, details = refused(lambda: created(stub))
    assert code is Status.RESOURCE_EXHAUSTED
    assert "all 2 sessions" in details


def test_a_session_that_has_ended_says_why(dialled: Any) -> None:
    pool, stub = dialled()
    name = created(stub)
    advanced(stub, name)
    pool.get(name).detach("the dog ate it")
    code, details = refused(lambda: advanced(stub, name))
    assert code is Status.ABORTED
    assert "the dog ate it" in details


def test_a_game_that_raises_ends_its_session_alone(dialled: Any) -> None:
    _, stub = dialled(kwargs={"crash_at": 3}, together=False)
    one, other = created(stub), created(stub)
    advanced(stub, other)
    code, details = refused(lambda: advanced(stub, one, ticks=5))
    assert code is Status.INTERNAL
    assert "a bug of the game" in details
    assert refused(lambda: advanced(stub, one))[0] is Status.ABORTED
    assert advanced(stub, other).tick == 2


def test_half_a_character_of_the_game_holds_up_nobody(dialled: Any) -> None:
    _, stub = dialled(game=Half)
    name = created(stub, seed=1)
    assert advanced(stub, name, ticks=LIMIT).result == "draw \\ud800"
    assert stub.GetState(messages.SessionRequest(session_id=name)).text == "half \\ud800"
    assert len(stub.ListSessions(messages.ListSessionsRequest()).sessions) == 1


def test_a_full_queue_is_refused_and_the_client_gets_through_later(served: Any) -> None:
    free = threading.Event()

    class Slow(Drift):
        def step_envs(self, actions: Any, env_ids: Any) -> None:
            free.wait(20)
            super().step_envs(actions, env_ids)

    pool, server = served("grpc", Slow, workers=1, together=False, queue_wait=0.0, max_sessions=16)
    target = server.url.removeprefix("grpc://")
    with grpc.insecure_channel(target) as plain, grpc.insecure_channel(target, client_options()) as retrying:
        stub = SessionsStub(plain)
        names = [created(stub) for _ in range(12)]
        calls = [stub.FastAdvance.future(messages.FastAdvanceRequest(session_id=name)) for name in names]
        eventually(lambda: any(call.done() for call in calls))
        assert next(call for call in calls if call.done()).code() is Status.RESOURCE_EXHAUSTED
        late = SessionsStub(retrying).FastAdvance.future(messages.FastAdvanceRequest(session_id=names[-1]), timeout=60)
        free.set()
        assert late.result().tick >= 1
    assert pool.counters.snapshot()["requests_refused"] > 0


def test_health_and_reflection(served: Any) -> None:
    _, server = served("grpc")
    with grpc.insecure_channel(server.url.removeprefix("grpc://")) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=SERVICE))
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        (answer,) = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(asked)
        assert SERVICE in [service.name for service in answer.list_services_response.service]


def test_a_server_that_has_closed_is_unavailable(served: Any) -> None:
    _, server = served("grpc")
    with grpc.insecure_channel(server.url.removeprefix("grpc://")) as channel:
        stub = SessionsStub(channel)
        created(stub)
        server.close()
        assert refused(lambda: created(stub))[0] is Status.UNAVAILABLE


def test_a_taken_port_is_an_error(served: Any, make_pool: Any) -> None:
    from ue_rl.plugins.sessions.grpc import serve

    _, server = served("grpc")
    with pytest.raises(OSError, match="cannot listen"):
        serve(make_pool(), port=int(server.url.rpartition(":")[2]))


# -- several in one message


def test_step_all_packs_its_rows_in_the_order_of_the_ids(dialled: Any) -> None:
    _, stub = dialled()
    names = [created(stub) for _ in range(3)]
    begin = [messages.SessionReset(row=row, seed=row) for row in range(3)]
    first = stub.StepAll(messages.StepAllRequest(session_ids=names, resets=begin))
    rows = np.frombuffer(first.observations, "<f4").reshape(3, 3)
    assert [numbers(advanced(stub, name, reset=True, seed=row)).tolist() for row, name in enumerate(names)] == [
        row.tolist() for row in rows
    ]
    actions = np.zeros((3, 2), "<f4")
    mixed = stub.StepAll(messages.StepAllRequest(
        session_ids=names[::-1], actions=actions.tobytes(), ticks=2, resets=[messages.SessionReset(row=1)],
    ))  # fmt: skip
    assert list(mixed.ticks) == [2, 0, 2]


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"session_ids": ["a", "a"]}, {"actions": b"123"}, {"actions": b"1234" * 6, "resets": [{"row": 3}]},
        {"resets": [{"row": 0}, {"row": 0}]}, {"resets": [{"row": 0, "options_json": "x"}]},
    ],
)  # fmt: skip
def test_step_all_refuses_what_is_wrong(dialled: Any, fields: dict[str, Any]) -> None:
    _, stub = dialled()
    names = [created(stub) for _ in range(3)] if fields else []
    given = {"session_ids": names, **fields}
    if given["session_ids"] == ["a", "a"]:
        given["session_ids"] = names[:1] * 2
    code, told = refused(lambda: stub.StepAll(messages.StepAllRequest(**given)))
    assert code is Status.INVALID_ARGUMENT
    if not names:
        assert "no session is named (field session_ids)" in told


def test_step_all_without_sessions_says_that(dialled: Any) -> None:
    _, stub = dialled()
    resets = [messages.SessionReset(row=0)]
    _, told = refused(lambda: stub.StepAll(messages.StepAllRequest(resets=resets)))
    assert "no session is named (field session_ids)" in told
    two = [created(stub), created(stub)]
    _, told = refused(lambda: stub.StepAll(messages.StepAllRequest(session_ids=two, resets=resets * 2)))
    assert "expected 0 to 1; got [0, 0]" in told
