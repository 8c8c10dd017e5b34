"""ConnectionState: every event in every state, for both roles."""

from __future__ import annotations

import pytest

from ue_rl.protocol.text.connection_state import ConnectionEvent, ConnectionPhase, ConnectionState, Role
from ue_rl.system.errors import ConnectionUnusable, NonFiniteValue, UnexpectedMessage

PATHS: dict[ConnectionPhase, tuple[ConnectionEvent, ...]] = {
    ConnectionPhase.NEW: (),
    ConnectionPhase.HANDSHAKE: (ConnectionEvent.CONNECT,),
    ConnectionPhase.READY: (ConnectionEvent.CONNECT, ConnectionEvent.CONFIG),
    ConnectionPhase.ASKED: (ConnectionEvent.CONNECT, ConnectionEvent.CONFIG, ConnectionEvent.ASK),
    ConnectionPhase.CLOSED: (ConnectionEvent.CLOSE,),
    ConnectionPhase.FAILED: (ConnectionEvent.FAIL,),
}
FOLLOWING = {
    (ConnectionPhase.NEW, ConnectionEvent.CONNECT): ConnectionPhase.HANDSHAKE,
    (ConnectionPhase.HANDSHAKE, ConnectionEvent.CONFIG): ConnectionPhase.READY,
    (ConnectionPhase.READY, ConnectionEvent.ASK): ConnectionPhase.ASKED,
    (ConnectionPhase.ASKED, ConnectionEvent.ANSWERED): ConnectionPhase.READY,
    (ConnectionPhase.ASKED, ConnectionEvent.WITHDRAW): ConnectionPhase.READY,
    **{(state, ConnectionEvent.CLOSE): ConnectionPhase.CLOSED for state in ConnectionPhase},
    **{(state, ConnectionEvent.FAIL): ConnectionPhase.FAILED for state in ConnectionPhase},
    (ConnectionPhase.CLOSED, ConnectionEvent.FAIL): ConnectionPhase.CLOSED,
}
REFUSED = {
    ConnectionPhase.NEW: (ConnectionUnusable, "not open yet"),
    ConnectionPhase.HANDSHAKE: (ConnectionUnusable, "not open yet"),
    ConnectionPhase.READY: (UnexpectedMessage, "nothing was asked"),
    ConnectionPhase.ASKED: (UnexpectedMessage, "a request is still unanswered"),
    ConnectionPhase.CLOSED: (ConnectionUnusable, "was closed"),
    ConnectionPhase.FAILED: (ConnectionUnusable, "failed before: out of order"),
}


def at(role: Role, state: ConnectionPhase) -> ConnectionState:
    session = ConnectionState(role)
    for event in PATHS[state]:
        session.on(event, "out of order" if event is ConnectionEvent.FAIL else None)
    assert session.state is state
    assert session.ended == (state in (ConnectionPhase.CLOSED, ConnectionPhase.FAILED))
    return session


@pytest.mark.parametrize("event", ConnectionEvent, ids=lambda event: event.name)
@pytest.mark.parametrize("state", ConnectionPhase, ids=lambda state: state.name)
@pytest.mark.parametrize("role", Role, ids=lambda role: role.name)
def test_each_event_in_each_state(role: Role, state: ConnectionPhase, event: ConnectionEvent) -> None:
    session = at(role, state)
    following = FOLLOWING.get((state, event))
    if (role, state, event) == (Role.ENGINE, ConnectionPhase.ASKED, ConnectionEvent.ASK):
        following = ConnectionPhase.ASKED  # per-env sockets: one env may be asked while another one still acts
    if following is None:
        kind, text = REFUSED[state]
        if kind is UnexpectedMessage and event in (ConnectionEvent.CONNECT, ConnectionEvent.CONFIG):
            text = "is open already"
        for call in (session.require, session.on):
            with pytest.raises(kind, match=text) as caught:
                call(event)
            assert type(caught.value) is kind
            assert caught.value.fault == ("caller" if role is Role.TRAINER else "trainer")
            assert session.state is state
        return
    session.require(event)
    assert session.state is state
    session.on(event, "the last straw" if event is ConnectionEvent.FAIL else None)
    assert session.state is following
    if event is ConnectionEvent.FAIL:  # the first reason is the one that helps
        assert session.reason == {ConnectionPhase.CLOSED: None, ConnectionPhase.FAILED: "out of order"}.get(
            state, "the last straw"
        )


def test_what_was_called_out_of_order_names_the_call_that_belongs_before_it() -> None:
    with pytest.raises(UnexpectedMessage) as caught:
        at(Role.TRAINER, ConnectionPhase.READY).require(ConnectionEvent.ANSWERED)
    assert str(caught.value) == (
        "receive() was called, but nothing was asked [at fault: caller]. Call send_actions() or reset() first"
    )
    with pytest.raises(UnexpectedMessage) as caught:
        at(Role.TRAINER, ConnectionPhase.ASKED).require(ConnectionEvent.ASK)
    assert str(caught.value) == "a request is still unanswered [at fault: caller]. Call receive() first"
    with pytest.raises(UnexpectedMessage) as caught:
        at(Role.ENGINE, ConnectionPhase.READY).require(ConnectionEvent.ANSWERED)
    assert str(caught.value) == "an answer was given, but nothing was asked [at fault: trainer]"


@pytest.mark.parametrize("role", Role, ids=lambda role: role.name)
def test_after_a_failure_who_was_at_fault_then_is_named_alone(role: Role) -> None:
    session = ConnectionState(role)
    first = NonFiniteValue("a value is NaN", fault="engine", env_id=3, field="OBS", got="nan", cure="mend the game")
    session.on(ConnectionEvent.FAIL, first)
    session.on(ConnectionEvent.FAIL, "what followed")
    with pytest.raises(ConnectionUnusable) as caught:
        session.require(ConnectionEvent.ASK)
    assert str(caught.value) == (
        "this connection failed before: a value is NaN (env 3, field OBS); got nan [at fault: engine]. "
        "Mend the game. Connect again"
    )
    assert caught.value.fault == "engine"


def test_a_session_is_a_trainers_by_default() -> None:
    session = ConnectionState()
    assert session.reason is None
    with pytest.raises(ConnectionUnusable) as caught:
        session.require(ConnectionEvent.ASK)
    assert caught.value.fault == "caller"


def test_the_numbers_of_states_and_events_are_in_order() -> None:
    """Tables are looked up by them."""
    assert [int(state) for state in ConnectionPhase] == list(range(6))
    assert [int(event) for event in ConnectionEvent] == list(range(7))
