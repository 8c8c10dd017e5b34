"""`ue-rl policy-server`: its options, its end by signals, and what it shows on a terminal and elsewhere."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from rich.console import Console
from stable_baselines3 import PPO

from tests.harness.warm_cli import WarmCli, WarmProcess
from tests.support.command_line import refused
from ue_rl.cli.common import WrongCommandLine
from ue_rl.cli.policy_server import figures, live, table
from ue_rl.inference import ReloadingInference, export_onnx
from ue_rl.inference.server.server import PolicyServer
from ue_rl.system import errors

posix = pytest.mark.skipif(os.name != "posix", reason="sends signals as a shell would")
HELLO = b"CONFIG:OBS=3;ACT=1\n"


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "pendulum.onnx"
    export_onnx(PPO("MlpPolicy", gym.make("Pendulum-v1"), n_steps=8, batch_size=8, seed=0, device="cpu"), path)
    return path


@pytest.fixture
def start(pendulum: Path, tmp_path: Path, warm_cli: WarmCli) -> Iterator[Any]:
    processes: list[WarmProcess] = []

    def begin(*options: str) -> tuple[WarmProcess, int]:
        words = ["policy-server", str(pendulum), "--port", "0", *options]
        process = warm_cli.start(words, output=tmp_path / "output.txt")
        processes.append(process)
        return process, int(process.wait_for(r"(?<=127\.0\.0\.1:)\d+(?=\D)"))

    yield begin
    for process in processes:
        process.signal(signal.SIGKILL)
        process.wait()


def dial(port: int) -> tuple[socket.socket, io.BufferedReader]:
    engine = socket.create_connection(("127.0.0.1", port), timeout=20)
    engine.sendall(HELLO)
    return engine, engine.makefile("rb")


def asking(engine: socket.socket) -> None:
    with contextlib.suppress(OSError):  # until the server goes
        while True:
            engine.sendall(b"OBS=0,0,0\n" * 50)


@posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_with_the_last_figures(start: Any, number: int) -> None:
    process, port = start("--every", "1000")
    engine, answers = dial(port)
    engine.sendall(b"OBS=0,0,0\n")
    assert answers.readline().startswith(b"ACT=")
    process.signal(number)
    assert process.wait() == 0
    output = process.text
    assert answers.readline() == b""
    assert "1 engines with 1 envs, 0 dropped, 1 actions in 1 batches, latency p50" in output
    assert output.endswith("stopped\n")
    assert "Traceback" not in output
    engine.close()


@posix
def test_a_signal_between_batches_that_never_pause(start: Any) -> None:
    process, port = start("--every", "0.01")
    engines = [dial(port) for _ in range(4)]
    for engine, _ in engines:
        threading.Thread(target=asking, args=(engine,), daemon=True).start()
    for _, answers in engines[:3]:  # the fourth reads nothing
        for _ in range(100):
            assert answers.readline().startswith(b"ACT=")
    process.signal(signal.SIGTERM)
    assert process.wait() == 0, process.text
    output = process.text
    assert "Traceback" not in output
    for engine, _ in engines:
        engine.close()


@posix
def test_a_terminal_shows_a_table(warm_cli: WarmCli, pendulum: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    words = ["policy-server", str(pendulum), "--port", "0"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = warm_cli.start(words, output=Path(os.ttyname(theirs)), environment=environment)
    seen = b""

    def read_until(text: str) -> None:
        nonlocal seen
        deadline = time.monotonic() + 60
        while text not in seen.decode("utf-8", "replace"):
            assert time.monotonic() < deadline, seen
            seen += os.read(ours, 65_536)

    try:
        read_until("replaced")
        found = re.search(r"127\.0\.0\.1:(\d+)", seen.decode())
        assert found is not None
        engine, answers = dial(int(found[1]))
        engine.sendall(b"OBS=0,0,0\nOBS=what\n")
        assert answers.readline().startswith(b"ACT=")
        read_until("a number was expected")  # the log, above the table
        read_until("1 dropped")
        process.signal(signal.SIGINT)
        read_until("stopped")
        assert process.wait() == 0
    finally:
        process.signal(signal.SIGKILL)
        os.close(theirs)
        os.close(ours)
    text = seen.decode()
    for word in ("engines", "actions", "batches", "p50", "p99", "model", "loaded"):
        assert word in text
    assert "Traceback" not in text
    engine.close()


def test_the_figures_as_a_line_and_as_a_table(pendulum: Path) -> None:
    with ReloadingInference(pendulum, interval=None) as policy:
        server = PolicyServer(policy)
        assert figures(server).endswith("0 actions in 0 batches, latency -")
        server.requests, server.batches, server.dropped = 12_000, 1_000, 2
        server.latencies.extend([1e-4] * 98 + [2e-3] * 2)
        policy.reloads = 1
        assert figures(server) == (
            "0 engines with 0 envs, 2 dropped, 12,000 actions in 1,000 batches, "
            "latency p50 100 us, p99 2,000 us, 1 newer model"
        )
        console = Console(file=io.StringIO(), width=200)
        console.print(table(server, 345.6))
        assert isinstance(console.file, io.StringIO)
        text = console.file.getvalue()
        year = time.strftime("%Y-", time.localtime(policy.loaded_at))
        for part in ("12,000 (346 per second)", "12.0 actions each", str(pendulum), year, "replaced 1"):
            assert part in text


def test_records_go_where_they_went_after_the_table(
    pendulum: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    handler = logging.StreamHandler(stream)
    unopened = logging.FileHandler(tmp_path / "log.txt", delay=True)
    logging.getLogger().addHandler(handler)
    logging.getLogger().addHandler(unopened)
    try:
        with ReloadingInference(pendulum, interval=None) as policy:
            console = Console(file=Terminal(), force_terminal=True)
            with live(PolicyServer(policy), "title", console) as renew:
                renew()
                assert handler.stream is not stream
            assert handler.stream is stream
    finally:
        logging.getLogger().removeHandler(handler)
        logging.getLogger().removeHandler(unopened)


def test_the_options_reach_the_server(pendulum: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[PolicyServer] = []

    async def refuse(self: PolicyServer) -> None:
        seen.append(self)
        raise OSError("taken")

    monkeypatch.setattr(PolicyServer, "start", refuse)
    words = "--max-engines 3 --max-batch 5 --max-wait 0.25 --hello-timeout 2 --write-timeout 4 --reload-interval 6"
    error = refused(f"policy-server {words}", pendulum, by=errors.ConfigurationError)
    assert "cannot listen" in str(error)
    (server,) = seen
    assert (server.max_engines, server.max_batch, server.max_wait) == (3, 5, 0.25)
    assert (server.hello_timeout, server.write_timeout, server.reload_interval) == (2, 4, 6)


def test_a_model_that_is_not_there_is_refused_by_name(tmp_path: Path) -> None:
    assert "none.onnx" in str(refused("policy-server", tmp_path / "none.onnx", by=errors.ModelLoadError))


def test_a_run_or_a_zip_is_answered_with_the_file_to_name(tmp_path: Path) -> None:
    def cure(model: Path) -> str | None:
        return refused("policy-server", model, by=WrongCommandLine).cure

    assert cure(tmp_path) == f"write one: ue-rl export {tmp_path}"
    (tmp_path / "model.zip").touch()
    assert cure(tmp_path / "model.zip") == f"write one: ue-rl export {tmp_path / 'model.zip'}"
    (tmp_path / "model.onnx").touch()
    assert cure(tmp_path) == f"name the file in it: {tmp_path / 'model.onnx'}"
