"""`ue-rl runs`: runs from their files alone, also while another process writes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.command_line import run as run_cli
from ue_rl.system.errors import ConfigurationError
from ue_rl.training.config import resolve
from ue_rl.training.directory import RunDirectory
from ue_rl.training.reading import EpisodeTable, Tail
from ue_rl.training.report import RunResult
from ue_rl.training.runs.comparing import differences, draw
from ue_rl.training.runs.listing import listed, run_named, state_of
from ue_rl.training.saving.lock import RunLock
from ue_rl.training.saving.stopping import RunStopped

HEADER = "env_steps,return,length,seconds\n"


def made(log_dir: Path, name: str, rows: int = 30, ended: str = "", **given: object) -> RunDirectory:
    """A run as it lies there after so many episodes; `ended`: its outcome's state."""
    options = resolve({"log_dir": str(log_dir), "run_id": name, **given}, None)
    run = RunDirectory.create(log_dir, name, name, False, options)
    run.lock.__exit__(None, None, None)
    run.episodes.write_text(HEADER + "".join(f"{10 * (n + 1)},{n},10,0.1\n" for n in range(rows)))
    if ended:
        run.outcome.write_text(json.dumps({"state": ended, "env_steps": 10 * rows, "evaluation": [5.0, 1.0]}))
    return run


def said(*words: str) -> Result:
    return run_cli(*words)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunDirectory]:
    run = made(tmp_path, "going")
    with RunLock(run.path):
        yield run


def test_each_run_has_a_row_and_a_folder_of_runs_one(tmp_path: Path, running: RunDirectory) -> None:
    made(tmp_path, "done", ended="done", algo="a2c")
    made(tmp_path, "new", rows=0)
    made(tmp_path / "several", "seed-0")
    killed = made(tmp_path, "killed")
    (killed.checkpoints / "0001_500_steps").mkdir()
    (tmp_path / "else").mkdir()
    made(tmp_path / ".hidden", "seed-0")
    rows = {each.path.name: each for each in listed(tmp_path)}
    assert set(rows) == {"going", "done", "new", "several", "killed"}
    assert {name: row.state for name, row in rows.items()} == {
        "going": "running", "done": "done", "new": "new", "several": "", "killed": "killed",
    }  # fmt: skip
    assert (rows["done"].env_steps, rows["killed"].env_steps, rows["several"].runs) == (300, 500, 1)
    assert rows["done"].mean_return == 14.5
    shown = said("runs", "--log-dir", str(tmp_path)).output
    assert all(word in shown for word in ("a2c", "running", "14.5", "1 runs", "CartPole-v1"))
    assert "no runs" in said("runs", "--log-dir", str(tmp_path / "else")).output
    (tmp_path / "new" / "config.yaml").write_text("algo: [")
    assert "broken" in said("runs", "--log-dir", str(tmp_path)).output


def test_a_run_of_another_machine_is_not_called_killed(tmp_path: Path) -> None:
    run = made(tmp_path, "x")
    (run.path / "run.holder.json").write_text(json.dumps({"pid": 1, "host": "far", "started": 0}))
    assert state_of(run) == "running on far"
    (run.path / "run.holder.json").write_text(
        json.dumps({"pid": os.getpid(), "host": os.uname().nodename, "started": 0})
    )
    assert state_of(run) == "new", "another process has that pid now"


def test_a_run_is_shown_with_what_was_given(tmp_path: Path) -> None:
    made(tmp_path, "x", ended="stopped", timesteps=777, hyperparameters={"policy_kwargs": {"net_arch": [9]}})
    shown = said("runs", "--log-dir", str(tmp_path), "show", "x").output
    assert all(word in shown for word in ("stopped", "300 of 777", "net_arch", "[9]", "5.0 +/- 1.0"))
    result = said("runs", "show", "y", "--log-dir", str(tmp_path))
    assert isinstance(result.exception, ConfigurationError)
    assert "x" in str(said("runs", "show", "xx", "--log-dir", str(tmp_path)).exception)


def test_runs_are_compared_by_what_differs(tmp_path: Path) -> None:
    runs = [made(tmp_path, "a", hyperparameters={"gamma": 0.5}), made(tmp_path, "b", rows=0, timesteps=9)]
    assert dict(differences(runs)) == {
        "timesteps": ["100000", "9"],
        "hyperparameters.gamma": ["0.5", "0.98"],
    }
    shown = said("runs", "compare", "a", "b", "--log-dir", str(tmp_path)).output
    assert "gamma" in shown
    assert "seed" not in shown
    assert (tmp_path / "compare.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(ConfigurationError, match="no"):
        draw(runs[1:], tmp_path / "none.png")
    assert said("runs", "compare", "a", "--log-dir", str(tmp_path)).exit_code == 2


def test_runs_are_listed_and_never_deleted(tmp_path: Path) -> None:
    """Where a link stands for a run, no command removes the link and leaves the run, or the other way round."""
    made(tmp_path, "x")
    result = said("runs", "rm", "x", "--log-dir", str(tmp_path))
    assert result.exit_code == 2
    assert (tmp_path / "x" / "config.yaml").exists()


def test_a_tail_gives_whole_lines_and_begins_anew_where_the_file_does(tmp_path: Path) -> None:
    path = tmp_path / "x"
    tail = Tail(path)
    assert tail.read() == (False, [])
    path.write_text("a\nb")
    assert tail.read() == (True, ["a"])
    with path.open("a") as file:
        file.write("c\n")
    assert tail.read() == (False, ["bc"])
    (tmp_path / "y").write_text("d\n")
    (tmp_path / "y").rename(path)
    assert tail.read() == (True, ["d"])


def test_the_running_return_is_that_of_the_episodes_by_then(tmp_path: Path) -> None:
    path = tmp_path / "episodes.csv"
    path.write_text(HEADER + "".join(f"{n},{n},1,0.1\n" for n in range(1, 301)) + "x,y\n")
    table = EpisodeTable(path).follow()
    assert table.mean() == 250.5
    assert table.mean(2) == 1.5
    assert table.mean(0.5) is None
    assert [len(values) for values in table.curve()] == [271, 271]
    assert EpisodeTable(tmp_path / "none").follow().mean() is None


@pytest.mark.parametrize(
    ("stopped", "state"), [(None, "done"), (RunStopped(15), "stopped"), (ValueError("x"), "failed")]
)
def test_an_outcome_says_how_a_run_ended(tmp_path: Path, stopped: BaseException | None, state: str) -> None:
    outcome = RunResult(RunDirectory(tmp_path), 5, 1, 2.0, 3.0, evaluation=(1.0, 0.5), stopped_by=stopped)
    found = json.loads(outcome.as_json())
    assert (found["state"], found["env_steps"], found["evaluation"]) == (state, 5, [1.0, 0.5])


def test_a_run_is_named_or_a_folder(tmp_path: Path) -> None:
    made(tmp_path, "x")
    assert run_named("x", tmp_path).path == run_named(str(tmp_path / "x"), Path("elsewhere")).path


def test_a_folder_of_runs_is_told_from_a_run(tmp_path: Path) -> None:
    for name in ("s/seed-0", "s/seed-1"):
        made(tmp_path / Path(name).parent, Path(name).name)
    with pytest.raises(ConfigurationError, match=r"is a folder of 2 runs.*seed-0.*--log-dir"):
        run_named("s", tmp_path)
    assert run_named("s/seed-1", tmp_path).path == tmp_path / "s" / "seed-1"


def test_a_damaged_or_hostile_run_is_listed_shown_and_compared(tmp_path: Path) -> None:
    """Numbers that are none, deep JSON, pipes in place of files, and names that would steer the terminal."""
    red = "\x1b[31mred"
    made(tmp_path, "whole", ended="done")
    for number, outcome in enumerate(
        (
            {"state": red, "env_steps": 5, "evaluation": None},
            {"state": ["x"], "env_steps": "many", "evaluation": ["a"]},
            {"state": "done", "env_steps": None, "evaluation": {"a": 1}},
        )
    ):
        made(tmp_path, f"outcome-{number}").outcome.write_text(json.dumps(outcome))
    made(tmp_path, "deep").outcome.write_text("[" * 100_000)
    infinite = made(tmp_path, "infinite")
    infinite.episodes.write_text(f"{HEADER}inf,1,1,1\n1e999,2,2,2\n30,7,1,1\n")
    (infinite.path / "progress.csv").write_text("time/total_timesteps\ninf\n")
    names = made(tmp_path, "names")
    (names.checkpoints / f"0001_9{red}_steps").mkdir()
    names.path.rename(tmp_path / red)
    if hasattr(os, "mkfifo"):
        for name in ("episodes", "log", "outcome"):
            pipe: Path = getattr(made(tmp_path, f"pipe-{name}"), name)
            pipe.unlink(missing_ok=True)
            os.mkfifo(pipe)
    runs = [path.name for path in tmp_path.iterdir()]
    asked = [["runs"], ["runs", "compare", *runs, "--chart", str(tmp_path / "curves.png")]]
    asked += [["runs", "show", run] for run in runs]
    for words in asked:
        done = said(*words, "--log-dir", str(tmp_path))
        assert (done.exit_code, done.exception) == (0, None), words
        assert "\x1b" not in done.output, words
    assert next(each for each in listed(tmp_path) if each.path.name == "infinite").mean_return == 7


def test_names_are_whole_however_narrow_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are copied into other commands."""
    name = "ppo-a-game-with-a-name-of-some-length-and-one-more-word"
    made(tmp_path, name, ended="done")
    assert name in said("runs", "--log-dir", str(tmp_path)).output
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    shown = said("runs", "--log-dir", str(tmp_path))
    assert shown.exit_code == 0
    assert name in shown.output


def test_a_name_that_the_terminal_cannot_show_is_no_error(tmp_path: Path) -> None:
    made(tmp_path, "gr\N{LATIN SMALL LETTER O WITH DIAERESIS}sse")
    words = [sys.executable, "-m", "ue_rl", "runs", "--log-dir", str(tmp_path)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(words, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert rb"gr\xf6sse" in done.stdout
