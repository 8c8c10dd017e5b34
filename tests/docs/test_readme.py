"""README's engine and trainer, as they stand there: `ue-rl check` finds nothing, and the model is exported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import labelled
from tests.support.programs import program
from ue_rl.devtools import check as compliance


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with program(labelled("README.md", "python engine"), place="7777") as number:
        yield number


FIRST = ("steps of all envs", "partial batches", "ends of episodes", "next trainer", "a second trainer")


@pytest.mark.parametrize("only", [FIRST, pytest.param((), marks=pytest.mark.exhaustive)], ids=["some", "all"])
def test_the_engine_is_right(port: int, only: tuple[str, ...]) -> None:
    report = compliance.check(f"tcp://127.0.0.1:{port}", only=only)
    assert report.exit_code == 0, str(report)
    assert report.count(compliance.Verdict.WARN) == 0


def test_the_trainer_learns_and_exports(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trainer = labelled("README.md", "python trainer")
    exec(trainer.replace("7777", str(port)).replace("20_000", "256").replace('", env,', '", env, n_steps=64,'), {})
    assert (tmp_path / "agent.onnx").stat().st_size > 1000
