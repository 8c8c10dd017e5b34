"""The dispatcher of commands, without a ring: who is asked what, and answers that cannot be sent."""

from __future__ import annotations

from typing import Any

import pytest

from ue_rl.protocol.commands.dispatcher import Dispatcher
from ue_rl.protocol.commands.envelope import PAYLOADS, Command, Method, decode, encode, messages, mismatch

M = messages()


def ask(dispatcher: Dispatcher, method: int, payload: Any = None, longest: int = 2**31) -> Command:
    answer = dispatcher.answer(encode(method, payload, 9), longest)
    assert answer is not None
    assert len(answer) <= longest
    command = decode(answer)
    assert (command.correlation_id, command.method) == (9, method)
    return command


def test_a_handler_gets_the_payload_and_its_answer_goes_back() -> None:
    dispatcher = Dispatcher()
    dispatcher.register(Method.GET_ENTITY, lambda payload, command: M.EntityT(id=payload.id + command.correlation_id))
    assert ask(dispatcher, Method.GET_ENTITY, M.GetEntityT(id=1)).payload.id == 10
    assert dispatcher.methods == [82]
    assert "does not know method PING" in str(ask(dispatcher, Method.PING, M.PingT()).error)
    assert "does not know method 4711" in str(ask(dispatcher, 4711).error)


def test_a_wrong_payload_never_reaches_the_handler() -> None:
    dispatcher = Dispatcher()
    for method in Method:
        dispatcher.register(method, lambda payload, command: pytest.fail("called"))
        if PAYLOADS[method][0] != "Parameters":
            wrong = ask(dispatcher, method, M.ParametersT()).error
            assert wrong == f"{method.name} carries {PAYLOADS[method][0]}, got Parameters"
    assert ask(dispatcher, Method.PING).error == "PING carries Ping, got no payload"


def test_a_request_without_fields_may_come_without_its_payload() -> None:
    assert mismatch(Method.LIST_ENTITIES, None) is not None
    assert mismatch(Method.GET_SCENE_INFO, None) is None
    assert mismatch(1000, object()) is None


def test_a_wrong_answer_is_an_error_message_and_not_the_end() -> None:
    dispatcher = Dispatcher()
    answers: dict[int, Any] = {
        1000: "text",
        1001: M.ParameterT(),
        1002: M.PingT(stamp="no"),
        Method.GET_ENTITY: M.PingT(),
    }
    for method, answer in answers.items():
        dispatcher.register(method, lambda payload, command, answer=answer: answer)
    for method in (1000, 1001, 1002):
        assert "cannot be written" in str(ask(dispatcher, method).error)
    assert ask(dispatcher, Method.GET_ENTITY, M.GetEntityT()).error == "GET_ENTITY is answered with Entity, got Ping"


def test_an_answer_or_error_too_long_for_the_ring_is_an_error_that_fits() -> None:
    dispatcher = Dispatcher()

    def fail(payload: Any, command: Command) -> Any:
        raise ValueError("\N{GRINNING FACE}" * 100_000)

    dispatcher.register(1000, fail)
    dispatcher.register(1001, lambda payload, command: M.CloseT(reason="x" * 5000))
    assert str(ask(dispatcher, 1000, longest=1000).error).startswith("ValueError: \N{GRINNING FACE}")
    assert len(str(ask(dispatcher, 1000).error)) < 2100
    assert "the command ring takes 1000" in str(ask(dispatcher, 1001, longest=1000).error)
    assert ask(dispatcher, 1001).error is None


def test_who_wants_no_answer_gets_none() -> None:
    dispatcher = Dispatcher()
    seen = []
    dispatcher.register(1000, lambda payload, command: seen.append(payload) or object())
    assert dispatcher.answer(encode(1000, M.PingT(stamp=4))) is None
    assert dispatcher.answer(encode(1001)) is None
    assert [payload.stamp for payload in seen] == [4]
