"""What `ue-rl train` shows: log records as JSON, the live view, engines that come and go, the summary."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tests.harness.warm_cli import WarmCli
from ue_rl.cli import train_report
from ue_rl.cli.train import JsonFormatter, use_text
from ue_rl.connections.engines.lifecycle import Life, LifeState
from ue_rl.system.errors import EngineDisconnected, RestartsSpent
from ue_rl.training.directory import RunDirectory
from ue_rl.training.fleet import Fleet
from ue_rl.training.report import RunResult
from ue_rl.training.saving.stopping import RunStopped
from ue_rl.training.seeds import SeedRun

LIGHT = ["train", "--num-envs", "2", "--n-steps", "32", "--batch-size", "32", "--eval-episodes", "0", "--no-export"]


def test_a_log_record_is_one_json_object(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ue_rl")
    life = Life(2)
    life.to(LifeState.CONNECTING, "tcp://127.0.0.1:7777")
    try:
        raise ValueError('a "quote"\nand a line')
    except ValueError:
        logging.getLogger("ue_rl").exception("it broke: %s", "\x1b[2J")
    first, second = (json.loads(JsonFormatter().format(record)) for record in caplog.records)
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "INFO",
        "logger": "ue_rl.connections.engines",
        "message": "engine 2: idle -> connecting: tcp://127.0.0.1:7777",
        "engine": 2,
        "before": "idle",
        "after": "connecting",
        "reason": "tcp://127.0.0.1:7777",
    }
    assert second["message"] == "it broke: \x1b[2J"
    assert "ValueError" in second["exception"]
    for record in caplog.records:
        assert "\n" not in JsonFormatter().format(record)


class Engines:
    """As EnginesTransport shows itself: one that plays, one that is lost."""

    def __init__(self) -> None:
        self.lives = [Life(0), Life(1)]
        for state in (LifeState.CONNECTING, LifeState.STREAMING, LifeState.PLAYING):
            self.lives[0].to(state)
        for state in (LifeState.CONNECTING, LifeState.CONNECTION_LOST):
            self.lives[1].to(state)
        self.engine_envs = [range(8), range(8, 12)]

        class Counts:
            counts = {1: 3}  # noqa: RUF012

        self.restarts = Counts()

    def latencies(self, engine: int) -> Any:
        return np.array([]) if engine else np.array([0.001] * 99 + [0.012])


def test_a_fleet_says_what_each_engine_does() -> None:
    fleet = Fleet(Engines())
    playing, lost = fleet.statuses()
    assert (playing.state, playing.num_envs, playing.restarts) == (LifeState.PLAYING, 8, 0)
    assert playing.latency is not None
    assert playing.latency == pytest.approx((0.001, 0.00111), rel=0.01)
    assert (lost.state, lost.num_envs, lost.restarts, lost.latency) == (LifeState.CONNECTION_LOST, 4, 3, None)
    assert fleet.restarts == 3


def test_the_live_view_shows_engines_returns_time_and_log(tmp_path: Path) -> None:
    clock = [100.0]
    screen = Console(file=io.StringIO(), width=100, force_terminal=True)
    view: Any = train_report.live_view(screen, lambda: clock[0])
    view.started(RunDirectory(tmp_path / "r"))
    try:
        view.connected(12, {"transport": "tcp"})
        view.engines(Fleet(Engines()))
        for step in range(10):
            clock[0] += 1
            view.progress(1000 * step, 20_000, float(step * step))
        logging.getLogger("ue_rl.x").error("something [red]broke[/red] \x1b[2J")
        shown = Console(file=io.StringIO(), width=100, record=True)
        shown.print(view.draw())
    finally:
        view.closed()
    text = shown.export_text()
    for words in ("9,000 of 20,000 env-steps", "1,000 fps", "0:00:11 left", "playing", "connection lost",
                  "1 ms", "1.11 ms", "81.0", "0.0 ▁", "something [red]broke[/red] \\x1b[2J"):  # fmt: skip
        assert words in text, (words, text)
    assert not [h for h in logging.getLogger("ue_rl").handlers if type(h).__module__ == train_report.__name__]


def test_the_live_view_says_what_it_waits_for(tmp_path: Path) -> None:
    """torch takes seconds to be imported, and an engine to start: nothing is counted before there is a step."""
    view: Any = train_report.live_view(Console(file=io.StringIO(), width=100, force_terminal=True))

    def shown() -> str:
        screen = Console(file=io.StringIO(), width=100, record=True)
        screen.print(view.draw())
        text = screen.export_text()
        assert "0 of 0" not in text
        assert " 0 fps" not in text
        return text

    view.started(RunDirectory(tmp_path / "r"))
    try:
        assert "starting" in shown()
        view.connected(12, {"transport": "tcp"})
        assert "preparing to learn" in shown()
        view.progress(0, 500, None)
        assert "0 of 500 env-steps" in shown()
    finally:
        view.closed()


def test_a_curve_of_nothing_and_of_one_value() -> None:
    assert "no episode has ended yet" in str(train_report.curve([], 20, 3))
    assert str(train_report.curve([3.0], 20, 3)) == "3.0"
    lines = str(train_report.curve([1.0] * 100, 20, 3)).splitlines()
    assert [len(line) for line in lines] == [30, 30, 30]


def outcome(tmp_path: Path, **more: Any) -> RunResult:
    run = RunDirectory(tmp_path / "r")
    run.path.mkdir()
    run.model.write_bytes(b"")
    return RunResult(run, 500, 3, 1.0, 20.0, model=run.model, **more)


def summary(given: RunResult) -> str:
    screen = Console(file=io.StringIO(), width=300, markup=False, record=True)
    train_report.summary(given, screen)
    return screen.export_text()


def test_the_summary_of_a_stopped_run_says_what_is_saved(tmp_path: Path) -> None:
    text = summary(outcome(tmp_path, stopped_by=RunStopped(15), saved=500, restarts=2))
    assert "stopped by SIGTERM" in text
    assert "lost and back 2 times" in text
    assert f"The model is saved; continue with: ue-rl train --resume --log-dir {tmp_path} --run-id r" in text


def test_the_summary_does_not_say_that_a_lost_engine_came_back(tmp_path: Path) -> None:
    spent = RestartsSpent("engine 1 did not come back within 3 s", fault="engine")
    text = summary(outcome(tmp_path, stopped_by=spent, saved=500, restarts=1))
    assert "lost once; the episodes" in text


@pytest.mark.parametrize(("done", "row"), [(0, "- -"), (1, "5.0 7.0"), (2, "6.0 +/- 12.7 8.0 +/- 12.7")])
def test_the_mean_over_seeds_has_an_interval_where_there_are_two(tmp_path: Path, done: int, row: str) -> None:
    screen = Console(file=io.StringIO(), width=100, markup=False, record=True)
    runs = [SeedRun(n, "done" if n < done else "stopped", 64, 5.0 + 2 * n, 7.0 + 2 * n) for n in range(3)]
    train_report.seeds_summary(tmp_path / "g", runs, None, screen)
    text = screen.export_text()
    assert "nan" not in text
    assert " ".join(re.findall(r"(?:\d|\+|-|\.|/)+", text.partition(f"of {done}")[2].partition("\n")[0])) == row
    assert ("confidence interval" in text) == (done > 1)


@pytest.mark.parametrize("width", [80, 120])
def test_the_bar_of_a_usual_terminal_shows_every_number(width: int) -> None:
    shown = io.StringIO()
    screen = Console(file=shown, width=width, markup=False, force_terminal=True, color_system=None)
    view: Any = train_report.lines(screen)
    view.progress(0, 2_000_000, None)
    view.begun -= 100.0
    view.progress(123_456, 2_000_000, -1234.5)
    view.ended()
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue()).strip().splitlines()[-1]
    assert re.search(r"[ ━╸]+123,456 of 2,000,000 env-steps +1,23\d fps +return +-1234.5 +0:00:00 ", last), last
    assert len(last) <= width


def test_a_log_line_goes_where_stderr_goes_now(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = logging.StreamHandler(io.StringIO())
    handler.setLevel(logging.WARNING)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    use_text()
    above_the_bar = io.StringIO()
    monkeypatch.setattr(sys, "stderr", above_the_bar)
    logging.getLogger("ue_rl.connections.engines").warning("engine 1 was lost")
    logging.getLogger("ue_rl.training.learner").warning("told by the report")
    assert above_the_bar.getvalue() == "WARNING engine 1 was lost\n"


def test_the_summary_says_what_is_not_saved(tmp_path: Path) -> None:
    error = EngineDisconnected("the engine went away \x1b[2J", fault="engine")
    text = summary(outcome(tmp_path, stopped_by=error, saved=300, crash=tmp_path / "crash.txt"))
    assert "The model of env-step 300 is saved; continue with: " in text
    assert "model.zip, as it was saved last" in text
    assert "EngineDisconnected: the engine went away \\x1b[2J [at fault: engine]" in text
    assert f"The traceback is in {tmp_path / 'crash.txt'}" in text
    error = ValueError("logits are\ntensor([[nan, nan],\n        [nan, nan]])")
    (tmp_path / "other").mkdir()
    again = outcome(tmp_path / "other", stopped_by=error, saved=300, crash=tmp_path / "crash.txt")
    text = summary(again)
    assert "ValueError: logits are" in text
    assert "tensor(" not in text


def test_without_a_terminal_the_view_is_lines_and_the_log_is_json(tmp_path: Path, warm_cli: WarmCli) -> None:
    words = [*LIGHT, "--timesteps", "128", "--ui", "--log-format", "json", "--log-dir", str(tmp_path)]
    output, errors = tmp_path / "out.txt", tmp_path / "errors.txt"
    done = warm_cli.start(words, output=output, errors=errors)
    assert done.wait(60) == 0, done.text
    assert "128 of 128 env-steps" in done.text
    assert "\x1b" not in output.read_text()
    records = [json.loads(line) for line in errors.read_text().splitlines()]
    changes = [(r["before"], r["after"]) for r in records if r.get("engine") == 0]
    assert changes[:5] == [
        ("idle", "launching"),
        ("launching", "loading"),
        ("loading", "connecting"),
        ("connecting", "streaming"),
        ("streaming", "playing"),
    ]
    assert changes[-1] == ("cleanup", "idle")


@pytest.mark.exhaustive
def test_a_process_that_imports_everything_itself(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "ue_rl", *LIGHT, "--timesteps", "128", "--log-dir", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    assert "128 of 128 env-steps" in done.stdout


@pytest.fixture
def terminal() -> Iterator[tuple[int, Path]]:
    """A pseudo-terminal of 100 columns: the descriptor of its screen, and its name."""
    if not hasattr(os, "openpty"):
        pytest.skip("pseudo-terminals")
    screen, keyboard = os.openpty()
    os.set_blocking(screen, False)
    yield screen, Path(os.ttyname(keyboard))
    os.close(keyboard)
    with contextlib.suppress(OSError):
        os.close(screen)


def shown_on(screen: int) -> str:
    """What has come since the last time."""
    data = b""
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(screen, 65536):
            data += chunk
    return data.decode(errors="replace")


def test_on_a_terminal_the_view_is_drawn_and_the_summary_follows(
    tmp_path: Path, warm_cli: WarmCli, terminal: tuple[int, Path]
) -> None:
    run = warm_cli.start(
        [*LIGHT, "--timesteps", "128", "--ui", "--log-dir", str(tmp_path)],
        output=terminal[1],
        environment={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    shown, deadline = "", time.monotonic() + 60
    while not run.ended.wait(0.01):
        shown += shown_on(terminal[0])
        assert time.monotonic() < deadline, shown
    shown += shown_on(terminal[0])
    assert run.code == 0, shown
    for words_shown in ("mean return of 100 episodes", "step p99", "playing", "log", "done", "model.zip"):
        assert words_shown in shown


def test_a_terminal_that_is_closed_stops_the_run_and_it_is_saved(
    tmp_path: Path, warm_cli: WarmCli, terminal: tuple[int, Path]
) -> None:
    process = warm_cli.start([*LIGHT, "--run-id", "r", "--log-dir", str(tmp_path)], output=terminal[1])
    run, deadline = tmp_path / "r", time.monotonic() + 60
    while not (run / "episodes.csv").exists() or (run / "episodes.csv").read_text().count("\n") < 5:
        assert time.monotonic() < deadline
        assert "Traceback" not in shown_on(terminal[0])
        time.sleep(0.01)
    os.close(terminal[0])  # SIGHUP, and nothing can be shown any more
    assert process.ended.wait(60)
    assert process.code == 128 + signal.SIGHUP
    last = (run / "checkpoints" / "last").read_text()
    assert int(last.split("_")[1]) > 0


def test_a_stop_before_the_first_step_has_its_exit_code_and_leaves_nothing(
    tmp_path: Path, warm_cli: WarmCli, ue_rl_leftovers: object
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    words = ["train", "--engine", "sleep 60 {port}", "--log-dir", str(logs)]
    process = warm_cli.start(words, output=tmp_path / "out.txt")
    process.wait_for(f"^run: {re.escape(str(logs / 'ppo-sleep-1'))}\n")
    process.signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert "stopped by SIGTERM" in process.text
    assert f"nothing was learnt, and {logs / 'ppo-sleep-1'} is not kept" in process.text
    assert list(logs.iterdir()) == []


def test_what_the_screen_says_is_said_once(tmp_path: Path, warm_cli: WarmCli) -> None:
    words = [*LIGHT, "--timesteps", "512", "--learning-rate", "1e30", "--run-id", "r", "--log-dir", str(tmp_path)]
    done = warm_cli.start(words, output=tmp_path / "out.txt")
    assert done.wait(60) == 1, done.text
    shown = done.text
    assert "ue_rl.training" not in shown
    assert shown.count("ValueError: ") == 1
    assert "[nan, nan]" not in shown
    assert "ERROR ue_rl.training.learner: stopped after" in (tmp_path / "r" / "run.log").read_text()


def test_an_engine_that_does_not_start_is_told_without_a_file_that_is_gone(tmp_path: Path, warm_cli: WarmCli) -> None:
    program = "import sys; sys.exit('no map of that name')"
    engine = f'{sys.executable} -c "{program}" {{port}}'
    words = ["train", "--engine", engine, "--log-dir", str(tmp_path), "--run-id", "r"]
    done = warm_cli.start(words, output=tmp_path / "out.txt")
    assert done.wait(60) == 1
    assert "no map of that name" in done.text
    assert "engine-0.log" not in done.text
