"""Wrappers, callbacks, stacked frames, named classes, noise: what a run makes of them, what it refuses by name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecEnvWrapper

from tests.support.command_line import NOT_IN_ENGINE, ok, run
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.inference import OnnxInference
from ue_rl.system.errors import ConfigurationError
from ue_rl.training import train
from ue_rl.training.config import resolve
from ue_rl.training.engine import command_of
from ue_rl.training.hosted_wrappers import hosted_wrappers, wrap_hosted
from ue_rl.training.hyperparameters import tuned_for
from ue_rl.training.models import _noise
from ue_rl.training.options import TrainOptions

ME = __name__


def test_classes_and_noise_are_named() -> None:
    given = {"activation_fn": "nn.ReLU", "optimizer_class": "th.optim.SGD", "net_arch": {"pi": [64], "vf": [32]}}
    hyper = tuned_for(resolve({"hyperparameters": {"policy_kwargs": given, "ent_coef": 1e-4}}, None))
    assert hyper["policy_kwargs"] == {
        "activation_fn": torch.nn.ReLU, "optimizer_class": torch.optim.SGD, "net_arch": {"pi": [64], "vf": [32]}
    }  # fmt: skip
    noise = _noise("normal 0.2", spaces.Box(-1, 1, (3,)))
    assert isinstance(noise, NormalActionNoise)
    assert noise().shape == (3,)


@pytest.mark.parametrize(
    ("given", "field", "cure"),
    [
        ({"activation_fn": "nn.Tanhh"}, "hyperparameters.policy_kwargs.activation_fn", "'nn.Tanh'"),
        ({"activation_fn": "os.system"}, "hyperparameters.policy_kwargs.activation_fn", "a script of yours"),
        ("dict(net_arch=[64])", "hyperparameters.policy_kwargs", "None"),
        ("__import__('os').system('true')", "hyperparameters.policy_kwargs", "None"),
    ],
)
def test_what_no_config_may_name(given: Any, field: str, cure: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve({"hyperparameters": {"policy_kwargs": given}}, None)
    assert caught.value.field == field
    assert cure in str(caught.value.cure)


def test_normalize_names_what_it_does_not_know() -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve({"normalize": {"norm_rewards": True}}, None)
    assert caught.value.field == "normalize.norm_rewards"
    assert "'norm_reward'" in str(caught.value.cure)


def test_files_of_rl_zoo_are_for_rl_zoo(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text("hyperparams: ppo.yml\n")
    with pytest.raises(ConfigurationError, match=r"docs/recipes\.md"):
        resolve({}, tmp_path / "old.yaml")
    assert "No such option" in run("train --hyperparams ppo.yml").output


# -- what stands around the env


class Shows(gym.Env[Any, Any]):
    observation_space: Any = spaces.Box(-1, 1, (2,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        return np.full(2, self._step / 10, np.float32), float(action), self._step >= 8, False, {}


class Twice(VecEnvWrapper):
    """The rewards of all envs, doubled."""

    def __init__(self, venv: Any, factor: float = 2.0) -> None:
        super().__init__(venv)
        self._factor = factor

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        obs, rewards, dones, infos = self.venv.step_wait()
        return obs, rewards * self._factor, dones, infos


class Other(Twice):
    """Shows something else."""

    def __init__(self, venv: Any) -> None:
        super().__init__(venv)
        self.observation_space = spaces.Box(-2, 2, (2,), np.float32)


class Counts(BaseCallback):
    seen: tuple[int, float] = (0, 0.0)

    def __init__(self, by: int = 1) -> None:
        super().__init__()
        self._by = by

    def _on_step(self) -> bool:
        steps, most = Counts.seen
        Counts.seen = steps + self._by, max(most, float(self.locals["rewards"].max()))
        return True


def trained(folder: Path, **options: Any) -> Any:
    with run_in_thread(GymnasiumBridge(Shows, 2)) as engine:
        hyper = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "policy_kwargs": {"net_arch": [8]}}
        given = {"url": engine.url, "log_dir": str(folder), "timesteps": 64, "hyperparameters": hyper, "device": "cpu"}
        return train(resolve({**given, **options}, None)).run


def test_callbacks_wrappers_and_stacked_frames(tmp_path: Path) -> None:
    """Each is there, the ONNX file takes the stacked frames, and `play` stacks them, too."""
    Counts.seen = 0, 0.0
    run = trained(
        tmp_path, run_id="a", frame_stack=3, env_wrapper=[{f"{ME}.Twice": {"factor": 5}}], normalize=True,
        callback=[f"{ME}:Counts", {f"{ME}:Counts": {"by": 10}}],
    )  # fmt: skip
    assert Counts.seen[0] == 11 * 32
    model = PPO.load(run.model)
    assert model.observation_space.shape == (6,)
    assert OnnxInference(run.onnx).obs_size == 6
    with run_in_thread(GymnasiumBridge(Shows, 1)) as engine:
        assert "length 8.0" in ok("play --episodes 2", run.path, engine.url)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"env_wrapper": f"{ME}:Other"}, "Other changes the spaces, and is not in model.onnx"),
        ({"env_wrapper": f"{ME}:Nothing"}, "cannot be loaded"),
        ({"env_wrapper": "gymnasium.wrappers:TimeLimit"}, "a game's"),
        ({"env_wrapper": {f"{ME}:Twice": {"by": 1}}}, "does not take these arguments"),
        ({"callback": f"{ME}:Shows"}, "not a callback"),
        ({"callback": {f"{ME}:Counts": {"nothing": 1}}}, "does not take these arguments"),
    ],
)
def test_what_cannot_stand_around_the_env_is_named(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        if "TimeLimit" in str(options):
            hosted_wrappers(TrainOptions(engine="x", **options))
        trained(tmp_path, **options)
    assert not list(tmp_path.glob("*/")), "no folder is left"


def test_wrappers_of_hosted_envs() -> None:
    named = {"gymnasium.wrappers:TimeLimit": {"max_episode_steps": 3}}
    words = command_of(TrainOptions(env="CartPole-v1", env_wrapper=[named, "gymnasium.wrappers.Autoreset"]))
    at = [number for number, word in enumerate(words) if word == "--env-wrapper"]
    given = [words[number + 1] for number in at]
    assert (json.loads(given[0]), given[1]) == (named, "gymnasium.wrappers:Autoreset")
    env = wrap_hosted(Shows(), [("gymnasium.wrappers:TimeLimit", {"max_episode_steps": 3})])
    env.reset()
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]


def test_a_hosted_env_is_wrapped_where_only_gymnasium_is_installed() -> None:
    code = """
import sys
sys.modules.update(dict.fromkeys({lacking}))
import gymnasium
from ue_rl.training.hosted_wrappers import wrap_hosted
env = wrap_hosted(gymnasium.make("CartPole-v1"), [("gymnasium.wrappers:TimeLimit", {{"max_episode_steps": 1}})])
env.reset(seed=0)
print(env.step(0)[3])
"""
    code = code.format(lacking=[name for name in NOT_IN_ENGINE if name != "gymnasium"])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_rewards_alone_are_normalised_and_exported(tmp_path: Path) -> None:
    run = trained(tmp_path, run_id="a", normalize={"norm_obs": False}, timesteps=32)
    assert OnnxInference(run.onnx).obs_size == 2
