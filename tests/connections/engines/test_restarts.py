"""How often an engine may be lost: within a time of play, in a row, and what is waited for between."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.connections.engines.conftest import A, played, two
from tests.harness.several import FragileSource, Walk
from ue_rl.connections.engines.lifecycle import LifeState
from ue_rl.connections.engines.restarts import Restarts
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.system import errors
from ue_rl.system.timing import Timing


@pytest.fixture
def clock() -> list[float]:
    """What the engines take for the time, in seconds, its only element."""
    return [0.0]


def timed(clock: list[float]) -> Timing:
    """Pauses take none of the time."""
    return Timing(lambda: clock[0], lambda seconds: None)


def test_the_quota() -> None:
    env, fragile = played(restarts=Restarts(1, 60))
    fragile.breaks = ["collect"]
    env.step(A)
    fragile.breaks = ["collect"]
    with pytest.raises(errors.RestartsSpent, match=r"engine 1 \(m2\): the engine went away; it was lost 2 times"):
        env.step(A)
    assert env.transport.lives[1].state is LifeState.QUOTA_SPENT
    assert env.transport.lives[0].state is LifeState.IDLE
    with pytest.raises(errors.ConnectionUnusable, match="2 times"):
        env.reset()
    assert fragile.closed


def test_without_restarts_a_loss_is_final() -> None:
    fragile = FragileSource(lambda life: Walk(2))
    env = UnrealVecEnv(EnginesTransport([fragile]))
    env.reset()
    fragile.breaks = ["collect"]
    with pytest.raises(errors.EngineDisconnected):
        env.step(A[:2])
    with pytest.raises(errors.ConnectionUnusable):
        env.reset()


def test_restarts_pause_longer_each_time_an_engine_dies_at_once() -> None:
    restarts = Restarts(6, 60)
    error = errors.EngineDisconnected("gone", cure="look there")
    assert [restarts.lost(0, error, now) for now in (0, 1, 2, 3)] == pytest.approx([0, 0.1, 0.2, 0.4])
    assert restarts.lost(1, error, 3) == 0
    assert restarts.lost(0, error, 20) == 0  # it lived for a while
    assert restarts.lost(0, error, 21) == pytest.approx(0.1)
    with pytest.raises(errors.RestartsSpent, match=r"7 times within 60 s.*Look there"):
        restarts.lost(0, error, 22)
    assert restarts.counts == {0: 7, 1: 1}
    slow = Restarts(1, 10)
    assert [slow.lost(0, error, now) for now in (0, 11, 22, 33)] == [0] * 4


def test_an_engine_that_never_answers_a_step_spends_the_quota_however_long_it_takes_to_start() -> None:
    restarts = Restarts(2, 10)
    error = errors.EngineDisconnected("gone")
    vain = functools.partial(restarts.lost, 0, error, stepped=False)
    assert [vain(now=0), vain(now=100), restarts.lost(0, error, 200), vain(now=300), vain(now=400)] == [0] * 5
    with pytest.raises(errors.RestartsSpent, match="3 times in a row, and answered no step between"):
        vain(now=500)
    env, fragile = played(restarts=Restarts(2, 1e-9, first_pause=0.0))
    for _ in range(4):  # it answers a step each time
        fragile.breaks = ["collect"]
        env.step(A)
        env.step(A)
    with pytest.raises(errors.RestartsSpent, match="3 times in a row"):
        for _ in range(4):
            fragile.breaks = ["collect"]
            env.step(A)


def test_who_breaks_the_protocol_is_sent_to_the_check() -> None:
    restarts = Restarts(1)
    wrong = errors.WrongCount("3 numbers came", fault="engine", cure="it printed last: listening")
    restarts.lost(0, wrong)
    with pytest.raises(errors.RestartsSpent, match=r"ue-rl check, with the same --engine.*It printed last") as caught:
        restarts.lost(0, wrong)
    assert "--restarts" not in str(caught.value)
    gone = errors.EngineDisconnected("the engine went away", fault="engine")
    with pytest.raises(errors.RestartsSpent, match="More are allowed with restarts="):
        Restarts(0).lost(1, gone)


def test_only_the_time_in_which_an_engine_plays_counts(clock: list[float]) -> None:
    """An engine that loads for 40 s and dies after a step would never be lost twice within a window of 60 s."""

    def loaded(*args: Any, **options: Any) -> Walk:
        clock[0] += 40
        return Walk(*args, **options)

    transport, fragile = two(loaded, restarts=Restarts(3, 60), timing=timed(clock))
    env = UnrealVecEnv(transport)
    env.reset()

    def lose(after: float) -> None:
        env.step(A)
        clock[0] += after
        fragile.breaks = ["collect"]
        env.step(A)

    for _ in range(8):  # one that plays for a while is lost as often as it likes
        lose(after=25)
    clock[0] += 25
    with pytest.raises(errors.RestartsSpent, match="lost 4 times within 60 s of play"):
        for _ in range(4):
            lose(after=0.1)
    assert clock[0] > 400


def test_waiting_for_an_answer_that_never_comes_is_no_play(clock: list[float]) -> None:
    """One that answers a step and then hangs for 30 s, again and again, spends its quota too."""
    transport, fragile = two(restarts=Restarts(3, 60), timing=timed(clock))
    env = UnrealVecEnv(transport)

    def late() -> errors.EngineTimeout:
        clock[0] += 30
        return errors.EngineTimeout("no answer")

    fragile.error = late
    env.reset()
    with pytest.raises(errors.RestartsSpent, match="lost 4 times within 60 s of play"):
        for _ in range(4):
            env.step(A)
            fragile.breaks = ["collect"]
            env.step(A)
