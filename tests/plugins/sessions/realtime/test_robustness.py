"""Order, bounds and leftovers of sessions."""

from __future__ import annotations

import gc
import threading
import warnings
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import pytest

from tests.plugins.sessions.game import Drift
from tests.plugins.sessions.realtime.games import OneByOne, Sums
from tests.support.waiting import eventually
from ue_rl.plugins.sessions.realtime import SessionPool
from ue_rl.plugins.sessions.realtime.lifecycle import TABLE, LifeCycle, Phase, SessionEvent
from ue_rl.system.errors import ActionError, GameFailed, ResourceExhausted, SessionEnded, UnexpectedMessage


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A tick of OneByOne waits until it is set."""
    event = threading.Event()
    monkeypatch.setattr(OneByOne, "gate", event)
    yield event
    event.set()


def test_two_advances_of_a_session_are_done_in_order_and_never_in_parallel() -> None:
    with SessionPool(Sums, workers=4, max_sessions=4) as pool:
        session = pool.create()
        asked: list[Future[Any]] = []

        def ask(number: int) -> None:
            for _ in range(25):
                asked.append(session.submit(2, [[float(number)]]))

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait(asked)
        ticks = sorted(each.result().tick for each in asked)
        assert ticks == list(range(2, 202, 2)), "the game itself asserts that no two ticks run at once"
        first, second = session.submit(3, [[1.0]]), session.submit(4, [[2.0]])
        assert (first.result().tick, second.result().tick) == (203, 207)


def test_past_the_bound_of_the_queue_a_request_is_refused_and_gets_through_later(gate: threading.Event) -> None:
    with SessionPool(OneByOne, workers=1, max_sessions=8, queue_wait=0.05) as pool:
        sessions = [pool.create() for _ in range(6)]
        running = sessions[0].submit(1)
        eventually(lambda: sessions[0].current is not None)
        waiting = [session.submit(1) for session in sessions[1:5]]
        with pytest.raises(ResourceExhausted, match="too many requests wait"):
            sessions[5].submit(1)
        assert pool.counters.snapshot()["requests_refused"] == 1
        later: list[Any] = []
        thread = threading.Thread(target=lambda: later.append(sessions[5].submit(1, wait=20).result()))
        thread.start()
        gate.set()
        thread.join()
        assert [each.result().tick for each in [running, *waiting]] == [1] * 5
        assert later[0].tick == 1


def test_a_session_that_is_destroyed_while_it_advances(gate: threading.Event) -> None:
    with SessionPool(OneByOne, workers=1, max_sessions=2) as pool:
        session = pool.create()
        running, behind = session.submit(5000), session.submit(1)
        eventually(lambda: session.current is not None)
        ending = threading.Thread(target=session.destroy)
        ending.start()
        eventually(lambda: session.phase is Phase.CLEANUP)
        gate.set()
        ending.join()
        for each in (running, behind):
            with pytest.raises(SessionEnded, match="it was destroyed"):
                each.result()
        assert session.phase is Phase.IDLE
        assert pool.create().advance(1).tick == 1


def test_a_game_that_hangs_does_not_hang_who_destroys_it(gate: threading.Event) -> None:
    pool = SessionPool(OneByOne, workers=1, max_sessions=2)
    pool.patience = 0.1
    session = pool.create()
    asked = session.submit(1)
    eventually(lambda: session.current is not None)
    session.destroy()
    with pytest.raises(SessionEnded):
        session.submit(1)
    pool.close()
    gate.set()
    with pytest.raises(SessionEnded):
        asked.result(20)


def test_a_cancelled_request_is_not_done(gate: threading.Event) -> None:
    with SessionPool(OneByOne, workers=1, max_sessions=2) as pool:
        session = pool.create()
        first, second, third = (session.submit(1) for _ in range(3))
        eventually(lambda: session.current is not None)
        assert second.cancel()
        gate.set()
        assert (first.result().tick, third.result().tick) == (1, 2)


def test_a_long_advance_lets_the_others_go_on(gate: threading.Event) -> None:
    with SessionPool(OneByOne, workers=1, max_sessions=2, kwargs={"length": 10**9}) as pool:
        long, short = pool.create(), pool.create()
        asked = [long.submit(5000)]
        eventually(lambda: long.current is not None)
        asked += [long.submit(5000) for _ in range(3)]
        quick, done = short.submit(1), []
        quick.add_done_callback(lambda _: done.append(asked[-1].done()))  # by the worker, which does them all
        gate.set()
        assert quick.result().tick == 1
        eventually(lambda: done)
        assert done == [False]
        asked[-1].cancel()


def test_a_game_that_fails_at_its_start_is_closed() -> None:
    closed: list[int] = []

    class Fails(OneByOne):
        def start_training(self) -> None:
            raise RuntimeError("no licence")

        def close(self) -> None:
            closed.append(1)

    with SessionPool(Fails, workers=1, max_sessions=2) as pool:
        session = pool.create()
        with pytest.raises(Exception, match="no licence"):
            session.advance(1)
        eventually(lambda: bool(closed))


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("game", [Sums, OneByOne])
def test_many_sessions_leave_nothing(game: Any, count: int) -> None:
    process = psutil.Process()
    threads = set(threading.enumerate())
    with SessionPool(game, workers=2, max_sessions=8) as pool:

        def use(count: int) -> None:
            for number in range(count):
                session = pool.create(seed=number, tick_rate=0 if number % 3 == 0 else None)
                session.advance(2)
                session.destroy()

        use(30)
        gc.collect()
        gc.freeze()  # what other tests have left is looked at once
        objects = len(gc.get_objects())
        rss, descriptors, running = process.memory_info().rss, process.num_fds(), set(threading.enumerate())
        use(count)
        gc.collect()
        # What a test before this one has left may go meanwhile, and what closes now may take a moment.
        eventually(lambda: process.num_fds() <= descriptors, said="descriptors are left")
        assert set(threading.enumerate()) <= running
        # A thousand sessions with one leaked observation each would not show; one leaked session would, at about 10 kB.
        assert process.memory_info().rss - rss < 4e6
        # One object of each, that nobody frees, would be seen.
        assert len(gc.get_objects()) - objects < count / 2
        assert pool.sessions() == []
    assert set(threading.enumerate()) <= threads


def test_the_table_has_a_way_out_of_every_phase() -> None:
    for phase in Phase:
        reached, new = set(), {phase}
        while new:
            reached |= new
            new = {to for (at, _), to in TABLE.items() if at in new} - reached
        assert Phase.IDLE in reached, phase
    starts, new = set(), {Phase.IDLE}
    while new:
        starts |= new
        new = {to for (at, _), to in TABLE.items() if at in new} - starts
    assert starts == set(Phase)
    life = LifeCycle()
    with pytest.raises(UnexpectedMessage, match="START cannot happen to a session that is IDLE"):
        life.on(SessionEvent.START)
    life.on(SessionEvent.LAUNCH)
    life.on(SessionEvent.LOSE, "first")
    life.on(SessionEvent.DESTROY, "second")
    assert (life.reason, life.live, life.may(SessionEvent.EXPIRE)) == ("first", False, False)


def test_ticks_run_on_the_workers_alone() -> None:
    seen: set[str] = set()

    class Named(Sums):
        def step_envs(self, actions: Any, env_ids: Any) -> None:
            seen.add(threading.current_thread().name)
            super().step_envs(actions, env_ids)

    with SessionPool(Named, workers=1, max_sessions=2) as pool:
        pool.create().advance(3)
        pool.create(tick_rate=0).advance(3)
    assert seen == {"ue_rl-session-0"}


class FailsLoudly(Sums):
    """Says something of every row, and fails in the first tick of its life."""

    failed = False

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.configure(replace(self.spec, features=self.spec.features | {"INFO"}))

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        for env in env_ids.tolist():
            self.write_info(env, {"said": "before it failed"})
        if not self.failed:
            self.failed = True
            raise ZeroDivisionError("the game cannot go on")
        super().step_envs(actions, env_ids)


def test_what_a_game_says_as_it_fails_is_not_told_the_next_session() -> None:
    with SessionPool(FailsLoudly, workers=1, max_sessions=1, together=True) as pool:
        with pytest.raises(GameFailed):
            pool.create().advance(1)
        eventually(lambda: not pool.sessions())
        session = pool.create()
        assert session.observe(30.0).info == {}
        assert session.reset().info == {}
        assert session.advance(1).info == {"said": "before it failed"}


class Breaks(Drift):
    """Sees a number that is not finite, in its third tick."""

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        super().step_envs(actions, env_ids)
        self.outbox.obs[env_ids[self.ticks[env_ids] == 3], 0] = np.nan


def test_an_error_names_sessions_and_not_the_rows_of_a_pool() -> None:
    with SessionPool(Breaks, max_sessions=3) as pool:
        sessions = [pool.create() for _ in range(3)]
        with warnings.catch_warnings(), pytest.raises(ActionError, match=r"got \[1e\+39, 0.0\]") as refused:
            warnings.simplefilter("error")
            sessions[2].advance(1, [[1e39, 0.0]])
        assert "env" not in str(refused.value)
        rows = np.zeros((3, 2))
        rows[2, 1] = np.inf
        with pytest.raises(ActionError, match=f"session {sessions[2].id}") as refused:
            pool.advance_all(sessions, 1, rows, resets=[0])
        assert "env" not in str(refused.value)
        sessions[2].advance(2)
        with pytest.raises(GameFailed, match="observation is not finite") as failed:
            sessions[2].advance(1)
        assert "env" not in str(failed.value)
        assert "env" not in sessions[2].reason
