"""Engines with agents as MultiAgentEnvs: RLlib's own runner and PPO over them."""

from __future__ import annotations

import importlib
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed: .ci/run runs these in a venv of their own")

import gymnasium as gym
import psutil
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.tune.registry import register_env

import ue_rl.plugins.rllib
from tests.plugins.rllib.walkers import Walkers
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.trust.files import trusting

torch.set_num_threads(1)

ENGINE = f"{shlex.quote(sys.executable)} {shlex.quote(str(Path(__file__).with_name('walkers.py')))} --port {{port}}"
GROUPS = ("walker", "judge")


class InProcess(MultiAgentEnv):  # type: ignore[misc, unused-ignore]
    """The same equations, as one writes a MultiAgentEnv by hand."""

    def __init__(self, _: Any = None) -> None:
        self.possible_agents = ["walker_0", "walker_1", "walker_2", "judge"]
        self.agents = list(self.possible_agents)
        super().__init__()
        far = np.inf
        self.observation_spaces = {
            name: gym.spaces.Box(-far, far, (4 if name == "judge" else 2,), np.float32) for name in self.agents
        }
        self.action_spaces = {
            name: gym.spaces.Discrete(2) if name == "judge" else gym.spaces.Box(-1, 1, (1,), np.float32)
            for name in self.agents
        }
        self.world = Walkers()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.world.reset(seed)
        return self.world.observe(), {}

    def step(self, action_dict: Any) -> Any:
        self.world.step(action_dict)
        results, seen = self.world.results(), self.world.observe()
        over = all(terminated or truncated for _, terminated, truncated in results.values())
        cut = over and any(truncated for _, _, truncated in results.values())
        terminateds = {name: terminated for name, (_, terminated, _) in results.items()}
        rewards = {name: reward for name, (reward, _, _) in results.items()}
        seen = {name: obs for name, obs in seen.items() if name in rewards or not over}
        return seen, rewards, {**terminateds, "__all__": over and not cut}, {"__all__": cut}, {}


def config_of(env: str, num_envs: int = 1) -> Any:
    ue_rl.plugins.rllib.register()
    register_env("in_process", InProcess)
    return (
        PPOConfig()
        .environment(env, env_config={"engine": ENGINE} if env == "ue_rl_agents" else {})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=num_envs)
        .multi_agent(policies=set(GROUPS), policy_mapping_fn=ue_rl.plugins.rllib.by_group(*GROUPS))
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[16]))
        .training(train_batch_size_per_learner=200, minibatch_size=100, num_epochs=2)
        .debugging(seed=3)
    )


def sampled(env: str, steps: int) -> list[Any]:
    """The episodes of RLlib's runner, with the same weights for every env."""
    runner: Any = MultiAgentEnvRunner(config=config_of(env, 2), worker_index=0)
    try:
        torch.manual_seed(5)
        for group in GROUPS:
            with torch.no_grad():
                for weights in runner.module[group].parameters():
                    weights.normal_(std=0.1)
        return [episode for _ in range(3) for episode in runner.sample(num_timesteps=steps, explore=True)]
    finally:
        runner.stop()


def test_episodes_are_those_of_the_env_in_process() -> None:
    ours, theirs = (sampled(env, 60) for env in ("ue_rl_agents", "in_process"))
    assert len(ours) == len(theirs)
    assert sum(episode.is_done for episode in ours) > 8
    seen: dict[str, set[tuple[bool, bool]]] = {}
    for mine, own in zip(ours, theirs, strict=True):
        assert (mine.is_terminated, mine.is_truncated) == (own.is_terminated, own.is_truncated)
        assert set(mine.agent_episodes) == set(own.agent_episodes)
        for name, a in mine.agent_episodes.items():
            b = own.agent_episodes[name]
            assert (a.is_terminated, a.is_truncated, len(a)) == (b.is_terminated, b.is_truncated, len(b))
            seen.setdefault(name, set()).add((a.is_terminated, a.is_truncated))
            for get in ("get_observations", "get_actions", "get_rewards"):
                np.testing.assert_array_equal(np.asarray(getattr(a, get)()), np.asarray(getattr(b, get)()))
    assert set(seen) == {"walker_0", "walker_1", "walker_2", "judge"}
    assert {(True, False), (False, True)} <= set().union(*seen.values())


def test_an_engine_that_is_killed_is_started_again() -> None:
    runner: Any = MultiAgentEnvRunner(config=config_of("ue_rl_agents"), worker_index=0)
    try:
        runner.sample(num_timesteps=5)
        running = psutil.Process().children(recursive=True)
        next(p for p in running if p.cmdline()[-2:-1] == ["--port"] and "keeper.py" not in " ".join(p.cmdline())).kill()
        episodes = runner.sample(num_timesteps=60)
        assert sum(len(episode) for episode in episodes) >= 60
        assert any(episode.is_truncated and episode.env_t < 12 for episode in episodes)
    finally:
        runner.stop()


@pytest.mark.timeout(180)
def test_ppo_learns_a_policy_for_each_group(cluster: None, tmp_path: Path) -> None:
    algorithm = config_of("ue_rl_agents").build_algo()
    try:
        before = algorithm.get_weights()["walker"]["pi.net.mlp.0.weight"].copy()
        for _ in range(2):
            result = algorithm.train()
        assert result["num_env_steps_sampled_lifetime"] >= 400
        assert {"walker", "judge"} <= set(result["env_runners"]["module_episode_returns_mean"])
        assert not np.array_equal(before, algorithm.get_weights()["walker"]["pi.net.mlp.0.weight"])
        algorithm.save_to_path(tmp_path / "saved")
        if importlib.util.find_spec("onnxruntime"):
            with trusting():
                report = ue_rl.plugins.rllib.load_and_export_rl_module(tmp_path / "saved", policy="judge")
            assert (report.path, report.metadata.obs_size) == (tmp_path / "saved.onnx", 4)
            assert report.metadata.action_space == {"type": "Discrete", "n": 2, "start": 0}
    finally:
        algorithm.stop()


def test_groups_are_told_by_the_agents_names() -> None:
    policy_of = ue_rl.plugins.rllib.by_group("team", "team_b", "goalie")
    assert [policy_of(name, None) for name in ("team_0", "team_b_1", "goalie", "team_b")] == [
        "team",
        "team_b",
        "goalie",
        "team_b",
    ]
    with pytest.raises(ConfigurationError, match=r"of none of the groups.*judge"):
        policy_of("judge", None)


def test_an_engine_without_agents_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="one env with agents"):
        ue_rl.plugins.rllib.engines.make_agents_env({"env": "CartPole-v1"})
