"""Training through the bridge, over TCP: it must really learn.

Each run has a task that NumPy learns within a second; the others have their env in another process. The tasks and
their hyperparameters are benchmarks/learning.py's; each policy is evaluated without exploration. One wiring for each:
tests/envs/test_vec_env.py proves that training is the same to the bit over all of them. PPO's runs end as soon as
their own episodes earn what is asked; the policy must then do it on fresh ones.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "learning.py"


@pytest.fixture(scope="module")
def learning(load_script: Callable[[Path], ModuleType]) -> ModuleType:
    return load_script(PATH)


def test_numpy_learns(learning: ModuleType) -> None:
    mean, _ = learning.run("reach-ppo", "shared", seed=1, enough=True, cheap=True)
    assert mean >= learning.TASKS["reach-ppo"].target


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("task", "channel"),
    [
        pytest.param("reach-ppo", "per_env", marks=pytest.mark.learning),
        pytest.param("cartpole-ppo", "shared", marks=pytest.mark.learning),
        pytest.param("pendulum-sac", "per_env", marks=[pytest.mark.learning, pytest.mark.exhaustive]),
        pytest.param("cartpole-dqn", "shared", marks=[pytest.mark.learning, pytest.mark.exhaustive]),
        pytest.param("mujoco-ppo", "shared", marks=[pytest.mark.learning, pytest.mark.exhaustive]),
    ],
)
def test_learns(learning: ModuleType, task: str, channel: str) -> None:
    if task == "mujoco-ppo":
        pytest.importorskip("mujoco", reason="gymnasium[mujoco] is not installed")
    mean, _ = learning.run(task, channel, seed=0, enough=task in ("cartpole-ppo", "reach-ppo"))
    assert mean >= learning.TASKS[task].target
