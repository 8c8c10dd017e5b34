"""`ue-rl` as processes that see no POSIX, in a folder whose name has a blank."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.windows.posixless.conftest import UE_RL, Running, until

CARTS = Path(__file__).resolve().parents[3] / "samples" / "fifty_lines" / "carts.py"
LIGHT = ["--n-steps", 32, "--batch-size", 64, "--set", "n_epochs=1", "--net-arch", 8, "--device", "cpu"]
LIGHT += ["--threads", 1, "--eval-episodes", 0, "--log-to", "none"]
Run = Callable[..., str]
Start = Callable[..., Running]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The port of one engine, which `ue-rl serve` hosts."""
    folder = tmp_path_factory.mktemp("an engine")
    shutil.copy(CARTS, folder)
    serving = Running(
        [*UE_RL, "serve", "--bridge", "carts:Carts", "--num-envs", "2", "--port", "0"], folder, folder / "output.txt"
    )
    yield serving.wait_for(r"tcp://127\.0\.0\.1:(\d+)")[1]
    serving.popen.kill()
    serving.popen.wait()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """`ue-rl train` with its own hyperparameters: CartPole over text. It is begun by the first test."""
    folder = tmp_path_factory.mktemp("my runs")
    words = ["train", "--seed", "0", "--run-id", "first", "--timesteps", "60000", "--log-to", "none"]
    running = Running([*UE_RL, *words, "--threads", "1", "--no-export"], folder, folder / "output.txt")
    yield running
    if running.popen.poll() is None:
        running.popen.kill()
        running.popen.wait()


def test_doctor_says_what_was_not_compiled_and_what_that_costs(run: Run, trained: Running) -> None:
    said = re.sub(r"\s*(│\s*){4}", " ", run("doctor"))  # a row that goes on in the next line
    assert "not compiled: kernels, sync; text is read and written by Python" in said
    assert "there is no shared memory" in said


def test_inspect_says_it_too_in_one_line(run: Run, engine: str) -> None:
    said = " ".join(run("inspect", "--port", engine, "--steps", 60).split())
    assert "note not compiled: kernels, sync; text is read and written by Python" in said
    assert "wiring" in said


def test_check_finds_nothing_wrong(run: Run, engine: str) -> None:
    assert " 0 FAIL" in run("check", f"127.0.0.1:{engine}")


def test_check_starts_an_engine_whose_path_has_blanks(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "a game"
    folder.mkdir()
    script = shutil.copy(CARTS, folder / "the carts.py")
    assert " 0 FAIL" in run("check", "--engine", f'"{sys.executable}" "{script}" {{port}}')


def test_an_engine_with_a_token(run: Run, start: Start, tmp_path: Path) -> None:
    secret = tmp_path / "the token.txt"
    secret.write_text("0123456789abcdef" * 4, "ascii")
    serving = start("serve", "--env", "CartPole-v1", "--num-envs", 2, "--port", 0, "--token-file", secret)
    url = serving.wait_for(r"tcp://127\.0\.0\.1:\d+").group()
    assert "asks for a token" in run("doctor", url, code=1)
    run("train", url, *LIGHT, "--timesteps", 128, "--token-file", secret, "--no-export")


@pytest.fixture(scope="module")
def carts(tmp_path_factory: pytest.TempPathFactory, engine: str) -> Path:
    """The folder of a run with a blank in its name, which `ue-rl train --port` has trained in the engine."""
    folder = tmp_path_factory.mktemp("all runs")
    words = ["train", "--port", engine, *LIGHT, "--timesteps", 256, "--run-id", "my carts"]
    training = Running([*UE_RL, *map(str, words)], folder, folder / "output.txt")
    assert training.wait() == 0, training.text
    return folder / "runs" / "my carts"


def test_a_run_is_played(run: Run, carts: Path) -> None:
    assert "episodes" in run("play", carts, "--episodes", 2)


def test_a_file_is_played_and_recorded(run: Run, carts: Path, engine: str) -> None:
    run("play", carts / "model.onnx", f"127.0.0.1:{engine}", "--episodes", 2, "--trace", "a trace.trace")
    run("trace", "show", "a trace.trace")


def test_a_model_is_exported(run: Run, carts: Path) -> None:
    assert "an agent.onnx" in run("export", carts / "model.zip", "--output", "an agent.onnx")


def test_the_runs_are_listed(run: Run, carts: Path) -> None:
    assert "my carts" in run("runs", "--log-dir", carts.parent)


def test_a_policy_server_answers_an_engine(start: Start, carts: Path) -> None:
    serving = start("policy-server", carts / "model.onnx", "--port", 0)
    port = int(serving.wait_for(r"127\.0\.0\.1:(\d+)")[1])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        file = sock.makefile("rwb")
        file.write(b"CONFIG:OBS=2;ACT=1\nOBS=0.1,0\n")
        file.flush()
        assert file.readline().startswith(b"ACT=")


def engines_of(trainer: Running) -> list[psutil.Process]:
    found = psutil.Process(trainer.popen.pid).children(recursive=True)
    return [each for each in found if each.cmdline()[1:2] == [str(CARTS)]]


@pytest.fixture
def command() -> str:
    """Of an engine, in double quotes, as cmd and PowerShell take it."""
    return f'"{sys.executable}" "{CARTS}" {{port}}'


def test_of_two_launched_engines_one_is_killed_and_the_run_goes_on(start: Start, command: str) -> None:
    trainer = start("train", "--engine", command, "--num-engines", 2, *LIGHT, "--timesteps", 4096, "--run-id", "two")
    trainer.wait_for("8 envs in 2 engines")
    first = engines_of(trainer)
    assert len(first) == 2
    first[0].kill()
    assert trainer.wait() == 0, trainer.text
    assert re.search(r"engine \d.*(SIGKILL|exit code).*is back", " ".join(trainer.text.split())), trainer.text
    until(lambda: not any(each.is_running() for each in first))
    assert "Traceback" not in trainer.text


def test_a_run_that_was_killed_is_resumed(run: Run, start: Start, command: str) -> None:
    words = ["--engine", command, *LIGHT, "--run-id", "killed", "--save-freq", 256]
    trainer = start("train", *words, "--timesteps", 100_000)
    saved = trainer_folder(trainer) / "runs" / "killed" / "checkpoints"
    until(lambda: saved.is_dir() and any(saved.iterdir()))
    engines = engines_of(trainer)
    trainer.popen.kill()
    trainer.wait()
    until(lambda: not any(each.is_running() for each in engines))
    said = run("train", "--resume", *words, "--timesteps", 8192)
    assert "8,192" in said


def trainer_folder(trainer: Running) -> Path:
    return Path(psutil.Process(trainer.popen.pid).cwd())


def test_ctrl_c_saves_a_run_and_force_replaces_it(run: Run, start: Start, command: str) -> None:
    words = ["--engine", command, *LIGHT, "--run-id", "stopped"]
    trainer = start("train", *words, "--timesteps", 100_000)
    trainer.wait_for(r"of 100,000 env-steps")
    folder = trainer_folder(trainer)
    engines = engines_of(trainer)
    trainer.popen.send_signal(signal.SIGINT)  # what Ctrl-C of a console is in C's library
    assert trainer.wait() == 130, trainer.text
    assert (folder / "runs" / "stopped" / "model.zip").is_file()
    assert not any(each.is_running() for each in engines)
    run("train", *words, "--timesteps", 128, "--force")


def test_cartpole_is_learnt_over_text(trained: Running) -> None:
    assert trained.wait(600) == 0, trained.text
    found = re.search(r"evaluation\W+mean return ([\d.]+)", trained.text)
    assert found is not None, trained.text
    assert float(found[1]) >= 475
