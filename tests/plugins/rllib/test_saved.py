"""ue-rl export and play with what RLlib saves: runs, checkpoints, and folders that are neither."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed: .ci/run runs these in a venv of their own")
pytest.importorskip("onnxruntime", reason="ONNX files need the extra train beside rllib")
pytest.importorskip("rich", reason="commands need the extra train beside rllib")

import torch
from click.testing import CliRunner
from gymnasium import spaces
from ray import cloudpickle
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.connectors.env_to_module import FlattenObservations
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.utils.spaces.space_utils import clip_action

from ue_rl.cli import cli
from ue_rl.inference import OnnxInference
from ue_rl.protocol.spaces.actions import ActionSpec
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.handshake import encode_handshake
from ue_rl.system.errors import UntrustedFile
from ue_rl.training.saving.checkpoints import CheckpointStore

torch.set_num_threads(1)

OBS = spaces.Box(-8, 8, (3,), np.float32)
ACT = spaces.Box(-2, 2, (1,), np.float32)


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def saved(folder: Path, *policies: str, config: Any = None) -> Any:
    """A module in the layout of Algorithm.save_to_path, by RLlib's own writers; without a cluster."""
    config = config or PPOConfig()
    config.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[8]))
    spec: RLModuleSpec = config.get_default_rl_module_spec()
    spec.observation_space, spec.action_space, spec.model_config = OBS, ACT, config.model_config
    policies = policies or ("default_policy",)
    module = MultiRLModuleSpec(rl_module_specs=dict.fromkeys(policies, spec)).build()
    with torch.no_grad():
        for name in policies:
            for weights in module[name].parameters():
                weights.normal_(std=0.5)
    module.save_to_path(folder / "learner_group" / "learner" / "rl_module")
    made = {"class": PPO, "ctor_args_and_kwargs": ((config.get_state(),), {})}  # see Algorithm.get_ctor_args_and_kwargs
    (folder / "class_and_ctor_args.pkl").write_bytes(cloudpickle.dumps(made))
    return module


@pytest.fixture
def a_run(tmp_path: Path) -> Path:
    """RUN, with two checkpoints."""
    folder = tmp_path / "ppo-Pendulum-v1-1"
    folder.mkdir()
    action = ActionSpec.box(1, -2, 2)
    spec = EnvSpec(num_envs=4, obs_size=3, act_size=1, action=action, obs_names=("x", "y", "speed"))
    (folder / "handshake.txt").write_bytes(encode_handshake(spec))
    for steps in (100, 200):

        def write(at: Path) -> dict[str, object]:
            saved(at / "algorithm")
            return {"backend": "rllib"}

        CheckpointStore(folder / "checkpoints").save(steps, write)
    return folder


def test_a_run_is_exported_and_played(a_run: Path) -> None:
    refused = run("play", a_run, "--env", "Pendulum-v1")
    assert refused.exit_code != 0
    assert "ue-rl export" in str(refused.exception)
    result = run("export", a_run)
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.replace("│", " ").split())
    assert "PPO, 3 -> 1 numbers" in said
    assert "with forward_inference()" in said
    assert "x, y, speed" in said
    metadata = OnnxInference(a_run / "model.onnx").metadata
    assert metadata is not None
    assert metadata.num_timesteps == 200
    result = run("play", a_run, "--env", "Pendulum-v1", "--episodes", 1, "--json", a_run / "out.json")
    assert result.exit_code == 0, result.output
    assert json.loads((a_run / "out.json").read_text())["episodes"][0]["length"] == 200


def test_a_checkpoint_is_exported_beside_it(a_run: Path) -> None:
    first, last = sorted((a_run / "checkpoints").glob("*_steps"))
    assert run("export", first).exit_code == 0
    metadata = OnnxInference(first.with_name(f"{first.name}.onnx")).metadata
    assert metadata is not None
    assert metadata.num_timesteps == 100
    newest = CheckpointStore(a_run / "checkpoints").last
    assert newest is not None
    assert newest.path == last


def test_what_rllib_wrote_by_itself(tmp_path: Path) -> None:
    config = PPOConfig().environment(normalize_actions=False, clip_actions=True)
    module = saved(tmp_path / "mine", "red", "blue", config=config)
    refused = run("export", tmp_path / "mine")
    assert isinstance(refused.exception, UntrustedFile)  # pickles throughout
    refused = run("export", tmp_path / "mine", "--trust")
    assert refused.exit_code != 0
    assert "blue, red" in str(refused.exception)
    assert "--policy" in str(refused.exception)
    assert run("export", tmp_path / "mine", "--policy", "blue", "--trust").exit_code == 0
    obs = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    with torch.no_grad():
        mean = module["blue"].forward_inference({"obs": torch.from_numpy(obs)})["action_dist_inputs"][:, :1].numpy()
    found = OnnxInference(tmp_path / "mine.onnx").run_inference(obs)
    np.testing.assert_allclose(found, clip_action(mean, ACT), atol=2e-5)


def test_what_cannot_be_exported_is_said(tmp_path: Path) -> None:
    own = PPOConfig().env_runners(env_to_module_connector=lambda *_, **__: FlattenObservations())
    saved(tmp_path / "connected", config=own)
    saved(tmp_path / "broken")
    (tmp_path / "broken" / "class_and_ctor_args.pkl").write_bytes(b"no pickle")
    saved(tmp_path / "weights")
    next((tmp_path / "weights").rglob("default_policy/module_state.pkl")).write_bytes(b"no pickle")
    (tmp_path / "empty").mkdir()
    for name, words, said in (
        ("connected", (), "a connector of its own"),
        ("broken", (), "cannot be read"),
        ("weights", (), "cannot be read"),
        ("weights", ("--stochastic",), "not for a checkpoint of RLlib's"),
        ("empty", (), "no model in this folder"),
    ):
        refused = run("export", tmp_path / name, "--trust", *words)
        assert refused.exit_code != 0
        assert said in str(refused.exception), name
    assert not list(tmp_path.glob("*.onnx"))
