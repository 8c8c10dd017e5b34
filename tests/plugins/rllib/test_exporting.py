"""ONNX files of RLModules: RLlib's default ones with large random weights, some of one's own, and those refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed: .ci/run runs these in a venv of their own")
pytest.importorskip("onnxruntime", reason="ONNX files need the extra train beside rllib")

import gymnasium as gym
import onnx
import torch
from click.testing import CliRunner
from gymnasium import spaces
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchSquashedGaussian
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule, MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule
from ray.rllib.utils.spaces.space_utils import clip_action, unsquash_action

from ue_rl.cli import cli
from ue_rl.inference import OnnxInference
from ue_rl.plugins.rllib import export_rl_module
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import ExportError

torch.set_num_threads(1)

OBS = spaces.Box(-np.inf, np.inf, (5,), np.float32)
BOX = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 5], np.float32))
SMALL = {"fcnet_hiddens": [16, 16]}
CHOICES = spaces.Discrete(4)


def module_of(config: Any, action_space: Any, observation_space: Any = OBS, **model: Any) -> Any:
    """RLlib's default module, with weights that move the actions."""
    made = config.rl_module(model_config=DefaultModelConfig(**{**SMALL, **model}))
    spec: RLModuleSpec = made.get_default_rl_module_spec()
    spec.observation_space, spec.action_space, spec.model_config = observation_space, action_space, made.model_config
    torch.manual_seed(1)
    module = spec.build()
    with torch.no_grad():
        for weights in module.parameters():
            weights.normal_(std=0.5)
    return module


def export(module: Any, path: Path, space: Any, seen: Any = OBS, **how: Any) -> Any:
    return export_rl_module(module, path, seen, space, **{"normalize_actions": True, "clip_actions": False, **how})


def actions_of(module: Any, obs: Any, space: Any, *, normalize: bool = True, clip: bool = False) -> Any:
    """What RLlib sends to an env with explore=False; a squashed mean behind its tanh."""
    with torch.no_grad():
        out = module.forward_inference({Columns.OBS: torch.from_numpy(obs)})
    if Columns.ACTIONS not in out:
        how = module.get_inference_action_dist_cls().from_logits(out[Columns.ACTION_DIST_INPUTS])
        found = how.to_deterministic().sample()
        out = {Columns.ACTIONS: torch.tanh(found) if isinstance(how, TorchSquashedGaussian) else found}
    actions = out[Columns.ACTIONS].numpy()
    actions = unsquash_action(actions, space) if normalize else clip_action(actions, space) if clip else actions
    return np.asarray(actions, np.float32).reshape(len(obs), -1)


CASES = {
    "ppo box": (PPOConfig, BOX, {}),
    "ppo one number": (PPOConfig, spaces.Box(-2, 2, (1,), np.float32), {}),
    "ppo free deviations": (PPOConfig, BOX, {"free_log_std": True}),
    "ppo shared": (PPOConfig, BOX, {"vf_share_layers": True, "head_fcnet_hiddens": [8], "fcnet_activation": "swish"}),
    "ppo discrete": (PPOConfig, spaces.Discrete(7), {}),
    "ppo multi discrete": (PPOConfig, spaces.MultiDiscrete([3, 2, 5]), {}),
    "appo": (APPOConfig, BOX, {}),
    "impala": (IMPALAConfig, CHOICES, {}),
    "sac": (SACConfig, BOX, {}),
    "sac discrete": (SACConfig, CHOICES, {}),
    "dqn dueling": (DQNConfig, CHOICES, {}),
    "dqn": (lambda: DQNConfig().training(dueling=False), CHOICES, {}),
    "dqn of distributions": (lambda: DQNConfig().training(num_atoms=11, v_min=-5, v_max=5), CHOICES, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_default_modules(case: str, tmp_path: Path) -> None:
    config, space, model = CASES[case]
    module = module_of(config(), space, **model)
    module.train()
    before = copy.deepcopy(module.state_dict())
    report = export(module, tmp_path / "model.onnx", space, algorithm="ALGO", num_timesteps=77)
    policy = OnnxInference(report.path)
    rng = np.random.default_rng(2)
    for rows in (1, 3, 100):
        obs = rng.normal(scale=2, size=(rows, 5)).astype(np.float32)
        actions, wanted = policy.run_inference(obs), actions_of(module, obs, space)
        assert actions.dtype == np.float32
        assert np.abs(actions - wanted).max() <= (1e-5 * 5 if isinstance(space, spaces.Box) else 0)
    assert len(np.unique(policy.run_inference(rng.normal(size=(300, 5)).astype(np.float32)))) > 2
    assert module.training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    said = policy.metadata
    assert said is not None
    assert (said.algorithm, said.num_timesteps, said.policy) == ("ALGO", 77, type(module).__name__)
    assert (said.inputs[0].name, said.outputs[0].name) == ("obs", "actions")
    assert "ray" in said.versions
    (actions,) = onnx.load(str(report.path)).graph.output
    assert actions.type.tensor_type.shape.dim[1].dim_value == said.act_size
    assert "forward_inference()" in str(report)


@pytest.mark.parametrize("tolerance", [2e-5, 1e-3])
def test_the_file_is_compared_within_the_tolerance_that_is_asked_for(tolerance: float, tmp_path: Path) -> None:
    module = module_of(PPOConfig(), BOX)
    report = export(module, tmp_path / "model.onnx", BOX, tolerance=tolerance)
    assert report.metadata.verification is not None
    assert report.metadata.verification["tolerance"] == tolerance


@pytest.mark.parametrize(("normalize", "clip"), [(True, True), (False, True), (False, False)])
@pytest.mark.parametrize("bounded", [True, False])
def test_actions_are_stretched_or_cut_as_rllib_does(normalize: bool, clip: bool, bounded: bool, tmp_path: Path) -> None:
    space = BOX if bounded else spaces.Box(np.array([-np.inf, -1], np.float32), np.array([0.5, 1], np.float32))
    module = module_of(PPOConfig(), space)
    path = tmp_path / "model.onnx"
    export(module, path, space, normalize_actions=normalize, clip_actions=clip)
    obs = np.random.default_rng(2).normal(scale=3, size=(200, 5)).astype(np.float32)
    wanted = actions_of(module, obs, space, normalize=normalize, clip=clip)
    np.testing.assert_allclose(OnnxInference(path).run_inference(obs), wanted, atol=1e-4, rtol=1e-5)
    raw = actions_of(module, obs, space, normalize=False)
    assert (wanted != raw).any() == (bounded if normalize else clip)


def test_choices_count_as_the_engine_counts(tmp_path: Path) -> None:
    space = spaces.Discrete(4, start=-3)
    module = module_of(PPOConfig(), space)
    export(module, tmp_path / "model.onnx", space)
    obs = np.random.default_rng(2).normal(size=(50, 5)).astype(np.float32)
    found = OnnxInference(tmp_path / "model.onnx").run_inference(obs)
    np.testing.assert_array_equal(found, actions_of(module, obs, space) - 3)


def test_images(tmp_path: Path) -> None:
    seen = spaces.Box(-1, 1, (8, 8, 3), np.float32)
    module = module_of(PPOConfig(), CHOICES, seen, conv_filters=[[4, 4, 2], [8, 4, 2]])
    path = tmp_path / "model.onnx"
    export(module, path, CHOICES, seen)
    obs = np.random.default_rng(2).uniform(-1, 1, (9, 8, 8, 3)).astype(np.float32)
    np.testing.assert_array_equal(OnnxInference(path).run_inference(obs), actions_of(module, obs, CHOICES))


class Own(TorchRLModule):
    """A module of somebody's own: a Dict goes in, an action comes out."""

    def setup(self) -> None:
        self.net = torch.nn.Linear(5, 2)

    def _forward(self, batch: Any, **_: Any) -> Any:
        obs = batch[Columns.OBS]
        return {Columns.ACTIONS: torch.tanh(self.net(torch.cat([obs["place"], obs["speed"]], dim=1)))}


class Deciding(Own):
    """Python decides by the observation."""

    def _forward(self, batch: Any, **_: Any) -> Any:
        obs = batch[Columns.OBS]
        return {Columns.ACTIONS: self.net(obs if float(obs.sum()) > 1 else -obs)}


class Guessing(Own):
    """Not the same twice."""

    def _forward(self, batch: Any, **_: Any) -> Any:
        return {Columns.ACTIONS: self.net(batch[Columns.OBS]) + torch.rand(1)}


class Silent(Own):
    """No action."""

    def _forward(self, batch: Any, **_: Any) -> Any:
        return {Columns.EMBEDDINGS: batch[Columns.OBS]}


def own(kind: Any, observation_space: Any = OBS, action_space: Any = BOX) -> Any:
    return kind(observation_space=observation_space, action_space=action_space, model_config={})


def test_a_module_of_ones_own_with_a_dict(tmp_path: Path) -> None:
    parts: dict[str, Any] = {"place": spaces.Box(-1, 1, (3,), np.float32), "speed": spaces.Box(-9, 9, (2,), np.float32)}
    seen = spaces.Dict(parts)
    module = own(Own, seen)
    rows = {key: np.stack([part.sample() for _ in range(20)]) for key, part in parts.items()}
    with torch.no_grad():
        out = module.forward_inference({Columns.OBS: {key: torch.from_numpy(part) for key, part in rows.items()}})
    wanted = unsquash_action(out[Columns.ACTIONS].numpy(), BOX)
    for flat in (False, True):
        path = tmp_path / f"{flat}.onnx"
        export(module, path, BOX, seen, flat_input=flat)
        np.testing.assert_allclose(OnnxInference(path).run_inference(rows), wanted, atol=1e-5)


def test_the_one_module_of_many(tmp_path: Path) -> None:
    one = RLModuleSpec(
        module_class=type(module_of(PPOConfig(), BOX)),
        observation_space=OBS,
        action_space=BOX,
        model_config=DefaultModelConfig(),
    )
    for names in (["p0"], ["p0", "p1"]):
        whole: MultiRLModule = MultiRLModuleSpec(rl_module_specs={name: copy.deepcopy(one) for name in names}).build()
        if len(names) == 1:
            export(whole, tmp_path / "a.onnx", BOX)
            continue
        with pytest.raises(ExportError, match=r"a file holds one module.*p0, p1"):
            export(whole, tmp_path / "b.onnx", BOX)


def test_names_of_the_handshake(tmp_path: Path) -> None:
    module, path = module_of(PPOConfig(), CHOICES), tmp_path / "model.onnx"
    spec = EnvSpec(num_envs=1, obs_size=5, act_size=1, obs_names=tuple("abcde"))
    assert export(module, path, CHOICES, spec=spec).metadata.obs_names == tuple("abcde")
    with pytest.raises(ExportError, match="engine's sizes are not the model's"):
        export(module, path, CHOICES, spec=EnvSpec(num_envs=1, obs_size=6, act_size=1))


@pytest.mark.parametrize(
    ("make", "observation_space", "action_space", "said"),
    [
        (lambda: module_of(PPOConfig(), BOX, use_lstm=True), OBS, BOX, "with a state cannot be exported.*use_lstm"),
        (lambda: own(Deciding), OBS, BOX, "control flow.*torch.where"),
        (lambda: own(Guessing), OBS, BOX, "differently"),
        (lambda: own(Silent), OBS, BOX, "gives no action"),
        (lambda: own(Own), OBS, BOX, "fails on observations of zeros"),
        (lambda: module_of(PPOConfig(), BOX), spaces.Discrete(3), BOX, "observations cannot be exported"),
        (lambda: module_of(PPOConfig(), BOX), OBS, spaces.MultiBinary(2), "actions cannot be exported"),
        (lambda: module_of(PPOConfig(), BOX), spaces.Box(-1, 1, (6,)), BOX, "made for other spaces"),
        (object, OBS, BOX, "not an RLModule"),
    ],
)
def test_what_is_refused(make: Any, observation_space: Any, action_space: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"before")
    with pytest.raises(ExportError, match=f"(?s){said}"):
        export(make(), path, action_space, observation_space)
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]
    assert path.read_bytes() == b"before"


def test_weights_that_are_no_numbers(tmp_path: Path) -> None:
    module = module_of(PPOConfig(), CHOICES)
    with torch.no_grad():
        next(module.pi.parameters()).fill_(torch.nan)
    with pytest.raises(ExportError, match="NaN"):
        export(module, tmp_path / "a.onnx", CHOICES)


@pytest.mark.parametrize(("env_id", "config"), [("CartPole-v1", DQNConfig), ("Pendulum-v1", PPOConfig)])
def test_play_has_the_returns_of_the_module(env_id: str, config: Any, tmp_path: Path) -> None:
    pytest.importorskip("rich", reason="commands need the extra train beside rllib")
    env: Any = gym.make(env_id)
    module = module_of(config(), env.action_space, env.observation_space)
    export(module, tmp_path / "model.onnx", env.action_space, env.observation_space)
    returns = []
    for seed in (5, None):
        obs, over, total = env.reset(seed=seed)[0], False, 0.0
        while not over:
            action = actions_of(module, obs[None], env.action_space)[0]
            obs, reward, terminated, truncated, _ = env.step(
                action if isinstance(env.action_space, spaces.Box) else int(action[0])
            )
            over, total = terminated or truncated, total + float(reward)
        returns.append(total)
    words = ["play", str(tmp_path / "model.onnx"), "--env", env_id, "--episodes", "2", "--seed", "5"]
    result = CliRunner().invoke(cli, [*words, "--json", str(tmp_path / "out.json")])
    assert result.exit_code == 0, result.output
    played = json.loads((tmp_path / "out.json").read_text())["episodes"]
    np.testing.assert_allclose([episode["return"] for episode in played], returns, rtol=1e-4)
