"""Policies on observations as games have them, such as positions in centimetres: right files pass, wrong ones do not.

Float32 has few digits left where a net with weights for numbers of about one is given a hundred thousand, so that two
right files differ by much. Every run takes some nets drawn at random; the rest of two hundred are exhaustive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from tests.inference.converting import export_by, of_another_net
from tests.support.properties import rows_compared
from ue_rl.inference import OnnxInference, export_onnx
from ue_rl.system.errors import ExportError

NETS = 200
EACH_RUN = (0, 3)  # one that acts in numbers, and one that chooses
ALGORITHMS = (PPO, SAC, TD3, DQN)


class Raw(gym.Env[Any, Any]):
    """Observations of the size that `rng` says, each number with an offset and a deviation of its own."""

    def __init__(self, rng: np.random.Generator, discrete: bool) -> None:
        size, self._rng = int(rng.integers(3, 25)), rng
        self.offset = rng.choice([-1.0, 1.0], size) * 10.0 ** rng.uniform(-1, 5, size)
        self.deviation = 10.0 ** rng.uniform(-1, 5, size)
        limit = 1e5 if rng.random() < 0.5 else np.inf
        self.observation_space = spaces.Box(-limit, limit, (size,), np.float32)
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)
        if discrete:
            self.action_space = spaces.Discrete(int(rng.integers(2, 8)))

    def observe(self, n: int) -> Any:
        seen = self.offset + self.deviation * self._rng.standard_normal((n, len(self.offset)))
        return np.clip(seen, -1e5, 1e5).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observe(1)[0], {}

    def step(self, action: Any) -> Any:
        return self.observe(1)[0], float(np.sum(action)), False, False, {}


def net(number: int) -> tuple[Any, Raw]:
    """The model of a net drawn at random, one gradient step after its start."""
    rng = np.random.default_rng(number)
    algorithm = ALGORITHMS[number % len(ALGORITHMS)]
    env = Raw(rng, algorithm is DQN or (algorithm is PPO and rng.random() < 0.5))
    arch = [int(rng.choice([16, 64, 256]))] * int(rng.integers(1, 4))
    kwargs: dict[str, Any] = {"net_arch": arch, "activation_fn": [nn.Tanh, nn.ReLU, nn.ELU][int(rng.integers(3))]}
    more: dict[str, Any] = {"n_steps": 8, "batch_size": 8, "n_epochs": 1}
    if algorithm is not PPO:
        more = {"learning_starts": 7, "batch_size": 8, "buffer_size": 16}
    if algorithm is DQN:
        more |= {"train_freq": 1}
    policy = {**kwargs}
    model = algorithm("MlpPolicy", DummyVecEnv([lambda: env]), policy_kwargs=policy, seed=number, device="cpu", **more)
    return model.learn(8), env


def linear(graph_net: Any) -> list[nn.Linear]:
    return [module for module in graph_net.modules() if isinstance(module, nn.Linear)]


def permuted(graph_net: Any) -> None:
    weight = linear(graph_net)[0].weight
    weight[:, :2] = weight[:, :2].flip(1).clone()


def scaled(graph_net: Any) -> None:
    linear(graph_net)[0].weight[:, 0] *= 1.01


def dropped(graph_net: Any) -> None:
    linear(graph_net)[0].weight[:, 0] = 0


def without_a_layer(graph_net: Any) -> None:
    """Of the second linear one nothing but the first numbers that it would be given."""
    layer = linear(graph_net)[1]
    layer.weight.zero_()
    layer.weight.fill_diagonal_(1)
    layer.bias.zero_()


def half_of_the_weights(graph_net: Any) -> None:
    """In float16, here and there."""
    generator = th.Generator().manual_seed(0)
    for parameter in graph_net.parameters():
        coarse = th.rand(parameter.shape, generator=generator) < 0.5
        parameter.data = th.where(coarse, parameter.half().float(), parameter)


def half_of_the_layers(graph_net: Any) -> None:
    """In float16, those nearer to the action."""
    layers = linear(graph_net)
    for layer in layers[len(layers) // 2 :]:
        layer.weight.data = layer.weight.half().float()


CHANGES = [permuted, scaled, dropped, without_a_layer, half_of_the_weights, half_of_the_layers]


def nets() -> Iterator[Any]:
    """Of the nets of each run, one after the other gets three changes: each change is made to one of them."""
    for number in range(NETS):
        if number in EACH_RUN:
            yield pytest.param(number, CHANGES[number % 2 :: 2], id=str(number))
        rest = CHANGES[(number + 1) % 2 :: 2] if number in EACH_RUN else CHANGES
        yield pytest.param(number, rest, id=f"{number}-rest", marks=pytest.mark.exhaustive)


@pytest.mark.parametrize(("number", "changes"), list(nets()))
def test_a_right_file_is_written_and_wrong_ones_are_not(number: int, changes: Any, tmp_path: Any) -> None:
    model, env = net(number)
    path = tmp_path / "policy.onnx"
    export_onnx(model, path, n_verify=rows_compared())
    # From outside, without the exporter's own comparison: on nearly all observations both do the same.
    seen = env.observe(1000)
    got, want = OnnxInference(path).run_inference(seen), model.predict(seen, deterministic=True)[0].reshape(1000, -1)
    assert (np.abs(got - want) <= 1e-3).all(axis=1).mean() > 0.98
    for change in changes:
        wrong = tmp_path / f"{change.__name__}.onnx"
        with pytest.raises(ExportError, match="acts differently"):
            export_by(of_another_net(change), model, wrong)
        assert not wrong.exists()
