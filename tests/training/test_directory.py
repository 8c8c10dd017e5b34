"""RunDirectory: which folder a run gets, and whose folder nobody takes."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.harness.warm_cli import WarmCli
from tests.support.waiting import eventually
from ue_rl.system.errors import ConfigurationError
from ue_rl.training.config import resolve
from ue_rl.training.directory import RunDirectory
from ue_rl.training.options import TrainOptions

CONFIG = TrainOptions(algo="a2c").as_yaml()


def a_model(path: Path, env_steps: int = 100) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", json.dumps({"num_timesteps": env_steps}))


def a_run(log_dir: Path, name: str, *, model: bool = True, age: int = 0) -> Path:
    path = log_dir / name
    path.mkdir(parents=True)
    (path / "checkpoints").mkdir()
    (path / "config.yaml").write_text(CONFIG)
    if model:
        a_model(path / "model.zip")
    os.utime(path / "config.yaml", (1_000_000 - age, 1_000_000 - age))
    return path


def test_files_have_the_names_that_the_docs_give(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    named = {name: path.relative_to(tmp_path).as_posix() for name, path in vars(run).items() if name != "path"}
    assert named == {
        "config": "config.yaml", "model": "model.zip", "onnx": "model.onnx", "best": "best_model.zip",
        "normalize": "vecnormalize.pkl", "replay": "replay_buffer.pkl", "checkpoints": "checkpoints",
        "episodes": "episodes.csv", "engines": "engines", "curves": "curves.png", "log": "run.log",
        "outcome": "outcome.json", "curriculum": "curriculum.json", "handshake": "handshake.txt",
    }  # fmt: skip
    assert run.store().keep == 3


def test_without_a_name_a_run_gets_the_next_number_of_its_task(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for expected in ("walk-1", "walk-2"):
        run = RunDirectory.create(logs, None, "walk", force=False)
        assert run.path == logs / expected
        assert run.checkpoints.is_dir()
    for other in ("walk-7", "walk-x9", "walk-", "walk-fast-30", "run-40"):
        (logs / other).mkdir()
    assert RunDirectory.create(logs, None, "walk", force=False).path == logs / "walk-8"
    assert RunDirectory.create(logs, None, "run", force=False).path == logs / "run-41"
    assert RunDirectory.create(logs, None, "walk-fast", force=False).path == logs / "walk-fast-31"


def test_a_named_run_is_not_overwritten_unless_forced(tmp_path: Path) -> None:
    old = a_run(tmp_path, "mine")
    with pytest.raises(ConfigurationError, match=r"exists already.*--resume.*--force") as caught:
        RunDirectory.create(tmp_path, "mine", "walk", force=False)
    assert (caught.value.field, caught.value.fault) == ("run_id", "caller")
    assert (old / "model.zip").exists()
    run = RunDirectory.create(tmp_path, "mine", "walk", force=True)
    left = sorted(path.name for path in run.path.iterdir())
    assert left == ["checkpoints", "run.holder.json", "run.lock", "run.replaces"]


def test_an_overwritten_run_stands_aside_until_it_is_removed_or_put_back(tmp_path: Path) -> None:
    a_run(tmp_path, "mine")
    (tmp_path / "mine.1").mkdir()  # somebody else's
    run = RunDirectory.create(tmp_path, "mine", "walk", force=True)
    assert run.replaced == tmp_path / "mine.2"
    assert not (run.replaced / "run.holder.json").exists(), "its process has ended"
    (run.checkpoints / "new").touch()
    run.discard()
    assert run.replaced is None
    assert (tmp_path / "mine" / "model.zip").exists()
    assert list(run.checkpoints.iterdir()) == []
    run = RunDirectory.create(tmp_path, "mine", "walk", force=True)
    run.remove_replaced()
    run.discard()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.1"]


def test_runs_that_were_killed_before_they_saved_anything_leave_one_folder(tmp_path: Path) -> None:
    a_run(tmp_path, "mine")
    for _ in range(12):
        run = RunDirectory.create(tmp_path, "mine", "walk", force=True, options=TrainOptions(algo="a2c"))
        assert run.replaced == tmp_path / "mine.1"
        (run.checkpoints / "0001_0_steps").mkdir()  # saved as the run begins, and no more: the process is killed
        run.lock.__exit__(None, None, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "mine.1"]
    assert (tmp_path / "mine.1" / "model.zip").exists()
    run.discard()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine" / "model.zip").exists()


def test_a_resumed_run_deletes_what_it_was_to_overwrite_when_it_was_killed(tmp_path: Path) -> None:
    a_run(tmp_path, "mine")
    RunDirectory.create(tmp_path, "mine", "walk", force=True, options=TrainOptions(algo="a2c"))
    run = RunDirectory.existing(tmp_path, "mine", "walk")
    assert run.replaced == tmp_path / "mine.1"
    run.remove_replaced()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert RunDirectory.existing(tmp_path, "mine", "walk").replaced is None


def test_a_run_that_only_looks_set_aside_is_nobodys_to_delete(tmp_path: Path) -> None:
    a_run(tmp_path, "mine", model=False)
    a_run(tmp_path, "mine.1")  # --run-id mine.1
    run = RunDirectory.create(tmp_path, "mine", "walk", force=True)
    assert run.replaced == tmp_path / "mine.2"
    run.remove_replaced()
    assert (tmp_path / "mine.1" / "model.zip").exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows renames no folder with open files, so that the lock comes later")
@pytest.mark.parametrize("force", [False, True])
def test_a_run_is_locked_from_its_first_moment(tmp_path: Path, force: bool) -> None:
    """Before its caller takes the lock, another process could rename it, and this one would lock that one's."""
    if force:
        a_run(tmp_path, "mine")
    run = RunDirectory.create(tmp_path, "mine", "walk", force, TrainOptions())
    with pytest.raises(ConfigurationError, match=f"being written by pid {os.getpid()}"):
        RunDirectory.create(tmp_path, "mine", "walk", True, TrainOptions())
    with run.lock:
        assert run.lock.holder() is not None
    assert run.lock.holder() is None
    with run.lock:
        assert (run.path / "run.holder.json").exists()


def test_an_overwritten_run_is_back_where_the_new_folder_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_run(tmp_path, "mine")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(ConfigurationError, match="cannot be written"):
        RunDirectory.create(tmp_path, "mine", "walk", force=True)
    assert (tmp_path / "mine" / "model.zip").exists()


def test_force_takes_no_folder_that_is_not_a_run(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_bytes(b"cat")
    with pytest.raises(ConfigurationError, match=r"is not a run.*config\.yaml") as caught:
        RunDirectory.create(tmp_path, "photos", "walk", force=True)
    assert (caught.value.field, caught.value.fault) == ("run_id", "caller")
    assert (tmp_path / "photos" / "cat.png").read_bytes() == b"cat"


@pytest.mark.parametrize("run_id", ["mine", None])
def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, run_id: str | None) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ConfigurationError) as caught:
        RunDirectory.create(tmp_path / "file", run_id, "walk", force=False)
    assert caught.value.message == f"{tmp_path / 'file' / (run_id or '')} cannot be written"
    assert (caught.value.field, caught.value.fault) == ("log_dir", "caller")
    assert caught.value.got
    assert "half" not in str(caught.value)


def test_the_newest_run_of_the_task_is_continued(tmp_path: Path) -> None:
    a_run(tmp_path, "walk-3", age=10)
    newest = a_run(tmp_path, "walk-1", age=5)
    a_run(tmp_path, "walk-2", age=20)
    a_run(tmp_path, "swim-1")
    (tmp_path / "walk-9").mkdir()  # no run: it has no config
    assert RunDirectory.existing(tmp_path, None, "walk").path == newest
    assert RunDirectory.existing(tmp_path, "walk-2", "walk").path == tmp_path / "walk-2"
    assert RunDirectory.existing(tmp_path, "walk-2", "walk").read_config()["algo"] == "a2c"
    with pytest.raises(ConfigurationError, match="such as swim-1, the newest here"):
        RunDirectory.existing(tmp_path, None, "fly")


def test_what_cannot_be_continued_is_named(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    a_model(tmp_path / "bare" / "model.zip")
    a_run(tmp_path, "torn")
    (tmp_path / "torn" / "config.yaml").write_text("algo: [")
    for run_id, text in (
        (None, "no run of walk"), ("bare", "not a run"), ("none", "there is no run"), ("torn", "not a run.*not YAML"),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match=text) as caught:
            RunDirectory.existing(tmp_path, run_id, "walk")
        assert (caught.value.field, caught.value.fault) == ("run_id", "caller")
        assert caught.value.cure


def test_a_replaced_run_that_cannot_be_deleted_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a_run(tmp_path, "mine")
    run = RunDirectory.create(tmp_path, "mine", "walk", force=True)
    monkeypatch.setattr("shutil.rmtree", lambda path, ignore_errors: ignore_errors or path.rmdir())
    run.remove_replaced()
    assert "mine.1" in caplog.text
    assert run.replaced is None


def test_a_config_of_a_newer_version_is_not_read_from_a_checkpoint(tmp_path: Path) -> None:
    copy = tmp_path / "copy.yaml"
    copy.write_text(CONFIG)

    class Saved(RunDirectory):
        def store(self) -> Any:
            return SimpleNamespace(newest_first=lambda: [SimpleNamespace(file=lambda name: copy)])

    run = Saved(a_run(tmp_path, "mine"))
    run.config.write_text("algo: [")
    assert run.read_config()["algo"] == "a2c"
    run.config.write_text("format: 999\nalgo: sac\n")
    with pytest.raises(ConfigurationError) as caught:
        run.read_config()
    assert caught.value.field == "format"


def test_the_newest_of_a_task_is_a_numbered_one(tmp_path: Path) -> None:
    """Not one of another task that begins with the same words, nor one that --force has set aside."""
    a_run(tmp_path, "walk-1", age=5)
    for other in ("walk-fast-2", "walk-1.1", "walk-mine"):
        a_run(tmp_path, other)
    assert RunDirectory.existing(tmp_path, None, "walk").path == tmp_path / "walk-1"


@pytest.mark.parametrize(
    "run_id", ["../victim", "/victim", "a/b", "a\\b", "", ".", "..", ".hidden", " x", "x ", "C:x", "a\nb", "a\0b", "*"]
)
def test_an_id_is_no_path(tmp_path: Path, run_id: str) -> None:
    a_run(tmp_path, "victim")
    (tmp_path / "logs").mkdir()
    for call in (
        lambda: RunDirectory.create(tmp_path / "logs", run_id, "walk", force=True),
        lambda: RunDirectory.existing(tmp_path / "logs", run_id, "walk"),
    ):
        with pytest.raises(ConfigurationError, match="name of one folder") as caught:
            call()
        assert (caught.value.field, caught.value.fault) == ("run_id", "caller")
    assert (tmp_path / "victim" / "model.zip").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "victim"]


def test_a_config_to_train_with_makes_no_run(tmp_path: Path) -> None:
    """Its folder is somebody's: it names a few options, and a run's names every one."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "config.yaml").write_text("algo: ppo\ntimesteps: 5\n")
    (mine / "checkpoints").mkdir()
    with pytest.raises(ConfigurationError, match=r"is not a run: its config.yaml was not written by a run"):
        RunDirectory.create(tmp_path, "mine", "walk", force=True)
    (mine / "config.yaml").write_text(CONFIG)
    (mine / "checkpoints").rmdir()
    with pytest.raises(ConfigurationError, match="is not a run: it has no folder checkpoints"):
        RunDirectory.create(tmp_path, "mine", "walk", force=True)


@pytest.mark.parametrize(
    "left", [None, [], ["run.log"], ["run.log", "run.lock", "run.holder.json", ".half-config.yaml"]]
)
def test_a_run_that_ended_before_it_began_is_in_nobodys_way(tmp_path: Path, left: list[str] | None) -> None:
    (tmp_path / "mine" / ("checkpoints" if left is not None else "")).mkdir(parents=True)
    for name in left or ():
        (tmp_path / "mine" / name).write_text("x")
    with pytest.raises(ConfigurationError, match=r"ended before it began.*without --resume"):
        RunDirectory.existing(tmp_path, "mine", "walk")
    for force in (False, True):
        assert RunDirectory.create(tmp_path, "mine", "walk", force=force).replaced is None
        assert (tmp_path / "mine" / "checkpoints").is_dir()


def test_a_run_that_was_killed_before_it_saved_is_resumed_with_its_config(tmp_path: Path) -> None:
    options = TrainOptions(algo="a2c", timesteps=7)
    RunDirectory.create(tmp_path, "mine", "walk", False, options)
    run = RunDirectory.existing(tmp_path, "mine", "walk")
    assert resolve({}, None, base=run.read_config()) == options
    assert not run.saved_anything
    with pytest.raises(ConfigurationError, match=r"--resume.*--force"):
        RunDirectory.create(tmp_path, "mine", "walk", force=False)
    assert RunDirectory.create(tmp_path, "mine", "walk", force=True).replaced == tmp_path / "mine.1"


STARTS = """
import sys, time
from pathlib import Path
from ue_rl.system.errors import ConfigurationError
from ue_rl.training.directory import RunDirectory
from ue_rl.training.options import TrainOptions

folder, run_id, ends = Path(sys.argv[1]), sys.argv[2] or None, sys.argv[3]
options = TrainOptions()

def wait_for(name):
    while not Path(name).exists():
        time.sleep(0.001)

print("ready", flush=True)
wait_for("begin")
try:
    run = RunDirectory.create(folder, run_id, "walk", ends == "force", options)
except ConfigurationError as error:
    sys.exit("refused: " + str(error))
try:
    run.lock.__enter__()
except ConfigurationError as error:
    sys.exit("refused: " + str(error))
print(run.path.name, flush=True)
(run.path / "mine").write_text("x")
wait_for("begun")
if ends == "discard":
    run.discard()
else:
    assert (run.path / "mine").exists()
    assert sorted(run.read_config()) == sorted(TrainOptions.__dataclass_fields__)
    wait_for("end")
"""


@pytest.mark.parametrize(("run_id", "ends"), [("", ""), ("mine", ""), ("mine", "force"), ("", "discard")])
def test_runs_that_start_at_the_same_moment_do_each_other_no_harm(
    tmp_path: Path, run_id: str, ends: str, warm_cli: WarmCli
) -> None:
    logs, here = tmp_path / "logs", tmp_path / "here"
    logs.mkdir()
    here.mkdir()
    if ends == "force":
        a_run(logs, "mine")
    processes = [
        warm_cli.start(
            [str(logs), run_id, ends if not number or ends == "force" else ""],
            output=here / f"{number}.txt",
            errors=here / f"{number}-errors.txt",
            cwd=here,
            script=STARTS,
        )
        for number in range(6)
    ]
    for process in processes:
        process.wait_for("ready")
    (here / "begin").touch()
    for process in processes:
        eventually(lambda process=process: process.ended.is_set() or process.text.count("\n") > 1, 60)
    names = [process.text.partition("\n")[2].strip() for process in processes]
    (here / "begun").touch()  # earlier, the name that one gives back would be another one's
    (here / "end").touch()
    for number, process in enumerate(processes):
        said = (here / f"{number}-errors.txt").read_text
        assert process.wait() == 0 or said().splitlines()[-1].startswith("refused: "), said()
    begun = [name for name in names if name]
    assert len(begun) == (1 if run_id else 6)
    assert len(set(begun)) == len(begun)
    kept = {path.name for path in logs.iterdir()}
    if ends == "force":
        assert len(list(logs.glob("mine.*/model.zip"))) == 1, "the run that was there"
    else:
        assert kept == set(begun) - set(names[:1] if ends == "discard" else [])


def test_a_run_that_was_killed_while_it_overwrote_another_says_where_that_is(tmp_path: Path) -> None:
    a_run(tmp_path, "mine.2")  # renamed, and the new folder was not made yet
    with pytest.raises(ConfigurationError, match=r"had renamed it to mine\.2.*--run-id mine\.2"):
        RunDirectory.existing(tmp_path, "mine", "walk")
    RunDirectory.create(tmp_path, "mine", "walk", False, TrainOptions())  # made, but nothing was saved
    for other in ("mine.1", "mine.x", "mine.old"):
        (tmp_path / other).mkdir()
    assert RunDirectory.existing(tmp_path, "mine", "walk").set_aside() == [tmp_path / "mine.2"]


def test_halves_are_swept(tmp_path: Path) -> None:
    path = a_run(tmp_path, "mine")
    for half in (".half-model.zip", ".half-config.yaml"):
        (path / half).write_text("")
    (path / "checkpoints" / ".half-0001_5_steps").mkdir()
    RunDirectory(path).sweep()
    assert sorted(entry.name for entry in path.rglob("*")) == ["checkpoints", "config.yaml", "model.zip"]
