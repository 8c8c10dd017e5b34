"""samples/train_cartpole.py and play.py run as a user would run them; no script is longer than 60 lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.warm_cli import WarmCli
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.inference import OnnxInference

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def run(warm_cli: WarmCli, name: str, *arguments: str, folder: Path) -> str:
    out = warm_cli.run_script(SAMPLES / name, *arguments, folder=folder)
    assert out.returncode == 0, out.stderr
    return out.stdout


def test_scripts_are_short() -> None:
    scripts = [*SAMPLES.glob("train*.py"), SAMPLES / "play.py", SAMPLES / "godot" / "train.py"]
    assert len(scripts) >= 4
    for script in scripts:
        assert len(script.read_text("utf-8").splitlines()) <= 60, script


@pytest.fixture(scope="session")
def cartpole(tmp_path_factory: pytest.TempPathFactory, warm_cli: WarmCli) -> Path:
    """The folder of one training of samples/train_cartpole.py, with its cartpole.onnx."""
    folder = tmp_path_factory.mktemp("cartpole")
    assert "mean return" in run(warm_cli, "train_cartpole.py", "--timesteps", "512", folder=folder)
    return folder


@pytest.mark.slow
def test_train_then_play_with_the_exported_file(cartpole: Path, warm_cli: WarmCli) -> None:
    assert OnnxInference(cartpole / "cartpole.onnx").is_model_loaded()
    with run_in_thread(GymnasiumBridge("CartPole-v1", 2)) as engine:
        words = ("cartpole.onnx", f"tcp://127.0.0.1:{engine.port}", "--episodes", "3")
        output = run(warm_cli, "play.py", *words, folder=cartpole)
    assert output.count("return") >= 3


def test_play_refuses_a_model_of_other_sizes(cartpole: Path, warm_cli: WarmCli) -> None:
    with run_in_thread(GymnasiumBridge("Pendulum-v1", 2)) as engine:
        out = warm_cli.run_script(SAMPLES / "play.py", "cartpole.onnx", engine.url, folder=cartpole)
    assert out.returncode != 0
    assert "ModelMismatch" in out.stderr
