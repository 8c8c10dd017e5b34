"""UnrealEnvRunner in Ray, which is not installed beside the other tests: .ci/run has a venv for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed: .ci/run runs these in a venv of their own")

import gymnasium as gym
import psutil
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.connectors.env_to_module import FlattenObservations
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

import ue_rl.plugins.rllib
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.plugins.rllib import UnrealEnvRunner
from ue_rl.system.errors import ConfigurationError, ConnectionUnusable

torch.set_num_threads(1)


def config_of(env: str, num_envs: int, kind: Any = PPOConfig, **runner: Any) -> Any:
    ue_rl.plugins.rllib.register()
    config = kind().environment("ue_rl", env_config={"env": env, "seed": 3})
    return config.env_runners(
        num_env_runners=0, num_envs_per_env_runner=num_envs, env_runner_cls=UnrealEnvRunner, **runner
    )


@pytest.fixture
def make() -> Any:
    runners: list[Any] = []

    def made(config: Any, kind: Any = UnrealEnvRunner) -> Any:
        runners.append(kind(config=config, worker_index=0))
        return runners[-1]

    yield made
    for runner in runners:
        runner.stop()


@pytest.mark.parametrize("kind", [PPOConfig, SACConfig])
def test_a_box_gets_actions_within_its_bounds(make: Any, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = make(config_of("Pendulum-v1", 3, kind))
    seen = []
    step = runner.env.unwrapped.step
    monkeypatch.setattr(runner.env.unwrapped, "step", lambda actions: (seen.append(actions), step(actions))[1])
    (episode, *_) = runner.sample(num_timesteps=60)
    assert max(np.abs(actions).max() for actions in seen) <= 2
    stored = np.asarray(episode.get_actions())
    np.testing.assert_allclose(
        np.clip(2 * stored, -2, 2), np.stack([actions[0] for actions in seen])[: len(stored)], atol=1e-5
    )


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"env_to_module_connector": lambda *_, **__: FlattenObservations()}, "connectors of its own"),
        ({"episodes_to_numpy": False}, "episodes of lists"),
        ({"episode_lookback_horizon": 3}, "episode_lookback_horizon"),
        ({"add_default_connectors_to_module_to_env_pipeline": False}, "default connectors off"),
    ],
)
def test_what_a_config_asks_of_rllibs_loop_is_not_passed_over(make: Any, said: dict[str, Any], why: str) -> None:
    runner = make(config_of("CartPole-v1", 2, **said))
    assert why in runner.why_not
    if "env_to_module_connector" in said:
        assert sum(map(len, runner.sample(num_timesteps=30))) >= 30


class Telling(DefaultPPOTorchRLModule):  # type: ignore[misc, unused-ignore]
    """Gives more than is needed, under names that an episode has, too."""

    def _forward(self, batch: Any, **given: Any) -> Any:
        out = super()._forward(batch, **given)
        logits = out["action_dist_inputs"]
        told = {"logits": logits * 2, "rewards": logits[:, 0], "obs": logits, "deep": {"er": {"logp": logits[:, 1]}}}
        return out | told


def test_whatever_a_module_gives_is_noted_and_nothing_is_written_over(make: Any) -> None:
    config = config_of("CartPole-v1", 2, gym_env_vectorize_mode="vector_entry_point")
    config.rl_module(rl_module_spec=RLModuleSpec(module_class=Telling))
    runner = make(config)
    assert runner.batched
    for episode in runner.sample(num_timesteps=60):
        logits = episode.get_extra_model_outputs("action_dist_inputs")
        assert (episode.get_rewards() == 1).all()
        assert episode.get_observations().shape == (len(episode) + 1, 4)
        assert (episode.get_extra_model_outputs("logits") == logits * 2).all()
        assert (episode.get_extra_model_outputs("rewards") == logits[:, 0]).all()
        assert (episode.get_extra_model_outputs("deep")["er"]["logp"] == logits[:, 1]).all()
    (stock, *_) = make(config, SingleAgentEnvRunner).sample(num_timesteps=60)
    assert stock.extra_model_outputs.keys() == episode.extra_model_outputs.keys()


@pytest.mark.skipif(os.name != "posix", reason="kills a process")
def test_an_engine_that_is_killed_is_started_again(make: Any) -> None:
    runner = make(config_of("CartPole-v1", 2))
    runner.sample(num_timesteps=20)
    running = psutil.Process().children(recursive=True)
    victim = next(p for p in running if "serve" in p.cmdline() and "keeper.py" not in " ".join(p.cmdline()))
    victim.kill()
    steps = sum(len(episode) for _ in range(3) for episode in runner.sample(num_timesteps=40))
    assert steps >= 120
    children = psutil.Process().children(recursive=True)
    runner.stop()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert [p for p in alive if "serve" in p.cmdline()] == []


def test_the_stock_runner_makes_new_engines(make: Any) -> None:
    config = config_of("CartPole-v1", 2, gym_env_vectorize_mode="vector_entry_point")
    config.env_runners(env_runner_cls=SingleAgentEnvRunner).fault_tolerance(restart_failed_sub_environments=True)
    runner = make(config, SingleAgentEnvRunner)
    runner.sample(num_timesteps=20)
    old = runner.env
    old.unwrapped.transport.fail("a test")
    episodes = runner.sample(num_timesteps=50)
    assert runner.env is not old
    assert sum(map(len, episodes)) >= 50


def test_beyond_the_quota_the_batched_loop_raises_what_was_wrong(make: Any) -> None:
    runner = make(config_of("CartPole-v1", 2))
    runner.sample(num_timesteps=20)
    runner.env.unwrapped.transport.fail("a test")
    with pytest.raises(ConnectionUnusable, match="a test"):
        runner.sample(num_timesteps=20)


class Counted(gym.Env[Any, Any]):
    """Its choices are 5, 6 and 7."""

    observation_space = gym.spaces.Box(0, 9, (2,), np.float32)
    action_space = gym.spaces.Discrete(3, start=5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([action, 0], np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("random_actions", [True, False])
def test_choices_that_do_not_begin_at_0(make: Any, random_actions: bool) -> None:
    with run_in_thread(GymnasiumBridge(Counted, 2)) as engine:
        config = config_of("", 2)
        config.env_config = {"url": engine.url}
        for episode in make(config).sample(num_timesteps=40, random_actions=random_actions):
            actions = episode.get_actions()
            assert set(actions.tolist()) == {0, 1, 2}  # as the learner counts them
            np.testing.assert_array_equal(episode.get_observations()[1:, 0], actions + 5)


def test_a_recording_is_refused_and_not_forgotten(make: Any, tmp_path: Path) -> None:
    config = config_of("CartPole-v1", 2).offline_data(output=str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"does not record episodes \(field output\)"):
        make(config)
