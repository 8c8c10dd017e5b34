"""Ctrl-C ends every command in order, whoever is connected, and in the middle of what."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.harness.warm_cli import WarmCli
from tests.support.stopping import HALF, stops_in_the_middle
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


@pytest.mark.parametrize("waits", ["for an engine to start", "in the middle of an episode"])
def test_a_policy_that_plays(waits: str, tmp_path: Path, warm_cli: WarmCli) -> None:
    words = ["play", "--actor", "random", "--episodes", "100000"]
    where = ["--engine", "sleep 60 {port}"]
    with run_in_thread(GymnasiumBridge("CartPole-v1", 2)) as engine:
        if "episode" in waits:
            where = [engine.url]
        run = warm_cli.start([*words, *where], output=tmp_path / "out.txt")
        time.sleep(2)  # it says nothing meanwhile
        run.signal(signal.SIGINT, group=True)
        assert run.wait(60) == 130, run.text
    assert run.text.strip() in ("stopped", "stopped by Ctrl-C")
