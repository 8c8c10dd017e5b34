"""Session: every event in every state, for both roles."""

from __future__ import annotations

import pytest

from ue_rl.protocol.text.connection_state import Event, Role, Session, State
from ue_rl.system.errors import ConnectionUnusable, NonFiniteValue, UnexpectedMessage

PATHS: dict[State, tuple[Event, ...]] = {
    State.NEW: (),
    State.HANDSHAKE: (Event.CONNECT,),
    State.READY: (Event.CONNECT, Event.CONFIG),
    State.ASKED: (Event.CONNECT, Event.CONFIG, Event.ASK),
    State.CLOSED: (Event.CLOSE,),
    State.FAILED: (Event.FAIL,),
}
FOLLOWING = {
    (State.NEW, Event.CONNECT): State.HANDSHAKE,
    (State.HANDSHAKE, Event.CONFIG): State.READY,
    (State.READY, Event.ASK): State.ASKED,
    (State.ASKED, Event.ANSWERED): State.READY,
    (State.ASKED, Event.WITHDRAW): State.READY,
    **{(state, Event.CLOSE): State.CLOSED for state in State},
    **{(state, Event.FAIL): State.FAILED for state in State},
    (State.CLOSED, Event.FAIL): State.CLOSED,
}
REFUSED = {
    State.NEW: (ConnectionUnusable, "not open yet"),
    State.HANDSHAKE: (ConnectionUnusable, "not open yet"),
    State.READY: (UnexpectedMessage, "nothing was asked"),
    State.ASKED: (UnexpectedMessage, "a request is still unanswered"),
    State.CLOSED: (ConnectionUnusable, "was closed"),
    State.FAILED: (ConnectionUnusable, "failed before: out of order"),
}


def at(role: Role, state: State) -> Session:
    session = Session(role)
    for event in PATHS[state]:
        session.on(event, "out of order" if event is Event.FAIL else None)
    assert session.state is state
    assert session.ended == (state in (State.CLOSED, State.FAILED))
    return session


@pytest.mark.parametrize("event", Event, ids=lambda event: event.name)
@pytest.mark.parametrize("state", State, ids=lambda state: state.name)
@pytest.mark.parametrize("role", Role, ids=lambda role: role.name)
def test_each_event_in_each_state(role: Role, state: State, event: Event) -> None:
    session = at(role, state)
    following = FOLLOWING.get((state, event))
    if (role, state, event) == (Role.ENGINE, State.ASKED, Event.ASK):
        following = State.ASKED  # per-env sockets: one env may be asked while another one still acts
    if following is None:
        kind, text = REFUSED[state]
        if kind is UnexpectedMessage and event in (Event.CONNECT, Event.CONFIG):
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
    session.on(event, "the last straw" if event is Event.FAIL else None)
    assert session.state is following
    if event is Event.FAIL:  # the first reason is the one that helps
        assert session.reason == {State.CLOSED: None, State.FAILED: "out of order"}.get(state, "the last straw")


def test_what_was_called_out_of_order_names_the_call_that_belongs_before_it() -> None:
    with pytest.raises(UnexpectedMessage) as caught:
        at(Role.TRAINER, State.READY).require(Event.ANSWERED)
    assert str(caught.value) == (
        "receive() was called, but nothing was asked [at fault: caller]. Call send_actions() or reset() first"
    )
    with pytest.raises(UnexpectedMessage) as caught:
        at(Role.TRAINER, State.ASKED).require(Event.ASK)
    assert str(caught.value) == "a request is still unanswered [at fault: caller]. Call receive() first"
    with pytest.raises(UnexpectedMessage) as caught:
        at(Role.ENGINE, State.READY).require(Event.ANSWERED)
    assert str(caught.value) == "an answer was given, but nothing was asked [at fault: trainer]"


@pytest.mark.parametrize("role", Role, ids=lambda role: role.name)
def test_after_a_failure_who_was_at_fault_then_is_named_alone(role: Role) -> None:
    session = Session(role)
    first = NonFiniteValue("a value is NaN", fault="engine", env_id=3, field="OBS", got="nan", cure="mend the game")
    session.on(Event.FAIL, first)
    session.on(Event.FAIL, "what followed")
    with pytest.raises(ConnectionUnusable) as caught:
        session.require(Event.ASK)
    assert str(caught.value) == (
        "this connection failed before: a value is NaN (env 3, field OBS); got nan [at fault: engine]. "
        "Mend the game. Connect again"
    )
    assert caught.value.fault == "engine"


def test_a_session_is_a_trainers_by_default() -> None:
    session = Session()
    assert session.reason is None
    with pytest.raises(ConnectionUnusable) as caught:
        session.require(Event.ASK)
    assert caught.value.fault == "caller"


def test_the_numbers_of_states_and_events_are_in_order() -> None:
    """Tables are looked up by them."""
    assert [int(state) for state in State] == list(range(6))
    assert [int(event) for event in Event] == list(range(7))
