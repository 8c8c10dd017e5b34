"""samples/train_cartpole.py and play.py run as a user would run them; no script is longer than 60 lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.inference import OnnxInference

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def run(name: str, *arguments: str, cwd: Path) -> str:
    out = subprocess.run(
        [sys.executable, str(SAMPLES / name), *arguments],
        capture_output=True, text=True, check=False, cwd=cwd, timeout=110,
    )  # fmt: skip
    assert out.returncode == 0, out.stderr
    return out.stdout


def test_scripts_are_short() -> None:
    scripts = [*SAMPLES.glob("train*.py"), SAMPLES / "play.py", SAMPLES / "godot" / "train.py"]
    assert len(scripts) >= 4
    for script in scripts:
        assert len(script.read_text("utf-8").splitlines()) <= 60, script


@pytest.fixture(scope="session")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one training of samples/train_cartpole.py, with its cartpole.onnx."""
    folder = tmp_path_factory.mktemp("cartpole")
    assert "mean return" in run("train_cartpole.py", "--timesteps", "2048", cwd=folder)
    return folder


def test_train_then_play_with_the_exported_file(cartpole: Path) -> None:
    assert OnnxInference(cartpole / "cartpole.onnx").is_model_loaded()
    with run_in_thread(GymnasiumBridge("CartPole-v1", 2)) as engine:
        output = run("play.py", "cartpole.onnx", "--port", str(engine.port), "--episodes", "3", cwd=cartpole)
    assert output.count("return") >= 3


def test_play_refuses_a_model_of_other_sizes(cartpole: Path) -> None:
    with run_in_thread(GymnasiumBridge("Pendulum-v1", 2)) as engine:
        out = subprocess.run(
            [sys.executable, str(SAMPLES / "play.py"), "cartpole.onnx", "--port", str(engine.port)],
            capture_output=True, text=True, check=False, cwd=cartpole, timeout=60,
        )  # fmt: skip
    assert out.returncode != 0
    assert "ModelMismatch" in out.stderr
