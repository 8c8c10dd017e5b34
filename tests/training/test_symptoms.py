"""Symptoms: each of them is said once, and a healthy game says none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ue_rl.protocol.spaces.tree import Branch, Leaf, LeafKind, box
from ue_rl.protocol.spec import EnvSpec, ImageSpec
from ue_rl.training.symptoms import Symptoms

RNG = np.random.default_rng(0)


def told(
    symptoms: Symptoms,
    steps: int,
    obs: NDArray[np.float32] | None = None,
    *,
    image: Any = None,
    reward: float = 1.0,
    done: bool = True,
    seconds: float = 0.001,
) -> list[str]:
    """Everything that is said in `steps` steps; obs None: random ones within -1 to 1."""
    said: list[str] = []
    spec = symptoms._spec
    for _ in range(steps):
        row = RNG.uniform(-1, 1, (spec.num_rows, spec.obs_size)).astype(np.float32) if obs is None else obs
        picture = RNG.integers(0, 255, image.shape, np.uint8) if image is not None and obs is None else image
        rewards, dones = np.full(spec.num_rows, reward, np.float32), np.full(spec.num_rows, done)
        said += symptoms.step(row, picture, rewards, dones, seconds)
    return said


def test_a_healthy_game_is_not_blamed() -> None:
    spec = EnvSpec(3, 1, num_envs=4, obs_low=(-1,), obs_high=(1,))
    assert told(Symptoms(spec, long=100, enough=50), 500) == []


def test_no_episode_ends_and_no_reward_comes() -> None:
    symptoms = Symptoms(EnvSpec(2, 1), long=100, enough=50)
    said = told(symptoms, 500, reward=0.0, done=False)
    assert [text.partition(":")[0] for text in said] == [
        "no episode has ended in 100 steps of each env",
        "every reward was 0 in 100 steps of each env",
    ]


def test_one_end_and_one_reward_are_enough() -> None:
    symptoms = Symptoms(EnvSpec(2, 1), long=100, enough=50)
    assert told(symptoms, 1) == []
    assert told(symptoms, 500, reward=0.0, done=False) == []


def test_numbers_that_never_change_are_named() -> None:
    symptoms = Symptoms(EnvSpec(3, 1, num_envs=2, obs_names=("x[m]", "speed", "fuel")), long=100, enough=50)
    said = []
    for _ in range(200):
        rows = RNG.uniform(-1, 1, (2, 3)).astype(np.float32)
        rows[:, 1] = 0.5
        said += told(symptoms, 1, rows)
    assert said == ["1 of 3 numbers of the observation never changed in 50 steps of each env: speed [1] (0.5)"]


def test_an_observation_that_never_changes() -> None:
    said = told(Symptoms(EnvSpec(2, 1, num_envs=2), long=100, enough=50), 200, np.ones((2, 2), np.float32))
    assert said == ["the observation never changed in 50 steps of each env: nothing can be learnt"]


def test_different_envs_count_as_changes() -> None:
    """Each env has its own number: a goal that is drawn once for each env is information."""
    symptoms = Symptoms(EnvSpec(1, 1, num_envs=2), long=100, enough=50)
    assert told(symptoms, 200, np.array([[0], [1]], np.float32)) == []


def test_an_image_that_never_changes() -> None:
    spec = EnvSpec(1, 1, image=ImageSpec(8, 8, only=True))
    image = np.zeros((1, 8, 8, 3), np.uint8)
    assert told(Symptoms(spec, long=100, enough=50), 200, np.zeros((1, 1), np.float32), image=image) == [
        "the image of env 0 was the same in 50 steps"
    ]
    assert told(Symptoms(spec, long=100, enough=50), 200, image=image) == []


def test_values_outside_the_space_are_named_with_their_bounds() -> None:
    space = Branch((("camera", box((2,), 0, 1)), ("gear", Leaf(LeafKind.DISCRETE, counts=(3,)))))
    symptoms = Symptoms(EnvSpec(3, 1, obs_space=space), long=1000, enough=1000)
    said = told(symptoms, 100, np.array([[0.5, 1.5, 3]], np.float32))
    assert len(said) == 1
    assert said[0].startswith(
        "observations outside the space that the engine announced: camera.1 [1] was 1.5, not in 0 to 1; "
        "gear [2] was 3, not in 0 to 2. "
    )


def test_rounding_is_not_outside() -> None:
    symptoms = Symptoms(EnvSpec(1, 1, obs_low=(-1,), obs_high=(1,)), long=1000, enough=1000)
    assert told(symptoms, 100, np.array([[1.000001]], np.float32)) == []


@pytest.mark.parametrize(("seconds", "carrier", "says"), [
    (0.041, "tcp", True), (0.041, "shared memory", False), (0.030, "tcp", False), (0.050, "tcp", False),
])  # fmt: skip
def test_steps_of_40_ms(seconds: float, carrier: str, says: bool) -> None:
    said = told(Symptoms(EnvSpec(1, 1), carrier), 600, seconds=seconds)
    assert bool(said) is says
    if says:
        assert len(said) == 1
        assert said[0].startswith("a step takes 41 ms, as long as TCP delays an acknowledgement")


def test_most_steps_are_not_looked_at() -> None:
    looked: list[int] = []

    class Noted(Symptoms):
        def _look(self, obs: Any, image: Any) -> Any:
            looked.append(obs.size)
            return []

    symptoms = Noted(EnvSpec(16, 2, num_envs=64, obs_low=(-1,), obs_high=(1,)))
    for _ in range(1300):
        symptoms.step(np.zeros((64, 16), np.float32), None, np.ones(64, np.float32), np.zeros(64, bool), 0.001)
    assert len(looked) == 1300 // 13 + 1  # and the step after which a number that never changed is one
