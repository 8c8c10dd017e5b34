"""Where torch computes, on a machine with a GPU: PPO and the like on the CPU, unless they see images or one says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common import base_class

from ue_rl.training import train
from ue_rl.training.directory import RunDirectory
from ue_rl.training.models import device
from ue_rl.training.options import TrainOptions

ROW = spaces.Box(-1, 1, (4,))
IMAGE = spaces.Box(0, 255, (36, 36, 3), np.uint8)


@pytest.mark.parametrize(
    ("given", "space", "expected"),
    [
        ({}, ROW, "cpu"),
        ({"algo": "a2c", "policy": "MlpPolicy"}, ROW, "cpu"),
        ({}, spaces.Dict({"speed": ROW}), "auto"),
        ({}, IMAGE, "auto"),
        ({}, spaces.Dict({"camera": IMAGE}), "auto"),
        ({"algo": "recurrentppo"}, ROW, "auto"),
        ({"algo": "sac"}, ROW, "auto"),
        ({"device": "cuda"}, ROW, "cuda"),
        ({"algo": "sac", "device": "cpu"}, ROW, "cpu"),
    ],
)
def test_auto(given: dict[str, Any], space: Any, expected: str) -> None:
    env: Any = SimpleNamespace(observation_space=space)
    assert device(TrainOptions(**given), env) == expected


def test_no_model_of_a_run_goes_to_the_gpu(tmp_path: Path, cartpole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a new one, nor a resumed one, nor one with the weights of another."""
    real = base_class.get_device

    def get_device(device: Any = "auto") -> torch.device:
        return torch.device("meta") if device == "auto" else real(device)  # on which nobody can learn

    monkeypatch.setattr(base_class, "get_device", get_device)
    little: dict[str, Any] = {"n_steps": 32, "batch_size": 32, "n_epochs": 1}
    common = TrainOptions(log_dir=str(tmp_path), url=cartpole, export=False, hyperparameters=little)
    first = replace(common, run_id="first", timesteps=64)
    assert train(first).model.exists()
    assert train(replace(first, timesteps=128), resume=RunDirectory(tmp_path / "first")).model.exists()
    second = replace(common, run_id="second", timesteps=64, init_from=str(tmp_path / "first"))
    assert train(second).model.exists()
