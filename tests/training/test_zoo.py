"""RL Zoo's files, wrappers, callbacks and stacked frames: what a run makes of them, and what it refuses by name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
import yaml
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecEnvWrapper

from tests.support.command_line import ok
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.errors import ConfigurationError, UntrustedFile
from ue_rl.inference import OnnxInference
from ue_rl.security.trust import trusting
from ue_rl.training import expressions, train
from ue_rl.training.config import resolve
from ue_rl.training.engine import command_of
from ue_rl.training.hyperparameters import tuned_for
from ue_rl.training.models import _noise
from ue_rl.training.named import hosted_wrappers, wrap_hosted
from ue_rl.training.options import TrainOptions

ME = __name__
ZOO = """
defaults: &defaults
  n_timesteps: !!float 1e6
  policy: MlpPolicy
CartPole-v1:
  <<: *defaults
  n_envs: 4
  n_timesteps: !!float 2e5
  normalize: "dict(norm_obs=True, norm_reward=False)"
  n_steps: 32
  learning_rate: lin_0.001
  ent_coef: 1e-4
  policy_kwargs: "dict(
                    log_std_init=-2,
                    activation_fn=nn.ReLU,
                    net_arch=dict(pi=[64, 32], vf=[64])
                  )"
  frame_stack: 2
  env_wrapper:
    - gymnasium.wrappers.TimeLimit:
        max_episode_steps: 100
  callback: stable_baselines3.common.callbacks.ProgressBarCallback
Pendulum-v1:
  noise_type: normal
  noise_std: 0.2
  train_freq: [1, "episode"]
"""


@pytest.fixture
def ppo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = tmp_path / "ppo.yml"
    path.write_text(ZOO)
    return path


def test_a_section_of_rl_zoo_is_a_run(ppo: Path) -> None:
    given = {"hyperparams": str(ppo), "timesteps": 999, "hyperparameters": {"n_steps": 64}}
    with pytest.raises(UntrustedFile, match="TimeLimit"):  # it imports modules
        resolve(given, None)
    with trusting():
        options = resolve(given, None)
    assert (options.algo, options.num_envs, options.timesteps, options.policy) == ("ppo", 4, 999, "MlpPolicy")
    assert options.normalize == {"norm_obs": True, "norm_reward": False}
    assert (options.frame_stack, options.hyperparams) == (2, None)
    assert options.env_wrapper == [{"gymnasium.wrappers.TimeLimit": {"max_episode_steps": 100}}]
    assert options.callback == ["stable_baselines3.common.callbacks.ProgressBarCallback"]
    again = resolve({}, None, base=yaml.safe_load(options.as_yaml()))
    assert again == options, "config.yaml says it all"
    hyper = tuned_for(options)
    assert (hyper["n_steps"], hyper["ent_coef"], hyper["learning_rate"](0.5)) == (64, 1e-4, 0.0005)
    assert hyper["policy_kwargs"] == {
        "log_std_init": -2, "activation_fn": torch.nn.ReLU, "net_arch": {"pi": [64, 32], "vf": [64]}
    }  # fmt: skip


def test_noise_and_goals(tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text(ZOO.replace("defaults: &defaults", "x: &defaults"))
    options = resolve({"algo": "sac", "env": "Pendulum-v1", "hyperparams": str(path)}, None)
    assert tuned_for(options) == {"action_noise": "normal 0.2", "train_freq": (1, "episode")}
    noise = _noise("normal 0.2", spaces.Box(-1, 1, (3,)))
    assert isinstance(noise, NormalActionNoise)
    assert noise().shape == (3,)
    path.write_text(
        'game: {replay_buffer_class: HerReplayBuffer, replay_buffer_kwargs: "dict(n_sampled_goal=4, '
        "goal_selection_strategy='future')\"}"
    )
    options = resolve({"algo": "sac", "engine": "./Other.sh {port}", "hyperparams": str(path)}, None)
    assert options.her == {"n_sampled_goal": 4, "goal_selection_strategy": "future"}, "the only section, for a game"


@pytest.mark.parametrize(
    ("line", "field", "cure"),
    [
        ("n_env: 4", "hyperparams.n_env", "'n_envs'"),
        ("n_step: 4", "hyperparams.n_step", "'n_steps'"),
        ("noise_type: normale", "hyperparams.noise_type", "'normal'"),
        ("policy_kwargs: dict(activation_fn=nn.Tanhh)", "hyperparams.policy_kwargs", "'nn.Tanh'"),
        ("policy_kwargs: dict(x=open('/etc/passwd').read())", "hyperparams.policy_kwargs", "write the value itself"),
        ("policy_kwargs: dict(", "hyperparams.policy_kwargs", "never closed"),
        ("replay_buffer_class: Mine", "hyperparams.replay_buffer_class", "leave it out"),
        ("normalize: dict(norm_rewards=True)", "normalize.norm_rewards", "'norm_reward'"),
    ],
)
def test_what_is_unknown_is_named(tmp_path: Path, line: str, field: str, cure: str) -> None:
    path = tmp_path / "ppo.yml"
    path.write_text(f"CartPole-v1:\n  {line}\n")
    with pytest.raises(ConfigurationError) as caught:
        resolve({"hyperparams": str(path)}, None)
    assert caught.value.field == field
    assert cure in str(caught.value.cure)


def test_a_task_without_a_section_is_named(ppo: Path) -> None:
    with pytest.raises(ConfigurationError, match="Did you mean 'CartPole-v1'"):
        resolve({"hyperparams": str(ppo), "env": "CartPole-v0"}, None)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "dict(**{})", "[x for x in (1,)]", "nn.Module", "(lambda: 1)()",
        "1 if 1 else 2", "torch.load", "dict(a=1)['a']", "f'{1}'", "nn.Tanh()", "{**{}}", "10 ** 10 ** 10",
        "b'x'", "(" * 300,
    ],
)  # fmt: skip
def test_an_expression_is_never_run(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        expressions.read(text, "here")
    assert caught.value.field == "here"


def test_what_an_expression_may_be() -> None:
    text = "dict(a=[1, -2.5, None, True], b={'c': (1, 'x')}, d=th.optim.Adam, e=torch.nn.Tanh, f=NatureCNN)"
    read = expressions.read(text, "here")
    assert read["a"] == [1, -2.5, None, True]
    assert read["b"] == {"c": (1, "x")}
    assert (read["d"], read["e"], read["f"].__name__) == (torch.optim.Adam, torch.nn.Tanh, "NatureCNN")


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
        hyper = {"n_steps": 16, "batch_size": 16, "n_epochs": 1}
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


def test_rewards_alone_are_normalised_and_exported(tmp_path: Path) -> None:
    run = trained(tmp_path, run_id="a", normalize={"norm_obs": False})
    assert OnnxInference(run.onnx).obs_size == 2
