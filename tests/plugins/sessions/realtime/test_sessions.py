"""Sessions that advance when told."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from tests.plugins.sessions.realtime.games import OneByOne, Orders, Sums
from ue_rl.bridges.tools import tool
from ue_rl.plugins.sessions.realtime import Phase, SessionPool, ToolCall
from ue_rl.system.errors import (
    ActionError,
    ConfigurationError,
    GameFailed,
    ResourceExhausted,
    SessionEnded,
    SessionNotFound,
    ToolError,
    UnsupportedByEngine,
)

GAMES = pytest.mark.parametrize("game", [Sums, OneByOne])


@GAMES
def test_a_session_begins_advances_ends_and_begins_anew(game: Any) -> None:
    with SessionPool(game, kwargs={"length": 5}, workers=1, max_sessions=3) as pool:
        session = pool.create(seed=3)
        first = session.reset()
        assert (first.tick, first.observation.tolist(), first.reward, first.ticks_advanced) == (0, [3, 0, 0, 0], 0, 0)
        assert session.phase is Phase.CONNECTING
        second = session.advance(2, [[0.5]])
        assert (second.tick, second.observation.tolist(), second.reward) == (2, [3, 2, 0.5, 0], 0.5)
        assert (second.ticks_advanced, second.done, session.phase) == (2, False, Phase.PLAYING)
        last = session.advance(10, [[1]])
        assert (last.tick, last.ticks_advanced, last.terminated, last.truncated) == (5, 3, True, False)
        assert last.interrupt == "game_over"
        assert session.phase is Phase.GAME_OVER
        with pytest.raises(ConfigurationError, match=r"the episode is over.*Reset the session"):
            session.advance()
        assert session.advance(0).done
        again = session.advance(1, [[2]], reset=True, seed=4)
        assert (again.tick, again.observation.tolist()) == (1, [4, 1, 2, 2])


def test_the_first_episode_begins_once_and_later_ones_when_asked() -> None:
    with SessionPool(Sums, workers=1, max_sessions=2) as pool:
        session = pool.create(seed=3)
        assert [session.reset().observation[0] for _ in range(2)] == [3, -1]
        assert session.reset(seed=9).observation[0] == 9
        assert session.reset().observation[0] == -1


def test_an_interrupt_ends_an_advance() -> None:
    with SessionPool(Sums, workers=1, max_sessions=2) as pool:
        session = pool.create()
        assert session.advance(50, interrupts=["eleven"])[1] == 11
        session.reset()
        seen = session.advance(50, interrupts=["*"])
        assert (seen.tick, seen.interrupt) == (10, "ten")
        with pytest.raises(ConfigurationError, match=r"no such interrupt.*Did you mean 'ten'"):
            session.advance(1, interrupts=["tenn"])


def test_an_episode_is_cut_at_the_limit_of_the_pool() -> None:
    with SessionPool(Sums, workers=1, max_sessions=2, max_ticks=7) as pool:
        seen = pool.create().advance(20)
        assert (seen.tick, seen.terminated, seen.truncated) == (7, False, True)


def test_a_tick_takes_all_orders_or_the_newest() -> None:
    for game, total, dropped in ((Orders, sum(range(5, 21)), 4), (Sums, 20, 19)):
        with SessionPool(game, workers=1, max_sessions=2) as pool:
            session = pool.create()
            session.act(*[[float(n)] for n in range(1, 21)])
            seen = session.advance(1)
            assert (seen.observation[2], seen.dropped_actions) == (total, dropped)
            assert session.advance(1).observation[2] == total


def test_tools_are_called_at_once_or_in_a_tick() -> None:
    with SessionPool(Sums, workers=1, max_sessions=2) as pool:
        session = pool.create()
        seen = session.advance(0, [ToolCall("add", {"amount": 2}), ToolCall("break_down"), [1.0]])
        assert seen.tick == 0
        assert seen.info["tools"][0] == {"tool": "add", "result": {"sum": 2.0}}
        assert seen.info["tools"][1]["code"] == "TOOL_EXECUTION_FAILED"
        seen = session.advance(1, [ToolCall("add", {"amount": 3})])
        assert (seen.observation[2], seen.info["tools"][0]["result"]) == (6, {"sum": 5.0})
        assert "tools" not in session.advance(1).info
        with pytest.raises(ToolError, match="amount: Field required"):
            session.advance(1, [ToolCall("add")])
        assert pool.tools.names == ("add", "break_down")


@pytest.mark.parametrize("action", [[1.0, 2.0], [np.nan], [[1.0]], "x", [1000000.0j]])
def test_a_wrong_action_is_refused_before_anything_is_done(action: Any) -> None:
    with SessionPool(Sums, workers=1, max_sessions=2) as pool:
        session = pool.create()
        with pytest.raises(ActionError):
            session.advance(1, [action])
        with pytest.raises(ActionError):
            session.act(action)
        assert session.advance(0).tick == 0


def test_wrong_arguments_are_named() -> None:
    with SessionPool(Sums, workers=1, max_sessions=2) as pool:
        session = pool.create()
        for wrong in ({"ticks": -1}, {"ticks": 5001}, {"ticks": 1.5}, {"reset": True, "seed": -1}):
            with pytest.raises(ConfigurationError):
                session.advance(**wrong)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError, match="tick rate"):
            pool.create(tick_rate=-1)
        with pytest.raises(SessionNotFound):
            pool.get("nobody")


def test_a_game_without_a_map_or_options_says_so() -> None:
    pytest.importorskip("gymnasium")
    with SessionPool("CartPole-v1", workers=1) as pool, pytest.raises(UnsupportedByEngine):
        pool.checks.options({"x": 1}) if "OPTIONS" not in pool.spec.features else pool.create().map_info()


def test_the_rows_that_wait_are_ticked_together() -> None:
    with SessionPool(Sums, workers=2, max_sessions=8) as pool:
        sessions = [pool.create(seed=n) for n in range(8)]
        game: Any = pool.example
        pool.advance_all(sessions, 0)
        game.calls.clear()
        seen = pool.advance_all(sessions, 5, np.arange(8, dtype=np.float32)[:, None])
        assert game.calls == [8] * 5
        assert [o.observation.tolist() for o in seen] == [[n, 5, n, 0] for n in range(8)]
        assert [o.session_id for o in seen] == [s.id for s in sessions]
        seen = pool.advance_all(sessions, 1, np.ones((8, 1), np.float32), resets=[2, 5], seeds=[20, None])
        assert [o.tick for o in seen] == [6, 6, 0, 6, 6, 0, 6, 6]
        assert seen[2].observation[0] == 20


@GAMES
def test_a_game_that_raises_ends_its_session_alone(game: Any, caplog: pytest.LogCaptureFixture) -> None:
    kwargs = {"fails_at": 7.0} if game is Sums else {}
    with SessionPool(game, workers=1, max_sessions=2, kwargs=kwargs) as pool:
        good, bad = pool.create(), pool.create()
        good.advance(1)
        with pytest.raises(GameFailed, match="ZeroDivisionError"):
            bad.advance(1, [[7]])
        assert "Traceback" in caplog.text
        with pytest.raises(SessionEnded, match="the game failed: ZeroDivisionError"):
            bad.advance()
        with pytest.raises(SessionEnded, match="the game failed"):
            pool.get(bad.id)
        assert good.advance(1).tick == 2
        assert pool.create().advance(1).tick == 1
        assert pool.counters.snapshot()["sessions_failed"] == 1


class Quits(Sums):
    """From the second one on it calls sys.exit() in one place, as a game does whose window was closed."""

    def __init__(self, num_envs: int, made: list[str]) -> None:
        super().__init__(num_envs, length=5)
        made.append(made[0])
        self.place = made[0] if len(made) > 2 else ""
        self.leave("making")

    def leave(self, place: str) -> None:
        if self.place == place:
            sys.exit("the window was closed")

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.leave("reset")
        super().reset_envs(env_ids, seeds, options)

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        self.leave("step")
        super().step_envs(actions, env_ids)

    def result(self, env_id: int) -> str:
        self.leave("result")
        return ""

    def describe(self, env_id: int) -> str:
        self.leave("text")
        return "words"

    @tool
    def quit(self) -> None:
        """Leaves."""
        self.leave("tool")


@pytest.mark.parametrize("place", ["making", "reset", "step", "result", "text", "tool"])
def test_a_game_that_exits_takes_no_worker_with_it(place: str) -> None:
    with SessionPool(Quits, workers=1, max_sessions=2, together=False, kwargs={"made": [place]}) as pool:
        good, bad = pool.create(), pool.create()
        good.advance(1)
        if place in ("text", "tool"):
            seen = bad.advance(1, [ToolCall("quit")], timeout=10)
            assert ("code" in seen.info["tools"][0]) is (place == "tool")
            assert bad.describe() == ("" if place == "text" else "words")
        else:
            with pytest.raises((GameFailed, SessionEnded), match="SystemExit"):
                bad.advance(5, timeout=10)
        assert good.advance(1, timeout=10).tick == 2


def test_options_that_the_game_cannot_use_are_the_callers_mistake() -> None:
    with SessionPool(Sums, workers=1, max_sessions=4) as pool:
        session, other = pool.create(), pool.create()
        session.advance(1)
        with pytest.raises(Exception, match="cannot use the options"):
            session.reset(options={"start": "x"})
        assert session.reset(options={"start": 5}).observation[1] == 5
        assert other.advance(1).tick == 1


def test_the_number_of_sessions_is_bounded() -> None:
    with SessionPool(Sums, workers=1, max_sessions=2) as pool:
        one = pool.create()
        pool.create()
        with pytest.raises(ResourceExhausted, match="all 2 sessions"):
            pool.create()
        assert pool.destroy(one.id)
        assert not pool.destroy(one.id)
        assert pool.create(session_id="mine").advance(1).tick == 1
        assert {each.id for each in pool.sessions()} >= {"mine"}
    with pytest.raises(SessionEnded, match="closed"):
        pool.create()


def test_state_in_words() -> None:
    with SessionPool(Sums, workers=1, max_sessions=2, kwargs={"length": 3}) as pool:
        session = pool.create()
        session.advance(2)
        assert session.state()[1:5] == ("PLAYING", 2, "", "tick 2")
        assert session.map_info().result(20) == {"size": [1, 1]}
        session.advance(2, [[1]])
        assert session.state()[1:5] == ("GAME_OVER", 3, "win", "tick 3")
        session.destroy()
        assert session.state()[1:5] == ("IDLE", 3, "win", "")
