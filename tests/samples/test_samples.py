"""Every sample runs with the words of its command line; none is longer than 60 lines.

The first one runs as a user would run it, in a process of its own, and so does play.py. The others run in this process,
which has imported torch already.
"""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
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
    assert len(scripts) >= 5
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


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., str]]:
    """Runs a sample in this process, in tmp_path; what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(SAMPLES))  # as for `python samples/..`; the engine's process finds it, too

    def run_here(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(SAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    yield run_here
    sys.modules.pop("reach", None)


@pytest.mark.parametrize("channel", ["shared", "per_env"])
def test_reach(here: Callable[..., str], channel: str) -> None:
    assert "mean return" in here("train_reach.py", "--timesteps", "2048", "--channel", channel)


def test_mujoco(tmp_path: Path, here: Callable[..., str]) -> None:
    pytest.importorskip("mujoco", reason="gymnasium[mujoco] is not installed")
    assert "mean return" in here("train_mujoco.py", "--timesteps", "1024")
    assert OnnxInference(tmp_path / "inverted_pendulum.onnx").obs_size == 4
