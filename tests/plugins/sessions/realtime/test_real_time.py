"""Sessions that do not wait: clocks, the mailbox, the queue of actions, planning."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tests.plugins.sessions.realtime.games import Orders, Sums
from tests.support.waiting import eventually
from ue_rl.plugins.sessions.realtime import GameClock, Phase, SessionObservation, SessionPool, ToolCall
from ue_rl.plugins.sessions.realtime.queues import ActionQueue, Mailbox
from ue_rl.system.errors import ConfigurationError, SessionEnded


def seen(tick: int, reward: float = 1.0) -> SessionObservation:
    return SessionObservation("s", tick, np.zeros(1, np.float32), reward, ticks_advanced=1)


def test_a_slow_reader_reads_the_newest_and_a_fast_one_loses_none() -> None:
    box = Mailbox()
    for tick in range(101):
        box.put(seen(tick))
        taken = box.take()
        assert taken is not None
        assert (taken.tick, taken.reward) == (tick, 1)
    assert box.dropped == 0
    for tick in range(101, 151):
        box.put(seen(tick))
    taken = box.take()
    assert taken is not None
    assert (taken.tick, taken.dropped_observations, taken.reward, taken.ticks_advanced) == (150, 49, 50, 50)
    assert box.take() is None
    assert box.newest is taken


def test_of_twenty_actions_the_last_sixteen_are_drained() -> None:
    queue: ActionQueue[int] = ActionQueue()
    for n in range(1, 21):
        queue.put(n)
    assert (queue.drain(), queue.dropped) == (list(range(5, 21)), 4)
    assert queue.drain() == []


def test_a_late_tick_is_counted_and_never_made_up_for() -> None:
    clock = GameClock(25)
    begun = clock.due
    for n in range(10):
        assert clock.tick(begun + n * 0.04) == pytest.approx(0, abs=1e-9)
    assert clock.late_ticks == 0
    late = begun + 10 * 0.04 + 0.1
    assert clock.tick(late) == pytest.approx(0.1)
    assert clock.late_ticks == 1
    assert clock.due == pytest.approx(late + 0.04), "a whole period was missed: it goes on from here"
    clock.tick(clock.due + 0.01)
    assert clock.late_ticks == 2
    assert clock.due == pytest.approx(late + 0.08), "less than a period: the grid stays"
    assert clock.lateness()["max"] == pytest.approx(0.1)


def test_a_clock_that_catches_up_and_one_without_a_rate() -> None:
    clock = GameClock(25, catch_up=True)
    begun = clock.due
    clock.tick(begun + 1.0)
    assert clock.due == pytest.approx(begun + 0.04)
    free = GameClock(0)
    assert (free.tick(free.due + 5), free.late_ticks) == (0, 0)
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigurationError):
            GameClock(wrong)


@pytest.mark.parametrize("rate", [200.0, 0.0])
def test_a_game_without_an_agent_ticks_on(rate: float) -> None:
    with SessionPool(Sums, workers=1, max_sessions=2, tick_rate=rate, kwargs={"length": 10**9}) as pool:
        session = pool.create()
        eventually(lambda: session.state().tick > 50)
        taken = session.observe(1)
        assert taken is not None
        assert taken.ticks_advanced == taken.tick == taken.dropped_observations
        assert session.phase is Phase.PLAYING


def test_a_reader_is_told_of_each_observation() -> None:
    with SessionPool(Sums, workers=1, max_sessions=2, tick_rate=100, kwargs={"length": 30}) as pool:
        session = pool.create()
        news = threading.Event()
        unsubscribe = session.subscribe(news.set)
        ticks, total = [], 0.0
        while not ticks or ticks[-1] < 30:
            assert news.wait(20)
            news.clear()
            taken = session.observe(0)
            if taken is not None:
                ticks.append(taken.tick)
                total += taken.ticks_advanced
        assert total == 30
        assert ticks == sorted(set(ticks))
        assert taken is not None
        assert taken.terminated
        unsubscribe()
        news.clear()
        session.destroy()
        assert not news.is_set()
        with pytest.raises(SessionEnded, match="it was destroyed"):
            session.observe(0)


def test_actions_are_applied_by_the_next_tick_and_nothing_is_done_without() -> None:
    with SessionPool(Orders, workers=1, max_sessions=2, tick_rate=100, kwargs={"length": 10**9}) as pool:
        session = pool.create()
        session.act([3.0], ToolCall("add", {"amount": 4}))
        eventually(lambda: session.latest.observation[2] == 7)
        eventually(lambda: session.latest.observation[3] == 0)
        dropped: dict[int, int] = {}  # by each tick: the clock goes on while this thread looks

        def note() -> None:
            dropped[session.latest.tick] = session.mailbox.dropped

        session.subscribe(note)
        answered = session.advance(3, [[1.0]])
        assert answered.observation[2] == 8
        eventually(lambda: answered.tick in dropped)
        assert answered.dropped_observations == dropped[answered.tick]


def test_the_last_action_is_held_where_that_is_asked_for() -> None:
    with SessionPool(Sums, workers=1, max_sessions=2, hold=True) as pool:
        assert pool.create().advance(4, [[2.0]]).observation[2] == 8


def test_a_request_in_real_time_waits_for_the_clock() -> None:
    with SessionPool(Sums, workers=1, max_sessions=2, tick_rate=200, kwargs={"length": 10**9}) as pool:
        session = pool.create()
        first = session.latest
        after = session.advance(20)
        assert after.tick >= first.tick + 20
        assert session.advance(50, reset=True, interrupts=["ten"]).tick == 10
        assert session.advance(50, reset=True, interrupts=["eleven"]).tick == 11
        assert pool.create(tick_rate=None).advance(7).tick == 7


def test_in_the_planning_phase_the_world_stands_still() -> None:
    with SessionPool(Sums, workers=1, max_sessions=3, tick_rate=0, planning=100.0) as pool:
        planned, timed = pool.create(), pool.create(planning=0.05)
        eventually(lambda: planned.phase is Phase.CONNECTING)
        planned.attach()
        assert planned.phase is Phase.STREAMING
        eventually(lambda: timed.phase in (Phase.PLAYING, Phase.GAME_OVER))
        assert planned.latest.tick == 0
        tool = planned.advance(0, [ToolCall("add", {"amount": 1})])
        assert (tool.tick, tool.info["tools"][0]["result"]) == (0, {"sum": 1.0})
        planned.start()
        eventually(lambda: planned.latest.tick > 0)


def test_an_agent_that_is_lost_ends_its_session() -> None:
    with SessionPool(Sums, workers=1, max_sessions=2, tick_rate=100) as pool:
        session = pool.create()
        session.attach()
        session.detach("the stream broke")
        with pytest.raises(SessionEnded, match="the stream broke"):
            pool.get(session.id)


def test_sessions_that_nobody_uses_are_reaped(slack: float) -> None:
    idle_timeout = 0.3 * slack  # in which this thread must come to touch the other one
    with SessionPool(Sums, workers=1, max_sessions=2, tick_rate=100, idle_timeout=idle_timeout) as pool:
        idle, used = pool.create(), pool.create()

        def one_is_gone() -> bool:
            used.touch()
            return idle not in pool.sessions()

        eventually(one_is_gone, 10 * slack)
        assert used in pool.sessions()
        with pytest.raises(SessionEnded, match=f"nobody used it for {idle_timeout:g} s"):
            pool.get(idle.id)
        assert pool.counters.snapshot()["sessions_reaped"] == 1


def test_many_in_real_time_tick_together(monkeypatch: pytest.MonkeyPatch) -> None:
    with SessionPool(Sums, workers=2, max_sessions=16, tick_rate=50, kwargs={"length": 10**9}) as pool:
        sessions = [pool.create() for _ in range(16)]
        eventually(lambda: min(session.latest.tick for session in sessions) > 20)
        game: Any = pool.example
        assert game.calls[-1] == 16
        for session in sessions:
            before = sessions[0].latest.tick
            tick = session.advance(1).tick
            assert before - 2 <= tick <= sessions[0].latest.tick + 2
