"""RunDirectory: which folder a run gets, and whose folder nobody takes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ue_rl.errors import ConfigurationError
from ue_rl.saving.durable import write_whole
from ue_rl.training.directory import RunDirectory


def a_run(log_dir: Path, name: str, *, model: bool = True, age: int = 0) -> Path:
    path = log_dir / name
    path.mkdir(parents=True)
    (path / "config.yaml").write_text("algo: ppo\n")
    if model:
        (path / "model.zip").write_bytes(b"")
    os.utime(path / "config.yaml", (1_000_000 - age, 1_000_000 - age))
    return path


def test_files_have_the_names_that_the_docs_give(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    named = {name: path.relative_to(tmp_path).as_posix() for name, path in vars(run).items() if name != "path"}
    assert named == {
        "config": "config.yaml", "model": "model.zip", "onnx": "model.onnx", "normalize": "vecnormalize.pkl",
        "replay": "replay_buffer.pkl", "checkpoints": "checkpoints", "episodes": "episodes.csv",
        "curves": "curves.png", "log": "run.log", "curriculum": "curriculum.json", "handshake": "handshake.txt",
    }  # fmt: skip


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
    with pytest.raises(ConfigurationError, match="exists already") as caught:
        RunDirectory.create(tmp_path, "mine", "walk", force=False)
    assert (caught.value.field, caught.value.fault) == ("run_id", "caller")
    assert (old / "model.zip").exists()
    run = RunDirectory.create(tmp_path, "mine", "walk", force=True)
    assert [path.name for path in run.path.iterdir()] == ["checkpoints"]


def test_an_overwritten_run_stands_aside_until_it_is_removed_or_put_back(tmp_path: Path) -> None:
    a_run(tmp_path, "mine")
    (tmp_path / "mine.1").mkdir()  # somebody else's
    run = RunDirectory.create(tmp_path, "mine", "walk", force=True)
    assert run.replaced == tmp_path / "mine.2"
    run.discard()
    assert run.replaced is None
    assert (tmp_path / "mine" / "model.zip").exists()
    assert not run.checkpoints.exists()
    run = RunDirectory.create(tmp_path, "mine", "walk", force=True)
    run.remove_replaced()
    run.discard()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.1"]


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
    with pytest.raises(ConfigurationError, match=r"config\.yaml") as caught:
        RunDirectory.create(tmp_path, "photos", "walk", force=True)
    assert (caught.value.field, caught.value.fault) == ("run_id", "caller")
    assert (tmp_path / "photos" / "cat.png").read_bytes() == b"cat"


@pytest.mark.parametrize("force", [False, True])
def test_an_empty_folder_is_taken(tmp_path: Path, force: bool) -> None:
    (tmp_path / "mine").mkdir()
    assert RunDirectory.create(tmp_path, "mine", "walk", force=force).checkpoints.is_dir()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ConfigurationError, match=r"file.*cannot be written") as caught:
        RunDirectory.create(tmp_path / "file", "mine", "walk", force=False)
    assert (caught.value.field, caught.value.fault) == ("log_dir", "caller")
    assert caught.value.got


def test_the_newest_run_of_the_task_is_continued(tmp_path: Path) -> None:
    a_run(tmp_path, "walk-3", age=10)
    newest = a_run(tmp_path, "walk-1", age=5)
    a_run(tmp_path, "walk-2", age=20)
    a_run(tmp_path, "swim-1")
    (tmp_path / "walk-9").mkdir()  # no run: it has no config
    assert RunDirectory.existing(tmp_path, None, "walk").path == newest
    assert RunDirectory.existing(tmp_path, "walk-2", "walk").path == tmp_path / "walk-2"
    assert RunDirectory.existing(tmp_path, "walk-2", "walk").read_config() == {"algo": "ppo"}


def test_what_cannot_be_continued_is_named(tmp_path: Path) -> None:
    a_run(tmp_path, "early", model=False)
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "model.zip").write_bytes(b"")
    for run_id, text in ((None, "no run of walk"), ("early", "no model"), ("bare", "no model"), ("none", "no model")):
        with pytest.raises(ConfigurationError, match=text) as caught:
            RunDirectory.existing(tmp_path, run_id, "walk")
        assert (caught.value.field, caught.value.fault) == ("run_id", "caller")


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    write_whole(path, lambda half: half.write_bytes(b"first"))
    assert path.read_bytes() == b"first"

    def fails(half: Path) -> None:
        half.write_bytes(b"sec")
        assert path.read_bytes() == b"first"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(path, fails)
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]
