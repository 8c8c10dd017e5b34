"""samples/cpp: agents that learn from its demo, and the game that plays what they have learnt by itself."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

from tests.harness.warm_cli import WarmCli
from tests.samples.cpp_engine import CLANG, DEPLOY, MARKS, STAND_INS, needs_shm, program, reach
from tests.samples.programs import connect

pytestmark = MARKS


@pytest.mark.learning
@needs_shm
def test_ppo_learns_to_reach(built: dict[str, Path]) -> None:
    """An untrained policy's return is about -6; after 81 920 env-steps it is above 3 (4.4 was seen)."""

    with reach(built, "--num-envs", "32", "--shm") as port:
        env = connect(port)
        env.seed(0)
        model = PPO(
            "MlpPolicy", env, n_steps=64, batch_size=512, n_epochs=10, learning_rate=2e-3, gamma=0.95, seed=0,
            device="cpu",
        )  # fmt: skip
        before, _ = evaluate_policy(model, env, 32)
        model.learn(81_920)
        after, _ = evaluate_policy(model, env, 32)
        env.close()
    assert float(np.mean(before)) < 0.0
    assert float(np.mean(after)) > 3.0


@pytest.mark.exhaustive
def test_train_launches_it(built: dict[str, Path], tmp_path: Path, warm_cli: WarmCli) -> None:
    words = [
        "train", "--engine", f"{built['reach']} --port {{port}} --num-envs 4 --shm", "--timesteps", "512",
        "--log-dir", str(tmp_path), "--n-steps", "64", "--batch-size", "64",
    ]  # fmt: skip
    done = warm_cli.start(words, output=tmp_path / "out.txt", cwd=tmp_path)
    assert done.wait(120) == 0, done.text
    assert list(tmp_path.rglob("model.zip"))


def test_the_game_plays_an_exported_model_itself(built: dict[str, Path], tmp_path: Path) -> None:
    """samples/deploy/cpp/play_reach.cpp, with the returns and lengths of `ue-rl play`, which asks the game over TCP."""
    import gymnasium as gym
    import onnxruntime
    import torch as th
    from click.testing import CliRunner

    from tests.support.models import export_briefly
    from ue_rl.cli import cli

    class Spaces(gym.Env[Any, Any]):
        observation_space = gym.spaces.Box(-np.inf, np.inf, (6,), np.float32)
        action_space = gym.spaces.Box(-1, 1, (2,), np.float32)

    library = next(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*"), None)
    if library is None:
        pytest.skip("this onnxruntime wheel has no libonnxruntime.so of its own")
    player = program(
        CLANG, DEPLOY / "play_reach.cpp", "-I", str(STAND_INS), "-Wl,--no-as-needed", str(library.resolve())
    )
    (tmp_path / "libonnxruntime.so.1").symlink_to(library)
    model = PPO("MlpPolicy", Spaces(), n_steps=8, batch_size=8, device="cpu", policy_kwargs={"net_arch": []})
    with th.no_grad():  # a spring to the target, and a brake: no training is needed to arrive
        model.policy.action_net.weight.copy_(th.tensor([[0, 0, -2, 0, 5, 0], [0, 0, 0, -2, 0, 5]]))
    export_briefly(model, tmp_path / "spring.onnx")
    with reach(built, "--num-envs", "1") as port:
        words = ["play", tmp_path / "spring.onnx", "--port", port, "--episodes", 8, "--seed", 7]
        asked = CliRunner().invoke(cli, [*map(str, words), "--json", str(tmp_path / "asked.json")])
        assert asked.exit_code == 0, asked.output
    expected = json.loads((tmp_path / "asked.json").read_text())["episodes"]
    done = subprocess.run(
        [player, tmp_path / "spring.onnx", "8", "7"], capture_output=True, text=True, check=True, timeout=20,
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
    )  # fmt: skip
    played = [line.split() for line in done.stdout.splitlines()]
    assert [int(length) for _, length in played] == [episode["length"] for episode in expected]
    returns = [float(total) for total, _ in played]
    assert returns == pytest.approx([episode["return"] for episode in expected], abs=1e-5)
    assert min(returns) > 2  # it arrives in every episode
