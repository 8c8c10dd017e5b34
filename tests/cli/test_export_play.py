"""`ue-rl export` and `ue-rl play`: from a model.zip to episodes, equal to SB3's own evaluation."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from tests.support.command_line import ok, refused
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.cli.play import load_policy
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.inference import OnnxInference, Sb3Inference
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.handshake import encode_handshake
from ue_rl.system import errors
from ue_rl.training.directory import RunDirectory
from ue_rl.training.options import TrainOptions
from ue_rl.training.saving.checkpoints import CheckpointStore


@pytest.fixture(scope="module")
def cart_poles() -> Iterator[Callable[[int], str]]:
    """The address of so many of them in this process: where who starts the engine is not the subject."""
    with ExitStack() as stack:
        yield lambda count: stack.enter_context(run_in_thread(GymnasiumBridge("CartPole-v1", count))).url


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model.zip of CartPole; norm/model.zip of Pendulum beside its vecnormalize.pkl."""
    folder = tmp_path_factory.mktemp("models")
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=64, seed=0, device="cpu")
    model.learn(128)
    model.save(folder / "model.zip")
    env = VecNormalize(DummyVecEnv([lambda: gym.make("Pendulum-v1")]))
    (folder / "norm").mkdir()
    sac = SAC("MlpPolicy", env, seed=0, device="cpu", policy_kwargs={"net_arch": [16]}, learning_starts=10)
    sac.learn(40)
    sac.save(folder / "norm" / "model.zip")
    env.save(str(folder / "norm" / "vecnormalize.pkl"))
    return folder


def test_a_folder_stands_for_the_model_in_it(models: Path, tmp_path: Path, cart_poles: Callable[[int], str]) -> None:
    def write(at: Path) -> dict[str, object]:
        shutil.copy(models / "model.zip", at)
        return {}

    checkpoint = CheckpointStore(tmp_path / "checkpoints").save(1024, write)
    for folder, wanted in (
        (checkpoint.path, checkpoint.path.with_name(f"{checkpoint.path.name}.onnx")),
        (tmp_path, tmp_path / "model.onnx"),
    ):
        ok("export", folder)
        assert wanted.exists()
    assert CheckpointStore(tmp_path / "checkpoints").last == checkpoint  # no file of it has changed
    (checkpoint.path / "manifest.json").unlink()
    assert isinstance(load_policy(checkpoint.path), Sb3Inference)
    assert isinstance(load_policy(tmp_path), OnnxInference)
    ok("play --episodes 1", tmp_path, cart_poles(1))
    assert "no model in this folder" in str(refused("play", tmp_path / "checkpoints"))
    (tmp_path / "config.yaml").touch()
    assert str(refused("play", tmp_path.parent)).endswith(f"The newest run in it is {tmp_path}")


def test_export_prints_the_largest_difference(models: Path, tmp_path: Path) -> None:
    output = ok("export", models / "model.zip", "-o", tmp_path / "x.onnx")
    assert "largest difference" in output
    lines = [" ".join(line.replace("│", " ").split()) for line in output.splitlines()]
    assert "inputs obs float32 [N, 4]" in lines
    assert "outputs actions float32 [N, 1]" in lines
    assert OnnxInference(tmp_path / "x.onnx").obs_size == 4
    output = ok("export", models / "norm" / "model.zip")  # finds the statistics beside it
    assert "vecnormalize.pkl" in output.replace("\n", "").replace(" ", "").replace("│", "")
    metadata = OnnxInference(models / "norm" / "model.onnx").metadata
    assert metadata is not None
    assert metadata.algorithm == "SAC"


def test_export_says_where_only_rounding_differs(models: Path, tmp_path: Path) -> None:
    """SAC's squashed actions of normalised observations: onnxruntime and torch round them differently."""
    output = ok("export --tolerance 0", models / "norm" / "model.zip", "-o", tmp_path / "x.onnx")
    shown = " ".join(output.replace("│", " ").split())
    found = re.search(r"equal but for rounding (\d+) observations", shown)
    assert found is not None, shown
    assert int(found[1]) > 100
    assert "from exact: file" in shown


def test_export_refuses_and_leaves_no_file(models: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.zip").write_bytes(b"PK\x03\x04 nothing")
    for arguments in ((tmp_path / "bad.zip",), (tmp_path / "none.zip",), (models / "model.zip", "--algo", "SAC")):
        refused("export", *arguments, "-o", tmp_path / "x.onnx", by=errors.ExportError)
    assert not (tmp_path / "x.onnx").exists()


@pytest.mark.parametrize("num_envs", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_play_equals_evaluate_policy(
    models: Path, tmp_path: Path, num_envs: int, cart_poles: Callable[[int], str]
) -> None:
    env = DummyVecEnv([lambda: gym.make("CartPole-v1")] * num_envs)
    env.seed(9)
    expected, lengths = evaluate_policy(
        PPO.load(models / "model.zip"), env, n_eval_episodes=6, return_episode_rewards=True, warn=False
    )
    ok("export", models / "model.zip", "-o", tmp_path / "x.onnx")
    for model in (tmp_path / "x.onnx", models / "model.zip"):
        output = ok(
            "play --episodes 6 --seed 9",
            model,
            cart_poles(num_envs),
            "--json",
            tmp_path / "e.json",
            "--csv",
            tmp_path / "e.csv",
        )
        rows = json.loads((tmp_path / "e.json").read_text())["episodes"]
        assert [row["return"] for row in rows] == expected
        assert [row["length"] for row in rows] == lengths
        with (tmp_path / "e.csv").open() as file:
            assert [int(row["length"]) for row in csv.DictReader(file)] == lengths
        summary = output.split("6 episodes: return")[1].split("length")[1].strip()
        assert summary == f"{np.mean(lengths):.1f} +/- {np.std(lengths):.1f} ({min(lengths)} to {max(lengths)})"


def test_a_seed_decides_a_stochastic_policys_noise(
    models: Path, tmp_path: Path, cart_poles: Callable[[int], str]
) -> None:
    output = ok("export --stochastic", models / "model.zip", "-o", tmp_path / "noisy.onnx")
    assert any("noise" in line and "float32 [N, 2]" in line for line in output.splitlines()), output

    def episodes(seed: int) -> Any:
        ok(f"play --episodes 6 --seed {seed}", tmp_path / "noisy.onnx", cart_poles(2), "--json", tmp_path / "e.json")
        return json.loads((tmp_path / "e.json").read_text())["episodes"]

    assert episodes(5) == episodes(5)
    # Other noise, and not only other episodes.
    zeros = np.zeros((64, 4), np.float32)
    actions = [load_policy(tmp_path / "noisy.onnx", seed=seed).run_inference(zeros).tolist() for seed in (5, 5, 6)]
    assert actions[0] == actions[1] != actions[2]


def test_play_in_a_running_engine_with_statistics(models: Path) -> None:
    with run_in_thread(GymnasiumBridge("Pendulum-v1", 2)) as engine:
        command = f"play --episodes 2 --max-episode-steps 20 --seed 1 --port {engine.port}"
        ok("export", models / "norm" / "model.zip")
        outputs = [ok(command, models / "norm" / f"model.{kind}") for kind in ("zip", "onnx")]
    means = [float(o.split("episodes: return ")[1].split()[0]) for o in outputs]
    assert means[0] == pytest.approx(means[1], rel=1e-2)


def test_play_refuses_the_same_numbers_in_another_order(models: Path, tmp_path: Path) -> None:
    class Named(GymnasiumBridge):
        names = ("x", "speed", "angle", "turning")

        @property
        def spec(self) -> EnvSpec:
            return replace(super().spec, obs_names=self.names)

    game = Named("CartPole-v1", 2)
    shutil.copy(models / "model.zip", tmp_path)
    (tmp_path / "handshake.txt").write_bytes(encode_handshake(game.spec))
    with run_in_thread(game) as engine:
        command = f"play {tmp_path} --episodes 1 --port {engine.port}"
        ok(command)
        game.names = ("angle", "speed", "x", "turning")
        assert "expected x at 0; got angle at 0" in str(refused(command))


@pytest.mark.parametrize("config", [{}, {"engine": "COMMAND"}, {"url": "URL"}])
def test_a_run_plays_where_it_was_trained(models: Path, tmp_path: Path, config: dict[str, str]) -> None:
    shutil.copy(models / "model.zip", tmp_path)
    command = f"{sys.executable} -m ue_rl serve --env CartPole-v1 --num-envs {{num_envs}} --port {{port}}"
    with run_in_thread(GymnasiumBridge("CartPole-v1", 2)) as engine:
        values = {"COMMAND": command, "URL": engine.url}
        written = {"num_envs": 2, **{key: values.get(value, value) for key, value in config.items()}}
        RunDirectory(tmp_path).write_config(TrainOptions(**written))  # type: ignore[arg-type]
        assert "2 episodes" in ok("play --episodes 2 --seed 3", tmp_path)
        assert "127.0.0.1:1;" in str(refused("play --port 1", tmp_path)), "an address that is given comes first"
        assert f"Did you mean {tmp_path.name!r}" in str(refused("play", f"{tmp_path}x"))


def test_play_films(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pygame", reason="CartPole draws with pygame")
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    gif = tmp_path / "film.gif"
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        monkeypatch.delenv(name, raising=False)
    ok("play --env CartPole-v1 --episodes 1 --max-episode-steps 30", models / "model.zip", "--gif", gif)
    assert "error" not in capfd.readouterr().err, "there is no screen, and none is needed"
    with image.open(gif) as film:
        assert film.n_frames > 5
        assert np.asarray(film.convert("RGB")).std() > 0


def test_a_film_that_fails_costs_no_return(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygame", reason="CartPole draws with pygame")
    pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    asked: list[str] = []
    before = UnrealVecEnv.env_method

    def env_method(self: Any, name: str, *given: Any, **more: Any) -> Any:
        if name != "render":
            return before(self, name, *given, **more)
        asked.append(name)
        if len(asked) > 1:
            raise RuntimeError("the window is gone")
        return before(self, name, *given, **more)

    monkeypatch.setattr(UnrealVecEnv, "env_method", env_method)
    files = ["--gif", tmp_path / "film.gif", "--json", tmp_path / "played.json"]
    shown = ok("play --env CartPole-v1 --episodes 2", models / "model.zip", *files)
    assert "2 episodes" in shown
    assert len(asked) == 2
    assert len(json.loads((tmp_path / "played.json").read_text())["episodes"]) == 2
    assert (tmp_path / "film.gif").exists(), "what was filmed until then"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nothing.onnx", "--env", "CartPole-v1"], "nothing.onnx"),
        ([__file__, "--env", "CartPole-v1"], "not a policy"),
        (["MODEL", "--env", "Pendulum-v1"], "3 observation numbers"),
        (["MODEL", "--port", "1"], "nothing listens"),
    ],
)
def test_play_refuses_by_name(models: Path, arguments: list[str], text: str) -> None:
    assert text in str(refused("play", *(models / "model.zip" if a == "MODEL" else a for a in arguments)))
