"""Files that are on the disk, whole, when a call returns; and sizes as people read them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ue_rl.system import durable
from ue_rl.system.durable import write_whole
from ue_rl.training.saving.checkpoints import CheckpointStore


def test_amounts_are_read_by_people() -> None:
    assert [durable.amount(n) for n in (5, 12_345, 12_345_678, 5_000_000_000, 7 * 10**15)] == [
        "5 bytes",
        "12.3 kB",
        "12.3 MB",
        "5.0 GB",
        "7000.0 TB",
    ]


def test_without_fsync_of_folders_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def no_folders(number: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{number}"):
            raise OSError(22, "Invalid argument")
        real(number)

    monkeypatch.setattr(os, "fsync", no_folders)
    CheckpointStore(tmp_path).save(1, lambda folder: {})
    monkeypatch.setattr(os, "open", None)  # on Windows a folder cannot be opened
    assert durable.sync_folder(tmp_path, windows=True) is None


def test_a_reader_on_windows_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, answers = os.replace, [PermissionError(), PermissionError()]

    def busy(source: Any, target: Any) -> None:
        if answers:
            raise answers.pop()
        real(source, target)

    monkeypatch.setattr(os, "replace", busy)
    (tmp_path / "a").write_text("")
    durable.rename(tmp_path / "a", tmp_path / "b", waits=(0.0, 0.0))
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


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


def test_a_file_is_on_the_disk_before_it_takes_the_old_ones_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, name=name, real=real: (done.append(name), real(*a)))
    (tmp_path / "x").write_text("old")
    write_whole(tmp_path / "x", lambda path: path.write_text("new"))
    assert ((tmp_path / "x").read_text(), done) == ("new", ["fsync", "replace", "fsync"])  # the folder's too
    assert list(tmp_path.iterdir()) == [tmp_path / "x"]
