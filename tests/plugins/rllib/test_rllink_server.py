"""RLlink's client against RLlib's own servers; rllink_against_ray.py is the long form, with learning."""

from __future__ import annotations

import threading
from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is not installed: .ci/run runs these in a venv of their own")

import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig

from tests.plugins.rllib.rllink_against_ray import server_of, verdict
from ue_rl.bridges import GymnasiumBridge
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.plugins.rllib.rllink.client import RLlinkClient

torch.set_num_threads(1)


pytestmark = pytest.mark.usefixtures("cluster")
PPO = {"train_batch_size_per_learner": 300, "num_epochs": 2, "minibatch_size": 100}
SAC = {"num_steps_sampled_before_learning_starts": 200, "train_batch_size_per_learner": 32}


@pytest.mark.parametrize(
    ("kind", "training", "env", "num_envs"),
    [(PPOConfig, PPO, "CartPole-v1", 4), (PPOConfig, PPO, "Pendulum-v1", 3), (SACConfig, SAC, "Pendulum-v1", 2)],
)
def test_every_episode_is_right_by_rllibs_own_module(
    kind: Any, training: dict[str, Any], env: str, num_envs: int
) -> None:
    algorithm = server_of(kind, env, **training)
    server, seen, returns = algorithm.env_runner, [], []

    def play() -> None:
        with RLlinkClient(MemoryTransport(GymnasiumBridge(env, num_envs)), port=server.port, timeout=60) as client:
            client.run(samples=6, on_sample=lambda sample: (seen.append(sample.seq), returns.extend(sample.returns))[0])

    player = threading.Thread(target=play, daemon=True)
    player.start()
    while player.is_alive():  # an iteration of SAC is several messages
        results = algorithm.train()["env_runners"]
        if server.judge.mistakes or len(server.seen) > 6:
            break
    player.join(30)
    algorithm.stop()
    assert verdict(server) == []
    assert server.steps >= (6 * 300 if kind is PPOConfig else 200)
    assert seen == (list(range(6)) if kind is PPOConfig else server.seen[:6])
    assert sorted(returns) == pytest.approx(sorted(total for total, _ in server.judge.finished), rel=1e-4)
    late = server.steps - results["num_env_steps_sampled_lifetime"]  # SAC's last message may come behind its last count
    assert 0 <= late <= (0 if kind is PPOConfig else 20)
    if env == "CartPole-v1":
        assert results["episode_return_mean"] > 9
