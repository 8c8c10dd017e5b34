"""`ue-rl check`: what it prints, its exit codes, JSON, and engines that it starts itself."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest
from click.testing import Result

from tests.harness.engines.mistaken import MistakenEngine
from tests.harness.warm_cli import WarmCli
from tests.support.command_line import run
from tests.support.listening import nobody
from tests.support.slack import patient
from ue_rl.cli.check import View
from ue_rl.devtools.check import MISTAKES, CheckReport, Finding, Verdict

ENGINE = [sys.executable, "-m", "tests.harness.engines.mistaken", "--port", "{port}", "--num-envs", "{num_envs}"]


def quick() -> list[str]:
    return ["--timeout", f"{patient(1.5):.1f}"]


def check(*words: str) -> Result:
    return run("check", *words, standalone_mode=False)


def last(result: Result) -> str:
    return result.output.rstrip().splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["SHARED", pytest.param("ANY", marks=pytest.mark.exhaustive)])
def test_a_right_engine_passes(channel: str) -> None:
    with MistakenEngine(channel=channel, num_envs=2) as engine:
        result = check(engine.url)
    assert result.return_value == 0, result.output
    assert re.fullmatch(r"PASS  \d+ PASS, 0 WARN, 0 FAIL, \d+ SKIP", last(result)), result.output
    assert "over text, shared channel\n" in result.output
    assert ("over text, env sockets\n" in result.output) == (channel == "ANY")
    assert "PASS  handshake: came after" in result.output


def test_a_mistake_is_shown_with_bytes_section_cure_and_name() -> None:
    with MistakenEngine("decimal-comma:reward") as engine:
        result = check(f"127.0.0.1:{engine.port}", *quick())
    assert result.return_value == 1
    assert "FAIL  steps of all envs: numbers are written with a decimal comma" in result.output
    assert re.search(r"^      seen      .*REW=-\d+,\d+", result.output, re.MULTILINE)
    assert "      protocol  docs/protocol.md, section 2 (Grammar, Numbers)\n" in result.output
    assert f"      cure      {MISTAKES['decimal-comma'].cure}\n" in result.output
    assert "      name      decimal-comma\n" in result.output
    assert re.search(
        r"^SKIP  .* and \d+ more: it needs what failed above: steps of all envs$", result.output, re.MULTILINE
    )
    assert last(result).startswith("FAIL  ")
    assert last(result).endswith(" SKIP: decimal-comma")


@pytest.mark.slow
def test_json_is_one_object_and_nothing_else() -> None:
    with MistakenEngine("no-newline") as engine:
        result = check(engine.url, "--json", *quick())
    said = json.loads(result.output)
    assert result.return_value == said["exit_code"] == 1
    assert said["mistakes"] == ["no-newline"]
    assert {"address", "handshake", "findings", "speed", "seconds", "summary"} <= said.keys()
    (failed,) = [finding for finding in said["findings"] if finding["outcome"] == "FAIL"]
    assert failed["section"] == "1 (Transport)"
    assert failed["cure"] == MISTAKES["no-newline"].cure
    assert failed["seen"].startswith("CONFIG:OBS=6")


def test_nobody_listens() -> None:
    with nobody() as port:
        result = check(f"tcp://127.0.0.1:{port}", *quick())
    assert result.return_value == 1
    assert last(result).endswith(": not-listening")


def test_it_starts_an_engine_and_ends_it() -> None:
    result = check("--engine", shlex.join([*ENGINE, "--mistake", "nan"]), "--num-envs", "2", *quick())
    assert result.return_value == 1, result.output
    assert "ENV_COUNT=2" in result.output
    assert last(result).endswith(": nan")
    port = re.search(r"checking tcp://127.0.0.1:(\d+)", result.output)
    assert port is not None
    again = check(f"127.0.0.1:{port[1]}", *quick())
    assert again.output.endswith(": not-listening\n"), "it was ended"


@pytest.mark.slow
def test_it_starts_others_and_compares_them() -> None:
    result = check(
        "--engine", shlex.join([*ENGINE, "--mistake", "not-repeatable:velocity"]), "--num-envs", "2", *quick()
    )
    assert result.return_value == 1, result.output
    assert last(result).endswith(": seed-ignored, remembers-episodes")


def test_an_engine_that_dies_says_its_last_words(tmp_path: Path) -> None:
    script = tmp_path / "game.py"
    script.write_text(
        "import socket, sys\n"
        "listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
        "trainer, _ = listener.accept()\n"
        "trainer.sendall(b'CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=1;VERSION=1;CHANNEL=SHARED\\n')\n"
        "trainer.recv(100)\n"
        "sys.exit('GameError: [/b] the level could not be loaded')\n"
    )
    result = check("--engine", shlex.join([sys.executable, "-S", str(script), "{port}"]), *quick())
    assert result.return_value == 1
    *_, words, summary = (line for line in result.output.splitlines() if line)
    assert words.strip() == "GameError: [/b] the level could not be loaded"
    assert "the engine ended by itself, with exit code 1; it printed last:" in result.output
    assert summary.startswith("FAIL  ")


def test_an_engine_that_ends_before_it_listens_is_waited_for_no_longer() -> None:
    result = check("--engine", shlex.join([sys.executable, "-S", "-c", "raise SystemExit('no licence')", "{port}"]))
    assert result.return_value == 1
    assert "the engine ended by itself, with exit code 1; it printed last:" in result.output
    assert "no licence" in result.output
    assert last(result).endswith(": not-listening")


def test_an_engine_that_cannot_be_started_is_one_sentence() -> None:
    result = check("--engine", "no-such-game --port {port}")
    assert type(result.exception).__name__ == "EngineNotStarted"


def test_ctrl_c_ends_it_with_what_was_found(tmp_path: Path, warm_cli: WarmCli) -> None:
    with MistakenEngine("slow") as engine:
        process = warm_cli.start(["check", engine.url], output=tmp_path / "out.txt", errors=tmp_path / "errors.txt")
        process.wait_for("PASS  reset of all envs")
        process.signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert process.text.rstrip().splitlines()[-1].startswith("STOPPED  "), process.text


def test_text_of_an_engine_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    view = View()
    view.width = 40
    text = "\x1b[31mred [bold]x[/] " + "A" * 100
    view.finding(Finding("a check", "text", Verdict.FAIL, text, MISTAKES["nan"], 3, f"< {text}\n> ok"))
    view.ends(CheckReport("tcp://x", findings=[]), "it said \x1b[2J", stopped=False)
    out = capsys.readouterr().out
    assert "\x1b[31m" not in out
    assert "\x1b[2J" not in out
    assert "\\x1b[31mred [bold]x[/]" in out
    assert max(map(len, out.splitlines())) <= 40
    assert "(env 3)" in out
