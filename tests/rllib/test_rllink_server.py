"""RLlink's client against RLlib's own PPO server; rllink_against_ray.py is the long form, with learning."""

from __future__ import annotations

import threading
from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is not installed: .ci/run runs these in a venv of their own")

import ray
import torch

from tests.rllib.rllink_against_ray import ppo_server, verdict
from ue_rl.bridges import GymnasiumBridge
from ue_rl.rllink.client import RLlinkClient
from ue_rl.testing import MemoryTransport

torch.set_num_threads(1)


@pytest.fixture(scope="module", autouse=True)
def _cluster() -> Any:
    ray.init(num_cpus=1, object_store_memory=200_000_000, include_dashboard=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.mark.parametrize(("env", "num_envs", "batch"), [("CartPole-v1", 4, 300), ("Pendulum-v1", 3, 250)])
def test_every_episode_is_right_by_rllibs_own_module(env: str, num_envs: int, batch: int) -> None:
    algorithm = ppo_server(env, batch, num_epochs=2, minibatch_size=125)
    server, seen, returns = algorithm.env_runner, [], []

    def play() -> None:
        with RLlinkClient(MemoryTransport(GymnasiumBridge(env, num_envs)), port=server.port, timeout=60) as client:
            client.run(samples=6, on_sample=lambda sample: (seen.append(sample.seq), returns.extend(sample.returns))[0])

    player = threading.Thread(target=play, daemon=True)
    player.start()
    results = [algorithm.train() for _ in range(6)]
    player.join(30)
    algorithm.stop()
    assert verdict(server) == []
    assert server.steps >= 6 * batch
    assert seen == [0, 1, 2, 3, 4, 5]
    assert sorted(returns) == pytest.approx(sorted(total for total, _ in server.checks.finished), rel=1e-4)
    assert results[-1]["env_runners"]["num_env_steps_sampled_lifetime"] == server.steps
    if env == "CartPole-v1":
        assert results[-1]["env_runners"]["episode_return_mean"] > 9
