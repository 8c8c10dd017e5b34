"""Sessions that come, go and are asked while their game is busy or hangs, and games whose numbers are no numbers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import Any

import numpy as np
import pytest

from tests.plugins.sessions.realtime.games import Orders, Sums
from tests.support.waiting import eventually
from ue_rl.plugins.sessions.realtime import SessionPool
from ue_rl.system.errors import GameFailed


class Gated(Sums):
    """Where `gate` is set to an event, a reset or a tick waits for it."""

    gate: threading.Event | None = None

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        if self.gate is not None:
            self.gate.wait(60)
        super().step_envs(actions, env_ids)

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        if self.gate is not None:
            self.gate.wait(60)
        super().reset_envs(env_ids, seeds, options)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], threading.Event]]:
    """Shuts it; what is returned opens it."""
    event = threading.Event()

    def shut() -> threading.Event:
        monkeypatch.setattr(Gated, "gate", event)
        return event

    yield shut
    event.set()


def test_a_session_that_has_played_for_long_may_load_another_episode(
    gate: Callable[[], threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    with SessionPool(Gated, workers=1, max_sessions=2) as pool:
        session = pool.create()
        session.advance(1)
        real, shut = time.monotonic, gate()
        monkeypatch.setattr(time, "monotonic", lambda: real() + 150)
        asked = session.submit(0, reset=True)
        eventually(lambda: session.resetting)
        pool._reap()
        shut.set()
        assert asked.result(20).tick == 0


def test_an_action_that_comes_before_its_session_has_a_row_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class Meets(Orders):
        def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
            super().reset_envs(env_ids, seeds, options)
            if others:
                others.pop()()

    others: list[Callable[[], None]] = []
    with SessionPool(Meets, workers=1, max_sessions=2) as pool:
        first, second = pool.create(), []
        first.advance(1)

        def another() -> None:
            second.append(pool.create())
            second[0].act([3.0])

        others.append(another)
        first.advance(1, reset=True)
        assert second[0].advance(1).observation[2] == 3


def test_what_a_session_is_in_words_is_never_said_of_another(gate: Callable[[], threading.Event]) -> None:
    with SessionPool(Gated, workers=1, max_sessions=2) as pool:
        first, last = pool.create(), pool.create()
        last.advance(1)
        shut = gate()
        running = last.submit(1)
        eventually(lambda: last.current is not None)
        first.destroy(wait=0)
        told: list[str] = []
        asking = threading.Thread(target=lambda: told.append(first.describe()))
        asking.start()
        shut.set()
        asking.join()
        assert (told, running.result(20).tick) == ([""], 2)


def test_rates_of_sessions_that_have_gone_leave_nothing() -> None:
    with SessionPool(Sums, workers=1, max_sessions=2) as pool:
        stays = pool.create(tick_rate=200)
        for number in range(50):
            session = pool.create(tick_rate=1e-6 * (1 + number))
            session.reset()
            session.destroy()
        eventually(lambda: stays.latest.tick > 3)
        assert [clock.rate for clock in stays.world.paces.clocks()] == [200]
        eventually(lambda: len(pool._threads._timers) < 10)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_reward_that_is_no_number_ends_its_session(wrong: float) -> None:
    class Wrong(Sums):
        def step_envs(self, actions: Any, env_ids: Any) -> None:
            super().step_envs(actions, env_ids)
            self.outbox.rewards[env_ids[self.outbox.obs[env_ids, 3] == 9]] = wrong

    with SessionPool(Wrong, workers=1, max_sessions=2) as pool:
        good, bad = pool.create(), pool.create()
        asked = [good.submit(1, [[1.0]]), bad.submit(1, [[9.0]])]
        wait(asked)
        assert asked[0].result().reward == 1
        with pytest.raises(GameFailed, match="reward is not finite"):
            asked[1].result()
