"""`ue-rl play` without a model: chance or a function acts, in engines that run or are started; any engine is filmed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from tests.harness.exactness import Drift
from tests.support.command_line import ok, refused, run
from ue_rl.bridges import GymnasiumBridge, run_in_thread

ME = __name__


class Sums(gym.Env[Any, Any]):
    """The return is the sum of four actions, each of two numbers; draws itself."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.MultiDiscrete([3, 4])
    render_mode = "rgb_array"

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._step = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        return np.full(1, self._step, np.float32), float(sum(action)), self._step >= 4, False, {}

    def render(self) -> Any:
        return np.full((6, 10, 3), 50 * self._step, np.uint8)


def most(observations: Any) -> Any:
    """Scripted: the greatest action of all."""
    return np.tile([2, 3], (len(observations), 1))


def test_a_function_acts_and_a_running_engine_is_filmed(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    with run_in_thread(GymnasiumBridge(Sums, 3)) as engine:
        film = tmp_path / "x.gif"
        output = ok(f"play --actor {ME}:most --episodes 1 {engine.url} --gif", film)
        assert "return 20.00 +/- 0.00" in output
        with image.open(film) as shown:
            assert (shown.size, shown.n_frames) == ((10, 6), 4)


@pytest.mark.parametrize("make", [Sums, lambda: Drift("masked"), lambda: Drift("box")], ids=["choices", "masks", "box"])
def test_chance_acts_within_what_is_legal(make: Any, tmp_path: Path) -> None:
    """The same for the same seed; an illegal action would be refused."""
    with run_in_thread(GymnasiumBridge(make, 2)) as engine:
        played = []
        for name in ("a", "b"):
            ok(f"play --actor random --episodes 4 --seed 5 {engine.url} --json", tmp_path / name)
            played.append(json.loads((tmp_path / name).read_text())["episodes"])
    assert played[0] == played[1]


def test_an_engine_is_started() -> None:
    command = f"{sys.executable} -m ue_rl serve --env CartPole-v1 --num-envs {{num_envs}} --port {{port}}"
    output = ok("play --actor random --num-envs 2 --episodes 2 --seed 1 --engine", command)
    assert "2 episodes: return" in output


@pytest.mark.parametrize(("actor", "text"), [("nothing", "cannot be loaded"), (f"{ME}:ME", "not a function")])
def test_what_does_not_act_is_named(actor: str, text: str) -> None:
    with run_in_thread(GymnasiumBridge(Sums, 1)) as engine:
        assert text in str(refused(f"play --actor {actor}", engine.url))


def test_flags_that_would_have_no_effect_are_refused(tmp_path: Path) -> None:
    for command, word in (
        ("play --actor random --num-envs 3 tcp://127.0.0.1:1", "--num-envs"),
        ("play --actor random --vecnormalize x.pkl --env CartPole-v1", "--vecnormalize"),
        ("serve --bridge ue_rl.cli.do_nothing:DoNothingBridge --send-info", "--send-info"),
        ("check --num-envs 3 --port 1", "--num-envs"),
        ("check --start-timeout 3s --port 1", "--start-timeout"),
        ("train --seeds 2 --ui", "--ui"),
    ):
        result = run(command)
        assert result.exit_code != 0
        assert word in f"{result.output} {result.exception}", (command, result.output, result.exception)
        assert "listens" not in str(result.exception), command
