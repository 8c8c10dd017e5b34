"""Choices are as likely as the policy's numbers say: what reaches the engine, over every carrier.

The policies see a constant, so their numbers are known; what the engine is sent is counted and judged by a chi-square
test at a fixed seed. Sampled as while learning, deterministic, and out of exported files.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from math import erf, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch as th
from numpy.typing import NDArray
from sb3_contrib import MaskablePPO
from stable_baselines3 import A2C, PPO

from tests.envs.conftest import memory_and_all_carriers
from tests.support.models import export_briefly
from ue_rl.bridges import VectorBridge
from ue_rl.cli.play import InferencePolicy
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.inference import OnnxInference
from ue_rl.protocol.spaces.tree import Branch, Leaf, LeafKind, Space, bounds, box
from ue_rl.protocol.spec import ActionSpec, EnvSpec

N, STEPS = 64, 48
FLAGS = Leaf(LeafKind.MULTI_BINARY, (2,))
GUN = Leaf(LeafKind.DISCRETE, counts=(8,), starts=(3,))
LEVELS = Leaf(LeafKind.MULTI_DISCRETE, (2,), counts=(2, 3), starts=(0, -1))
HYBRID = Branch((("aim", box((1,), -2, 3)), ("gun", GUN), ("levels", LEVELS), ("flags", FLAGS)))
MASK = [1, 1, 0, 1, 0, 1, 0, 1, 1]


class Case(NamedTuple):
    """A policy that gives the same numbers whatever it sees.

    Attributes:
        numbers: means of a HybridBox, else logits. std: of a HybridBox. chances: of each choice, by column of the row.
    """

    kind: Any
    space: Space
    numbers: list[float]
    chances: dict[int, NDArray[np.float64]]
    std: float = 0.0
    masked: bool = False


def softmax(*logits: float, mask: Sequence[int] | None = None) -> NDArray[np.float64]:
    weights = np.exp(logits) * (1 if mask is None else np.array(mask))
    return weights / weights.sum()


def greatest(std: float, *means: float) -> NDArray[np.float64]:
    """How likely each of these Gaussians is the greatest: the integral of its density where the others are below."""
    x = np.linspace(-9, 9, 20_001)
    chances = []
    for mine in means:
        density = np.exp(-(x**2) / 2) / sqrt(2 * np.pi)
        for theirs in [*means[: len(chances)], *means[len(chances) + 1 :]]:
            below = th.special.ndtr(th.from_numpy(x + (mine - theirs) / std)).numpy()
            density = density * below
        chances.append(float(density.sum() * (x[1] - x[0])))
    return np.array(chances)


def hybrid(kind: Any, std: float, gun: list[float], levels: list[float], flags: list[float]) -> Case:
    """A policy for HYBRID."""
    chances: dict[int, NDArray[np.float64]] = {
        1: greatest(std, *gun), 2: greatest(std, *levels[:2]), 3: greatest(std, *levels[2:]),
    }  # fmt: skip
    for column, mean in enumerate(flags):
        p = (1 + erf(mean / std / sqrt(2))) / 2
        chances[4 + column] = np.array([1 - p, p])
    return Case(kind, HYBRID, [0.5, *gun, *levels, *flags], chances, std)


CASES: dict[str, Any] = {
    # untrained: every choice as likely as any other
    "hybrid, untrained": lambda: hybrid(PPO, 1.0, [0.0] * 8, [0.0] * 5, [0.0, 0.0]),
    # far outside of -1..1, where clipped numbers would be equal and the first choice taken
    "hybrid, decided": lambda: hybrid(
        PPO, 0.5, [2.0, 2.0, 2.2, 2.0, 1.8, 2.0, 2.3, 3.0], [2.0, 3.0, -2.5, -2.0, -3.0], [0.3, -1.5]
    ),
    "hybrid, A2C": lambda: hybrid(A2C, 2.0, [1.0] * 4 + [4.0] * 4, [-4.0, -4.0, 3.0, 4.0, 5.0], [-1.0, 2.0]),
    "discrete": lambda: Case(PPO, GUN, [*np.linspace(-1, 1, 8)], {0: softmax(*np.linspace(-1, 1, 8))}),
    "multi-discrete": lambda: Case(
        PPO, LEVELS, [0.5, -0.2, 0.0, 1.0, -1.0], {0: softmax(0.5, -0.2), 1: softmax(0.0, 1.0, -1.0)}
    ),
    "masked": lambda: Case(
        MaskablePPO,
        Leaf(LeafKind.MULTI_DISCRETE, (2,), counts=(4, 5), starts=(1, 0)),
        [0.5, -0.2, 3.0, 1.0, 4.0, 0.3, 4.0, 0.0, -0.3],
        {0: softmax(0.5, -0.2, 3.0, 1.0, mask=MASK[:4]), 1: softmax(4.0, 0.3, 4.0, 0.0, -0.3, mask=MASK[4:])},
        masked=True,
    ),
}  # fmt: skip


class Counter(VectorBridge):
    """Shows a constant and keeps every action."""

    def __init__(self, case: Case) -> None:
        action = ActionSpec.of(case.space)
        features = frozenset({"MASK"}) if case.masked else frozenset[str]()
        super().__init__(EnvSpec(2, action.size, num_envs=N, action=action, features=features))
        self.rows: list[NDArray[np.float32]] = []

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.outbox.obs[env_ids] = 1
        if self.outbox.masks.shape[1]:
            self.outbox.masks[env_ids] = MASK

    def step_envs(self, actions: NDArray[np.float32], env_ids: Any) -> None:
        self.rows.append(actions[env_ids])  # over env sockets a tick may see some of them


def made(case: Case, env: UnrealVecEnv) -> Any:
    """An untrained model whose last layer gives the case's numbers, and learns nothing."""
    options = {} if case.kind is A2C else {"batch_size": N * STEPS, "n_epochs": 1}
    policy_kwargs = {"net_arch": [4]}
    model = case.kind(
        "MlpPolicy", env, seed=1, n_steps=STEPS, learning_rate=0.0, policy_kwargs=policy_kwargs, device="cpu", **options
    )
    with th.no_grad():
        model.policy.action_net.weight.zero_()
        model.policy.action_net.bias.copy_(th.tensor(case.numbers))
        if case.std:
            model.policy.log_std.fill_(np.log(case.std))
    return model


@functools.cache
def exported(name: str, stochastic: bool) -> bytes:
    case = CASES[name]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.onnx"
        env = UnrealVecEnv(MemoryTransport(Counter(case)))
        export_briefly(made(case, env), path, stochastic=stochastic)
        return path.read_bytes()


def judge(case: Case, rows: list[NDArray[np.float32]]) -> None:
    """Each choice as often as its chance says: chi-square below what chance exceeds once in a million times."""
    sent = np.concatenate(rows)
    assert len(sent) == N * STEPS
    starts, _ = bounds(case.space)
    for column, chances in case.chances.items():
        choices = sent[:, column] - starts[column]
        counts = np.array([(choices == choice).sum() for choice in range(len(chances))])
        assert counts.sum() == len(sent), "only choices of the space"
        assert not counts[chances == 0].any(), "only legal ones"
        possible = chances > 0
        expected = chances[possible] * len(sent)
        statistic, df = (((counts[possible] - expected) ** 2) / expected).sum(), possible.sum() - 1
        limit = df * (1 - 2 / (9 * df) + 4.753 * sqrt(2 / (9 * df))) ** 3  # Wilson and Hilferty
        assert statistic < limit, f"number {column}: {(counts / len(sent)).round(3)} instead of {chances.round(3)}"


NIGHTLY = ["hybrid, A2C"]  # it draws and sends as PPO does
over_all_carriers = memory_and_all_carriers(CASES, "masked", nightly=NIGHTLY)
# What is drawn of choices alone stands in tests/inference/test_export_options.py, too.
over_memory = memory_and_all_carriers(
    CASES, "masked", over=["memory"], nightly=[*NIGHTLY, "discrete", "multi-discrete"]
)


@pytest.fixture
def case(name: str) -> tuple[str, Case]:
    return name, CASES[name]()


@over_all_carriers
def test_learning_draws_choices_as_likely_as_the_policy_says(opened: Any, case: tuple[str, Case]) -> None:
    bridge = Counter(case[1])
    made(case[1], opened(bridge)).learn(N * STEPS)
    judge(case[1], bridge.rows)


@over_memory
def test_a_stochastic_file_draws_as_the_policy_does(opened: Any, case: tuple[str, Case]) -> None:
    bridge = Counter(case[1])
    env, policy = opened(bridge), OnnxInference(seed=2)
    policy.load_bytes(exported(case[0], True))
    player, obs = InferencePolicy(policy, env), env.reset()
    for _ in range(STEPS):
        obs = env.step(player.predict(obs)[0])[0]
    judge(case[1], bridge.rows)


@over_memory
def test_predict_and_the_file_take_the_likeliest(opened: Any, case: tuple[str, Case]) -> None:
    name, one = case
    bridge = Counter(one)
    env, policy = opened(bridge), OnnxInference()
    policy.load_bytes(exported(name, False))
    obs = env.reset()
    masks = {"action_masks": np.tile(MASK, (N, 1))} if one.masked else {}
    env.step(made(one, env).predict(obs, deterministic=True, **masks)[0])
    env.step(InferencePolicy(policy, env).predict(obs)[0])
    starts, _ = bounds(one.space)
    for column, chances in one.chances.items():
        likeliest = 0 if np.ptp(chances) < 1e-9 else int(chances.argmax())
        for rows in bridge.rows:
            assert (rows[:, column] - starts[column] == likeliest).all(), (column, rows[:, column])
