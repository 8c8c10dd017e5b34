"""Ctrl-C ends every command in order, whoever is connected, and in the middle of what."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from tests.harness.warm_cli import WarmCli
from tests.support.stopping import HALF, stops_in_the_middle
from tests.support.waiting import eventually
from ue_rl.bridges import GymnasiumBridge, run_in_thread


@pytest.mark.parametrize(
    ("words", "listens", "half"),
    [
        ("serve --env CartPole-v1 --num-envs 2 --port 0", r"on tcp://127.0.0.1:(\d+)", "text"),
        ("serve --env CartPole-v1 --num-envs 2 --port 0 --shm", r"on tcp://127.0.0.1:(\d+)", "text"),
        ("serve --env CartPole-v1 --port 0 --metrics 0", r"metrics: http://127.0.0.1:(\d+)", "http"),
    ],
)
def test_a_server_in_the_middle_of_a_request(
    words: str, listens: str, half: str, tmp_path: Path, warm_cli: WarmCli
) -> None:
    stops_in_the_middle(warm_cli, words, listens, HALF[half], tmp_path)


class Counted(GymnasiumBridge):
    """Counts the requests for steps."""

    steps = 0

    def step_envs(self, actions: NDArray[np.float32], env_ids: NDArray[np.intp]) -> None:
        self.steps += 1
        super().step_envs(actions, env_ids)


@pytest.mark.parametrize("waits", ["for an engine to start", "in the middle of an episode"])
def test_a_policy_that_plays(waits: str, tmp_path: Path, warm_cli: WarmCli) -> None:
    words = ["play", "--actor", "random", "--episodes", "100000"]
    where = ["--engine", "sleep 60 {port}"]
    game = Counted("CartPole-v1", 2)
    with run_in_thread(game) as engine:
        if "episode" in waits:
            where = [engine.url]
        run = warm_cli.start([*words, *where], output=tmp_path / "out.txt")
        if "episode" in waits:
            eventually(lambda: game.steps > 20, 60)
        else:
            eventually(lambda: psutil.Process(run.pid).children(recursive=True) != [], 60)
        run.signal(signal.SIGINT, group=True)
        assert run.wait(60) == 130, run.text
    assert run.text.strip() in ("stopped", "stopped by Ctrl-C")
