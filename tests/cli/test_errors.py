"""What a user sees of an error, and with which exit code: one sentence, never a traceback."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import ue_rl
from tests.harness.warm_cli import WarmCli, WarmProcess
from tests.support.waiting import eventually
from ue_rl.cli import cli, main
from ue_rl.devtools.testing import PluginStandIn

posix = pytest.mark.skipif(os.name != "posix", reason="needs what POSIX has")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """main() sets up the log and the look of warnings for its process."""
    handlers, shown = logging.getLogger().handlers[:], warnings.formatwarning
    yield
    logging.getLogger().handlers[:] = handlers
    warnings.formatwarning = shown


def run(*words: str, group: click.Group = cli) -> int:
    """The exit code of `ue-rl WORDS` in this process."""
    with pytest.raises(SystemExit) as left:
        main(list(words), group)
    return int(left.value.code or 0)


WRONG = [
    (["inspect", "a/b"], "not an address of an engine"),
    (["inspect", "http://127.0.0.1"], "not an address of an engine"),
    (["inspect", "--timeout", "nan"], "not a duration"),
    (["inspect", "--timeout", "0"], "not a duration"),
    (["inspect", "--timeout", "x"], "not a duration such as"),
    (["inspect", "--port", "0"], "1<=x<=65535"),
    (["play", "x.zip", "--actor", "random", "a:1"], "one of them acts"),
    (["play"], "one of them acts"),
    (["play", "x.zip", "--engine", "game", "--env", "CartPole-v1"], "leave --env and URL out"),
    (["play", "x.zip", "--max-episode-steps", "-1"], "x>=1"),
    (["play", "x.txt"], "MODEL.onnx or MODEL.zip"),
    (["play", "x.onnx", "--vecnormalize", "x.pkl"], "normalisation inside"),
    (["serve", "--env", "CartPole-v1", "--kwargs", "{"], "not a JSON object"),
    (["serve", "--env", "CartPole-v1", "--kwargs", "[]"], "not a JSON object"),
    (["serve", "--bridge", "nothing"], "cannot be loaded"),
    (["serve", "--bridge", "ue_rl:Nothing"], "cannot be loaded"),
    (["trian"], "did you mean 'train'?"),
    (["inspect", "--port", "1", "tcp://a"], "--port 1 is short for tcp://127.0.0.1:1"),
    (["play", "x.onnx", "--env", "CartPole-v1", "--port", "1"], "give one of them"),
    (["train", "--port", "1", "a", "b"], "leave one out"),
    (["train", "--restarts", "lots"], "must be TIMES/WINDOW such as 10/60s"),
    (["train", "--timeout", "1d"], "must be a duration above 0"),
    (["train", "a?chanel=shared"], "Did you mean 'channel'?"),
    (["serve", "--env", "CartPole-v1", "tcp://a?channel=shared"], "it has no options"),
    (["check", "a?channel=shared"], "every carrier of an engine is checked"),
    (["train", "--param", "x"], "not a parameter"),
    (["train", "--set", "x"], "not a setting"),
    (["train", "--env-kwargs", "{"], "not a JSON object"),
    (["train", "--net-arch", "x"], "not a list of layers"),
    (["train", "--algo", "nope"], "no such algorithm"),
    (["train", "--backend", "rlib"], "no such backend"),
    (["train", "--backend", "rllib", "--normalize"], "train with --backend sb3"),
    (["train", "--num-env-runners", "4"], "Train with --backend rllib"),
    (["train", "--timesteps", "0"], "must be a positive integer"),
    (["train", "a/b"], "not an address of an engine"),
    (["train", "--resume", "--force"], "exclude each other"),
    (["train", "--config", os.devnull], "cannot be read"),
    (["dance"], "No such command"),
    (["serve"], "give one of --env"),
    (["serve", "--env", "a", "--bridge", "b:c"], "give one of --env"),
    (["serve", "--env", "CartPole-v1", "--shm", "shm://x"], "give one of them"),
    (["serve", "--env", "CartPole-v1", "shm://x", "--port", "5"], "leave one out"),
    (["serve", "--env", "CartPole-v1", "--images"], "text carries no images"),
    (["inspect", "--port", "x"], "not a valid port number"),
    (["serve", "--env", "CartPole-v1", "shm://"], "its name is missing"),  # and is not served over TCP instead
    (["check", "http://127.0.0.1"], "not an address"),
    (["check", "tcp://127.0.0.1:99999"], "not an address"),
    (["check", "--strict", "--base"], "give one of them"),
    (["check", "--engine", "game {prot}"], "no placeholder"),
    (["check", "--engine", "game --port {port}", "127.0.0.1:7777"], "give one of them"),
    (["check", "--timeout", "0"], "not a duration"),
    (["check", "--timeout", "nan"], "not a duration"),
    (["check", "--seed", "-1"], "--seed"),
    (["policy-server", "x.onnx", "--max-engines", "0"], "--max-engines"),
    (["policy-server", "x.onnx", "--max-batch", "0"], "--max-batch"),
    (["policy-server", "x.onnx", "--max-wait", "-1"], "--max-wait"),
    (["policy-server", "x.onnx", "--max-wait", "nan"], "--max-wait"),
    (["policy-server", "x.onnx", "--hello-timeout", "0"], "--hello-timeout"),
    (["policy-server", "x.onnx", "--write-timeout", "nan"], "--write-timeout"),
    (["policy-server", "x.onnx", "--reload-interval", "0"], "--reload-interval"),
    (["policy-server", "x.onnx", "--every", "0"], "--every"),
    (["policy-server", "x.onnx", "--every", "nan"], "--every"),
]
FAILS = [
    (["play", "missing.onnx"], "cannot be read"),
    (["play", "missing.zip"], "there is no file missing.zip"),
    (["export", "missing.zip"], "there is no file missing.zip"),
    (["policy-server", "missing.onnx", "--port", "0"], "cannot be read"),
    (["inspect", "shm://no-such-segment"], "no shared memory"),
]


@pytest.mark.parametrize(("code", "words", "text"), [*((2, *row) for row in WRONG), *((1, *row) for row in FAILS)])
def test_an_error_is_one_sentence_and_a_wrong_command_line_2(
    code: int, words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == code
    said = capsys.readouterr().err
    assert text in said
    assert "Traceback" not in said


@posix
@pytest.mark.parametrize("kind", ["fifo", "/dev/zero"])
@pytest.mark.parametrize("suffix", [".onnx", ".zip"])
@pytest.mark.parametrize("command", ["play", "export", "policy-server"])
def test_a_model_that_is_no_file_is_refused_at_once(
    command: str, suffix: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"model{suffix}"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(kind)

    def hung(*_: object) -> None:
        raise TimeoutError("it reads for ever")

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(60)  # of which the import of torch may take a good part
    try:
        assert run(command, str(path), *(["--port", "0"] if command == "policy-server" else [])) == 1
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    said = capsys.readouterr().err
    assert "ot an ordinary file" in said
    assert "for ever" not in said


def that_raises(text: str) -> click.Group:
    """Commands of which one, `inspect`, raises what nobody expects."""

    def broken(port: int | None) -> None:
        raise ZeroDivisionError(text)

    command = click.Command("inspect", callback=broken, params=[click.Option(["--port"], type=int)])
    return click.Group(
        "ue-rl", [command], params=[click.Option(["--debug"], is_flag=True)], callback=lambda debug: None
    )


def test_what_nobody_expected_is_one_sentence_and_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    group = that_raises("division by \x1b[31mzero\nand more")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run("inspect", "--port", "1234", group=group) == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert said.startswith(r"ZeroDivisionError: division by \x1b[31mzero. Nobody expected this")
    found = re.search(r"in (\S+\.txt)", said)
    assert found is not None
    kept = Path(found.group(1)).read_text("utf-8")
    assert "ue-rl inspect --port 1234" in kept
    assert "Traceback" in kept
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    assert run("inspect", "--port", "1234", group=group) == 1
    assert "ue-rl --debug" in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError):
        main(["--debug", "inspect", "--port", "1234"], group)


@pytest.mark.slow
@posix
def test_output_that_nobody_reads_or_that_does_not_fit(warm_cli: WarmCli, tmp_path: Path) -> None:
    pipe, errors = tmp_path / "pipe", tmp_path / "errors"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with PluginStandIn(tick_rate=20) as game:  # steps of 1 s in all: the reader has gone before they end
        words = ["inspect", "--port", str(game.port), "--steps", "20"]
        closed = warm_cli.start(words, output=pipe, errors=errors)
        while not game.lines:  # it has its output, and nothing is said before the first step
            assert not closed.ended.is_set(), errors.read_text()
            time.sleep(0.001)
        os.close(reader)
        assert closed.wait() == 1
    assert errors.read_text() == ""
    if Path("/dev/full").exists():
        with PluginStandIn() as game:
            words = ["inspect", "--port", str(game.port), "--steps", "2"]
            denied = warm_cli.start(words, output=Path("/dev/full"), errors=errors)
            assert denied.wait() == 1
        said = errors.read_text()
        assert "No space left on device" in said
        assert "Make room" in said
        assert "Traceback" not in said
        assert "ue-rl-crash" not in said
        assert said.count("\n") == 1


@pytest.mark.slow
@posix
@pytest.mark.parametrize("command", ["inspect", "play", "bench"])
def test_ctrl_c_is_one_word(command: str, tiny_model: Path, warm_cli: WarmCli, tmp_path: Path) -> None:
    """As a terminal does it: to every process of the command."""
    with PluginStandIn(num_envs=1, action_ticks=10**9, tick_rate=100) as game:
        words = {
            "inspect": ["inspect", "--port", str(game.port)],
            "play": ["play", str(tiny_model), "--port", str(game.port)],
            "bench": ["bench", "--num-envs", "2", "--repeats", "50", "--no-subproc"],
        }[command]
        child = warm_cli.start(words, output=tmp_path / "out.txt", errors=tmp_path / "errors.txt")
        if command == "bench":
            child.wait_for("codec")
            time.sleep(0.5)
        else:
            eventually(lambda: any("RESET" not in line for _, _, line in list(game.lines)), 30)
        child.signal(signal.SIGINT, group=True)
        assert child.wait(60) == 130
    assert (tmp_path / "errors.txt").read_text().strip() == "stopped"


@pytest.mark.parametrize("served", [["--env", "CartPole-v1", "tcp://[::]:0"]], indirect=True)
def test_an_ipv6_server_says_an_address_that_reaches_it(served: tuple[WarmProcess, str]) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    assert served[1].startswith("tcp://[::1]:")
    ue_rl.connect(served[1]).close()


@posix
def test_the_traceback_of_what_nobody_expected_is_for_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder that everybody writes into: its name cannot be guessed, and nothing that lies there is followed."""

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for _ in range(2):
        assert run("inspect", group=that_raises("nobody expects it")) == 1
    found = list(tmp_path.glob("ue-rl-crash-*.txt"))
    assert len(found) == 2
    said = capsys.readouterr().err
    for path in found:
        assert path.stat().st_mode & 0o777 == 0o600
        assert re.fullmatch(r"ue-rl-crash-\d{8}-\d{6}-\w{8}\.txt", path.name)
        assert str(os.getpid()) not in path.stem.split("-")
        assert "ZeroDivisionError: nobody expects it" in path.read_text()
        assert str(path) in said


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_whose_output_is_closed_it_runs_all_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has None there: `ue-rl train >&-`, a daemon."""
    monkeypatch.setattr(sys, name, None)
    assert run("--version") == 0
    assert run("inspect", "a/b") == 2
    getattr(sys, name).close()
