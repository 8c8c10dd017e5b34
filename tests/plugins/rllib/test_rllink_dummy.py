"""Ray's own client of RLlink against our server: what RLlib takes for right has no mistakes."""

from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed: .ci/run runs these in a venv of their own")

import gymnasium as gym
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.examples.envs.classes.utils.dummy_external_client import _dummy_external_client

from tests.plugins.rllib.equations import cart_pole
from tests.plugins.rllib.rllink.server import RLlinkServer
from tests.support.waiting import eventually
from ue_rl.protocol.spaces.actions import ActionSpec

torch.set_num_threads(1)


def test_rays_dummy_client_makes_no_mistakes() -> None:
    config = PPOConfig().environment(
        observation_space=gym.spaces.Box(-np.inf, np.inf, (4,), np.float32), action_space=gym.spaces.Discrete(2)
    )
    config = config.env_runners(num_env_runners=0).training(train_batch_size_per_learner=150)
    config = config.rl_module(model_config={"fcnet_hiddens": [32, 32], "vf_share_layers": True})
    server = RLlinkServer(
        4, ActionSpec.discrete(2), steps_per_sample=150, config_pickle=pickle.dumps(config), equations=cart_pole
    )
    ended = threading.Event()

    def play() -> None:
        try:
            _dummy_external_client(server.port)
        except ConnectionError:  # the server has closed
            ended.set()

    with server:
        threading.Thread(target=play, daemon=True).start()
        eventually(lambda: len(server.batches) >= 4, 30)
    assert ended.wait(10)
    assert server.mistakes == []
    assert set(server.batches) == {150}
    assert len(server.finished) > 10
