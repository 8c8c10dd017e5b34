"""The tables of a resumed run: rows beyond its checkpoint are cut off, and the same files go on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from stable_baselines3.common.logger import FormatUnsupportedError, Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ue_rl.training.tables import ProgressTable, cut_tables, open_tables

EPISODES = "env_steps,return,length,seconds\r\n10,1.0,10,0.1\r\n20,1.0,10,0.2\r\n30,1.0,10,0.3\r\n"


def test_later_rows_are_cut_off(tmp_path: Path) -> None:
    (tmp_path / "episodes.csv").write_bytes(EPISODES.encode() + b"35,1.0,1")  # killed while it wrote a row
    (tmp_path / "progress.csv").write_text("a,time/total_timesteps\n1,10\n2,\n3,20\n4,21\n5,x\n6\n")
    (tmp_path / "self_play.csv").write_text("env_steps,side\n30,red\n")
    (tmp_path / "other.csv").write_text("env_steps\n99\n")
    cut_tables(tmp_path, 20)
    assert (tmp_path / "episodes.csv").read_bytes().decode() == EPISODES[: EPISODES.index("30,")]
    assert (tmp_path / "progress.csv").read_text() == "a,time/total_timesteps\n1,10\n2,\n3,20\n"
    assert (tmp_path / "self_play.csv").read_text() == ""  # its writer begins with the header
    assert (tmp_path / "other.csv").read_text() == "env_steps\n99\n"
    cut_tables(tmp_path / "none", 20)


def test_what_is_not_beyond_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "episodes.csv"
    path.write_bytes(EPISODES.encode())
    before = path.stat()
    cut_tables(tmp_path, 30)
    assert path.read_bytes() == EPISODES.encode()
    assert path.stat().st_ino == before.st_ino


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\0\xff,\n1,2\n", b'"', b"a" * 200_000 + b"\n1\n"])
def test_a_broken_table_is_no_hindrance(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "progress.csv").write_bytes(content)
    cut_tables(tmp_path, 20)
    table = ProgressTable(tmp_path / "progress.csv")
    table.write({"x": 1}, {})
    table.close()
    assert (tmp_path / "progress.csv").read_text(errors="replace").splitlines()[-1].endswith("1")


def test_the_same_table_goes_on_with_its_columns_and_new_ones(tmp_path: Path) -> None:
    for steps in (10, 20):
        logger = open_tables(tmp_path, pytest.fail, steps - 10)
        logger.record("time/total_timesteps", steps)
        logger.record("text", 'a "word", and more')
        if steps == 20:
            logger.record("new", 0.5)
        logger.record("hidden", 1, exclude="csv")
        logger.dump(steps)
        logger.close()
    lines = (tmp_path / "progress.csv").read_text().splitlines()
    assert sorted(lines[0].split(",")) == ["new", "text", "time/total_timesteps"]
    assert len(lines) == 3
    assert '"a ""word"", and more"' in lines[1]
    assert lines[1].endswith(",")
    assert lines[2].endswith(",0.5")
    assert [path.name for path in tmp_path.glob("*.csv")] == ["progress.csv"]


def test_what_no_table_can_hold_is_refused_as_sb3_does(tmp_path: Path) -> None:
    with pytest.raises(FormatUnsupportedError):
        ProgressTable(tmp_path / "p.csv").write({"x": Image(None, "HW")}, {})  # type: ignore[arg-type]


def test_a_full_disk_costs_a_row_and_not_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    table = ProgressTable(tmp_path / "progress.csv")
    table.write({"a": 1}, {})
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(os, "replace", full)
        table.write({"a": 2, "b": 2}, {})
    table.write({"a": 3, "b": 3}, {})
    table.close()
    assert (tmp_path / "progress.csv").read_text() == "a,b\n1,\n3,3\n"


def test_tensorboards_axis_does_not_go_backwards(tmp_path: Path) -> None:
    for begin, values in ((0, {10: 1.0, 20: 2.0, 30: 3.0}), (20, {30: 33.0, 40: 44.0})):
        logger = open_tables(tmp_path, pytest.fail, begin)
        for steps, value in values.items():
            logger.record("x", value)
            logger.dump(steps)
        logger.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("x")] == [
        (10, 1.0),
        (20, 2.0),
        (30, 33.0),
        (40, 44.0),
    ]
