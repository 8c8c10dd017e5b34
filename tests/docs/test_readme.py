"""README's engine and trainer, as they stand there: `ue-rl check` finds nothing, and the model is exported."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ue_rl
from ue_rl import compliance
from ue_rl.launching import ports

README = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
ENGINE, TRAINER = re.findall(r"```python (?:engine|trainer)\n(.*?)```", README, re.S)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    free = ports.find()
    source = ENGINE.replace("7777", str(free.number))
    with subprocess.Popen([sys.executable, "-c", source], stderr=subprocess.DEVNULL) as engine:
        ue_rl.connect(f"tcp://127.0.0.1:{free.number}", wait=60).close()  # it is still being imported
        yield free.number
        engine.terminate()
    free.release()


def test_the_engine_is_right(port: int) -> None:
    report = compliance.check(f"tcp://127.0.0.1:{port}")
    assert report.exit_code == 0, str(report)
    assert report.count(compliance.Outcome.WARN) == 0


def test_the_trainer_learns_and_exports(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    short = TRAINER.replace("20_000", "256").replace('", env)', '", env, n_steps=64)')
    exec(short.replace("7777", str(port)), {})
    assert (tmp_path / "agent.onnx").stat().st_size > 1000
