"""Hosts whose bridge goes over to inference mode: trainers that are there, trainers that come, and who ticks."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import ue_rl
from tests.bridges.policies import PlusOne, inferring
from tests.bridges.test_inference import Echo
from tests.support.games import bridge
from tests.support.waiting import eventually
from ue_rl.bridges import Mode, run_in_thread, run_shm_in_thread
from ue_rl.system import errors


def trained_with(engine: Any, channel: str = "auto", step: bool = False) -> Any:
    """A trainer that has begun its episodes."""
    trainer = ue_rl.connect(engine.url, timeout=30, channel=channel)
    trainer.reset()
    if step:
        trainer.step(np.zeros((1, 1), np.float32))
    return trainer


def test_a_switch_under_a_live_trainer_ends_its_session_at_once(caplog: Any) -> None:
    game = bridge(1, kind=Echo)
    with run_in_thread(game) as engine:
        for channel in ("shared", "per_env"):
            trainer = trained_with(engine, channel)
            inferring(game, PlusOne())
            with pytest.raises(errors.EngineDisconnected):  # not after the deadline: the engine says so
                trainer.step(np.zeros((1, 1), np.float32))
            trainer.close()
            for _ in range(20):
                game.update_rl(0)
            with pytest.raises(errors.TransportError):
                ue_rl.connect(engine.url, timeout=30)
            assert game.mode is Mode.INFERENCE
            game.start_training()
        trained_with(engine, step=True).close()
    assert "left training mode" in caplog.text
    assert "in inference mode" in caplog.text


def test_a_trainer_that_goes_after_the_switch_does_not_cut_an_action_short() -> None:
    game = bridge(1, kind=Echo)
    with run_in_thread(game) as engine:
        trainer = trained_with(engine)
        inferring(game, PlusOne()).update_rl(0)
        assert game.acted == [1]
        trainer.close()
        eventually(lambda: engine.server._session is None)
        game.update_rl(0)
        assert game.acted == [1]  # the first action still runs
        game.update_rl(0)
        assert game.acted == [2]


@pytest.mark.parametrize("host", [run_in_thread, run_shm_in_thread])
def test_a_host_with_a_tick_rate_ticks_in_inference_mode_too(host: Any) -> None:
    game = bridge(1, kind=Echo)
    with host(game, tick_rate=200.0) as engine:
        trainer = trained_with(engine)
        for _ in range(2):
            inferring(game, PlusOne())
            with pytest.raises(errors.EngineDisconnected):
                trainer.step(np.zeros((1, 1), np.float32))
            trainer.close()
            ticks, began = game.lockstep.ticks, time.monotonic()
            eventually(lambda: game.lockstep.ticks >= ticks + 40)  # noqa: B023
            assert time.monotonic() - began > 0.15, "in real time"
            with pytest.raises(errors.UeRlError, match="inference mode"):
                ue_rl.connect(engine.url, timeout=20).reset()
            game.start_training()
            trainer = trained_with(engine, step=True)
        trainer.close()


def test_a_policy_that_fails_in_a_host_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    game = bridge(1, kind=Echo)
    with run_shm_in_thread(game, tick_rate=200.0):
        inferring(game, PlusOne(np.array([[np.nan]])))
        eventually(lambda: "inference: " in caplog.text)


@pytest.mark.parametrize("ticked", [False, True])
@pytest.mark.parametrize("host", [run_in_thread, run_shm_in_thread])
def test_a_host_without_a_tick_rate_says_that_nothing_ticks(
    host: Any, ticked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    within = 0.5 if ticked else 0.05  # time for the tick, also on a busy machine
    game = bridge(1, kind=Echo)
    game.ticked_within = within
    with host(game):
        inferring(game, PlusOne())
        if ticked:
            game.update_rl(0)
            time.sleep(within + 0.2)
            assert "nothing has ticked it" not in caplog.text
        else:
            eventually(lambda: "nothing has ticked it for 0.05 s" in caplog.text)
