"""Ctrl-C ends every command in order, whoever is connected, and in the middle of what."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path

import pytest

from tests.harness.warm_cli import WarmCli
from ue_rl.bridges import GymnasiumBridge, run_in_thread

HALF = {
    "http": b"POST /reset HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b'Content-Length: 9\r\n\r\n{"a"',
    "text": b"STEP=0.1",
}


@pytest.mark.parametrize(
    ("words", "listens", "half", "code"),
    [
        ("serve --env CartPole-v1 --num-envs 2 --port 0", r"on tcp://127.0.0.1:(\d+)", "text", 0),
        ("serve --env CartPole-v1 --num-envs 2 --port 0 --shm", r"on tcp://127.0.0.1:(\d+)", "text", 0),
        ("serve --env CartPole-v1 --port 0 --metrics 0", r"metrics: http://127.0.0.1:(\d+)", "http", 0),
        ("sessions tests.plugins.sessions.game:Drift --openenv 0", r"openenv: http://127.0.0.1:(\d+)", "http", 0),
        ("sessions tests.plugins.sessions.game:Drift --grpc 0", r"grpc://127.0.0.1:(\d+)", "text", 0),
        ("arena serve --port 0", r"127.0.0.1:(\d+)", "http", 130),
    ],
)
def test_a_server_in_the_middle_of_a_request(
    words: str, listens: str, half: str, code: int, tmp_path: Path, warm_cli: WarmCli
) -> None:
    pytest.importorskip("uvicorn" if "sessions" in words or "arena" in words else "click")
    if "--grpc" in words:
        pytest.importorskip("grpc")
    run = warm_cli.start(words.split(), output=tmp_path / "out.txt")
    port = int(run.wait_for(listens).rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(HALF[half])
        time.sleep(0.2)  # until it is read; nobody says so
        run.signal(signal.SIGINT, group=True)
        assert run.wait(60) == code, run.text
    assert "Traceback" not in run.text
    assert not [line for line in run.text.splitlines() if line.startswith("ERROR ")]


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
