"""A run's folder while others make or move folders of its name, or the system refuses to name it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.test_directory import a_run
from ue_rl.system.errors import ConfigurationError
from ue_rl.training.directory import RunDirectory


def test_what_another_process_has_named_meanwhile_is_left_to_it(tmp_path: Path) -> None:
    class Slower(RunDirectory):
        @staticmethod
        def takes_name(half: Path, path: Path) -> bool:
            path.mkdir()
            return False

    with pytest.raises(ConfigurationError, match="another process has just begun"):
        Slower.create(tmp_path, "mine", "walk", force=False)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_another_process_has_begun_meanwhile_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    found = iter([True, False])  # before the lock is taken, and behind it

    class Slower(RunDirectory):
        def never_begun(self) -> bool:
            return next(found)

    with pytest.raises(ConfigurationError, match="another process has just begun"):
        Slower.create(tmp_path, "mine", "walk", force=False)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_another_process_has_renamed_meanwhile_is_not_made_anew(tmp_path: Path) -> None:
    """The other one is about to take the name: an empty folder in its way would end both."""
    a_run(tmp_path, "mine")

    class Renamed(RunDirectory):
        def check_is_run(self, cure: str) -> None:
            self.path.rename(tmp_path / "mine.1")

    with pytest.raises(ConfigurationError, match="another process has just renamed"):
        Renamed.create(tmp_path, "mine", "walk", force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.1"]


@pytest.mark.parametrize("run_id", ["mine", None])
def test_a_name_that_the_system_refuses_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_id: str | None
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(ConfigurationError, match=r"cannot be written.*Permission denied"):
        RunDirectory.create(tmp_path, run_id, "walk", force=False)
    assert list(tmp_path.iterdir()) == []


def test_of_runs_that_stand_aside_the_newest_comes_first(tmp_path: Path) -> None:
    for name in ("mine", "mine.2", "mine.10", "mine.9"):
        a_run(tmp_path, name)
    found = RunDirectory(tmp_path / "mine").set_aside()
    assert [path.name for path in found] == ["mine.10", "mine.9", "mine.2"]
