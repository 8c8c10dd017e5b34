"""CheckpointStore: a checkpoint is whole or not there, whatever happens while it is written or deleted."""

from __future__ import annotations

import builtins
import contextlib
import io
import json
import logging
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.harness.warm_cli import WarmCli
from ue_rl.system.errors import ActionError, SaveFailed
from ue_rl.training.saving.checkpoints import CheckpointStore

POSIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")


def writer(content: str = "weights", **facts: object) -> Callable[[Path], Mapping[str, object]]:
    def write(folder: Path) -> Mapping[str, object]:
        (folder / "model.zip").write_text(content)
        (folder / "opponents").mkdir()
        (folder / "opponents" / "1.onnx").write_text(content)
        return facts

    return write


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_holds_what_its_writer_wrote(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints")
    assert not store
    assert store.last is None
    saved = store.save(350, writer(exact=True, number=99))
    assert str(saved) == "0001_350_steps"
    assert store
    last = CheckpointStore(tmp_path / "checkpoints").last
    assert last == saved
    assert (saved.number, saved.env_steps, saved.facts["exact"]) == (1, 350, True)
    assert saved.facts["versions"]["python"].startswith("3.")
    assert saved.facts["saved_at"].endswith("+00:00")
    model = saved.file("model.zip")
    assert model is not None
    assert model.read_text() == "weights"
    assert saved.file("replay_buffer.pkl") is None
    assert names(store.folder) == ["0001_350_steps", "last"]
    assert (store.folder / "last").read_text() == "0001_350_steps\n"
    manifest = json.loads((saved.path / "manifest.json").read_text())
    assert manifest["files"]["opponents/1.onnx"]["bytes"] == 7


def test_the_newest_few_are_kept(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    for steps in (10, 20, 20, 15):  # a run that is resumed from an older one counts back
        store.save(steps, writer())
    assert names(tmp_path) == ["0003_20_steps", "0004_15_steps", "last"]
    assert [str(checkpoint) for checkpoint in store.newest_first()] == ["0004_15_steps", "0003_20_steps"]


def break_size(path: Path) -> None:
    with (path / "model.zip").open("ab") as file:
        file.truncate(3)


def break_bytes(path: Path) -> None:
    (path / "model.zip").write_text("weighty")


def break_manifest(path: Path) -> None:
    (path / "manifest.json").write_text('{"files": {')


def replace_by_a_device(path: Path) -> None:
    path.unlink()
    path.symlink_to(os.devnull)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (break_size, "model.zip has 3 bytes instead of 7"),
        (break_bytes, "SHA-256 differs"),
        (break_manifest, "Expecting"),
        (lambda path: (path / "model.zip").unlink(), "model.zip is missing"),
        (lambda path: (path / "manifest.json").unlink(), "no manifest"),
        (lambda path: (path / "manifest.json").write_text("[]"), "lists no files"),
        (lambda path: (path / "manifest.json").write_text('{"files": {}, "env_steps": 1}'), "says 1 env-steps"),
        (lambda path: (path / "manifest.json").write_text('{"files": {"a": 1}, "env_steps": 30}'), "nothing of a"),
        (lambda path: (path / "manifest.json").write_bytes(b"\xff"), "utf-8"),
        (lambda path: (path / "manifest.json").write_text("[" * 100_000), "nested too deeply"),
        (lambda path: os.truncate(path / "manifest.json", 1 << 30), "too large"),
        (lambda path: replace_by_a_device(path / "manifest.json"), "not an ordinary file"),
        (lambda path: replace_by_a_device(path / "model.zip"), "model.zip is a link"),
    ],
)
def test_a_broken_one_is_named_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], object], reason: str
) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    for steps in (10, 20, 30):
        last = store.save(steps, writer())
    damage(last.path)
    with caplog.at_level(logging.WARNING):
        assert [c.env_steps for c in store.newest_first()] == [20]
        assert store.last is not None
    assert caplog.text.count("0003_30_steps is broken and passed over") == 1  # said once, however often it is asked
    assert reason in caplog.text
    if damage is not break_bytes:  # which only a reading of all files would find
        store.save(40, writer())
        assert [c.env_steps for c in store.newest_first()] == [40, 20]  # it took no good one's place


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("unexpected pos 64 vs 0")])
def test_a_save_that_fails_leaves_nothing_and_says_why(tmp_path: Path, error: Exception) -> None:
    store = CheckpointStore(tmp_path)
    store.save(10, writer())
    before = names(tmp_path)

    def fails(folder: Path) -> Mapping[str, object]:
        (folder / "model.zip").write_text("half")
        raise error

    with pytest.raises(
        SaveFailed, match=r"20 env-steps .*are free at .*a checkpoint takes.*0001_10_steps is kept"
    ) as e:
        store.save(20, fails)
    assert str(error) in str(e.value)
    assert e.value.__cause__ is error
    assert names(tmp_path) == before
    assert store.save(30, writer()).number == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ActionError("wrong shape")])
def test_what_is_no_failure_of_the_disk_passes(tmp_path: Path, error: BaseException) -> None:
    def fails(folder: Path) -> Mapping[str, object]:
        (folder / "model.zip").write_text("half")
        raise error

    with pytest.raises(type(error)):
        CheckpointStore(tmp_path).save(20, fails)
    assert names(tmp_path) == []


def test_facts_that_json_cannot_hold_are_named(tmp_path: Path) -> None:
    with pytest.raises(SaveFailed, match="not JSON serializable"):
        CheckpointStore(tmp_path).save(20, writer(model=object()))
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveFailed, match=r"could not be written: (NotADirectory|FileExists)Error"):
        CheckpointStore(tmp_path / "file").save(20, writer())
    assert CheckpointStore(tmp_path / "file").last is None


def test_little_room_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk: list[int | None] = [None]
    store = CheckpointStore(tmp_path, keep=2, free_space=lambda path: disk[0])
    for free, said in ((None, 0), (100_000, 0), (30_000, 1), (25_000, 0), (100_000, 0), (30_000, 1)):
        disk[0] = free
        caplog.clear()
        store.save(1, writer("x" * 10_000))
        messages = [record.getMessage() for record in caplog.records]
        assert len(messages) == said, (free, messages)
        for text in messages:
            assert "only 30.0 kB are free" in text
            assert "a checkpoint takes 20." in text
            assert "--keep 2 now" in text


# -- every system call that can fail, and a kill at every one and at any moment --


class Calls:
    """Counts what is asked of the disk, and does `at_nth` at the n-th of them."""

    def __init__(self, patch: pytest.MonkeyPatch, at_nth: Callable[[], None], nth: int, *, for_good: bool) -> None:
        self.count = 0
        for owner, name in (
            (os, "mkdir"), (os, "replace"), (os, "fsync"), (os, "unlink"), (os, "rmdir"), (os, "open"),
            (io, "open"), (builtins, "open"),
        ):  # fmt: skip
            patch.setattr(owner, name, self._counted(getattr(owner, name), at_nth, nth, for_good))

    def _counted(self, real: Any, at_nth: Callable[[], None], nth: int, for_good: bool) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == nth or (for_good and self.count > nth):
                at_nth()
            return real(*args, **options)

        return call


@contextlib.contextmanager
def counted(at_nth: Callable[[], None], nth: int, *, for_good: bool = False) -> Iterator[Calls]:
    with pytest.MonkeyPatch.context() as patch:
        yield Calls(patch, at_nth, nth, for_good=for_good)


def nothing() -> None:
    pass


def full() -> None:
    raise OSError(28, "No space left on device")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], CheckpointStore]:
    """Makes a folder in which three checkpoints were saved; a copy, because saving waits for the disk."""
    template = tmp_path_factory.mktemp("three") / "checkpoints"
    store = CheckpointStore(template, keep=2)
    for steps in (1, 2, 3):
        store.save(steps, writer(f"weights {steps}"))

    def copy(folder: Path) -> CheckpointStore:
        shutil.copytree(template, folder)
        return CheckpointStore(folder, keep=2)

    return copy


def loads(folder: Path) -> int:
    """The env_steps of the newest that loads; nothing but good ones and halves may be there."""
    store = CheckpointStore(folder, keep=2)
    good = list(store.newest_first())
    assert len(good) == len(store._entries())
    model = good[0].file("model.zip")
    assert model is not None
    assert model.read_text() == f"weights {good[0].env_steps}"
    store.save(99, writer("weights 99"))
    assert sorted(names(folder)) == sorted([str(good[0]), f"{good[0].number + 1:04d}_99_steps", "last"])
    return good[0].env_steps


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "from then on"])
def test_a_disk_that_fails_at_any_call(
    tmp_path: Path, three: Callable[[Path], CheckpointStore], for_good: bool
) -> None:
    store = three(tmp_path / "all")
    with counted(nothing, -1) as calls:
        store.save(4, writer("weights 4"))
    assert calls.count > 20
    outcomes = set()
    for nth in range(1, calls.count + 1):
        folder = tmp_path / str(nth)
        store = three(folder)
        with counted(full, nth, for_good=for_good):
            try:
                outcomes.add(store.save(4, writer("weights 4")).env_steps)
                expected = 4
            except SaveFailed:
                outcomes.add("failed")
                expected = 3
        if expected == 3 and not for_good:
            assert names(folder) == ["0002_2_steps", "0003_3_steps", "last"], nth
        assert loads(folder) in {expected, 4 if for_good else expected}, nth
    assert outcomes == {"failed", 4}


def in_child(work: Callable[[], None]) -> int:
    """Forks a process that does `work`; its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


@POSIX
def test_a_kill_at_any_call(tmp_path: Path, three: Callable[[Path], CheckpointStore]) -> None:
    store = three(tmp_path / "all")
    with counted(nothing, -1) as calls:
        store.save(4, writer("weights 4"))
    found = []
    for nth in range(1, calls.count + 1):
        folder = tmp_path / str(nth)
        three(folder)

        def work(folder: Path = folder, nth: int = nth) -> None:
            with counted(die, nth):
                CheckpointStore(folder, keep=2).save(4, writer("weights 4"))

        _, status = os.waitpid(in_child(work), 0)
        assert os.WIFSIGNALED(status), nth
        found.append(loads(folder))
    assert found == sorted(found)  # the old one, up to a call from which on it is the new one
    assert set(found) == {3, 4}


@POSIX
@pytest.mark.exhaustive
@pytest.mark.parametrize("kills", [20, 100])
def test_a_kill_at_random_moments(tmp_path: Path, kills: int) -> None:
    """Half of them come when a first checkpoint was saved, however long that takes."""
    dice = random.Random(1)
    folder, newest = tmp_path / "checkpoints", 0
    saved, save = os.pipe()

    def work() -> None:
        store = CheckpointStore(folder, keep=2)
        for steps in range(newest + 1, newest + 1000):
            store.save(steps, writer(f"weights {steps}"))
            if killed % 2 and steps == newest + 1:
                os.write(save, b".")

    killed, began = 0, time.monotonic()
    while killed < kills:
        pid = in_child(work)
        if killed % 2:
            os.read(saved, 1)
        time.sleep(dice.uniform(0.005, 0.03))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        killed += 1
        last = CheckpointStore(folder, keep=2).last
        assert last is None or last.env_steps >= newest
        assert last is not None or newest == 0
        if last is not None:
            newest = last.env_steps
            model = last.file("model.zip")
            assert model is not None
            assert model.read_text() == f"weights {newest}"
    assert newest > kills / 5
    assert loads(folder) == newest
    os.close(saved)
    os.close(save)
    sys.stderr.write(f"{newest} checkpoints in {time.monotonic() - began:.1f} s\n")


LIMITED = """
import resource, signal, sys
from pathlib import Path
import torch
from stable_baselines3.common.save_util import save_to_zip_file
from ue_rl.system.errors import SaveFailed
from ue_rl.training.saving.checkpoints import CheckpointStore

def write(folder):
    save_to_zip_file(folder / "model.zip", data={"a": 1}, params={"w": torch.zeros(100_000)})
    return {}

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    CheckpointStore(Path(sys.argv[1])).save(20, write)
except SaveFailed as error:
    print(error)
"""


@POSIX
def test_a_file_that_may_not_grow_is_a_save_that_failed(tmp_path: Path, warm_cli: WarmCli) -> None:
    """What `ulimit -f` and a full disk do to torch, through SB3's way of writing a model."""
    CheckpointStore(tmp_path / "run").save(10, writer())
    done = warm_cli.run_script(LIMITED, str(tmp_path / "run"), folder=tmp_path)
    assert done.stdout.startswith("the checkpoint at 20 env-steps could not be written: "), done.stderr
    assert names(tmp_path / "run") == ["0001_10_steps", "last"]
