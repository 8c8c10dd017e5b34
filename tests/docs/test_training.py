"""docs/training.md: its YAML is read as `ue-rl train` reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import yaml

from tests.docs.blocks import ROOT, labelled
from ue_rl.training.config import resolve
from ue_rl.training.hyperparameters import tuned_for

PAGE = "docs/training.md"


def options(kind: str, tmp_path: Path) -> Any:
    path = tmp_path / "page.yaml"
    path.write_text(labelled(PAGE, f"yaml {kind}"))
    return resolve({}, path)


def test_the_yaml_of_the_page_is_understood(tmp_path: Path) -> None:
    read = options("file", tmp_path)
    assert (read.num_envs, read.hyperparameters["n_steps"]) == (16, 256)
    read = options("wrappers", tmp_path)
    assert (read.normalize, read.frame_stack, tuned_for(read)["policy_kwargs"]) == (
        {"norm_reward": False},
        4,
        {"activation_fn": torch.nn.ReLU},
    )
    read = options("params", tmp_path)
    assert (read.params, read.time_scale) == ({"gravity": 3.7, "wind": [0, 2]}, 4)
    assert options("her", tmp_path).her == {"n_sampled_goal": 4, "goal_selection_strategy": "future"}


def test_the_curriculum_of_the_page_is_the_sample_that_the_tests_run() -> None:
    sample = yaml.safe_load((ROOT / "samples" / "curriculum" / "climb.yaml").read_text("utf-8"))
    for key, value in yaml.safe_load(labelled(PAGE, "yaml curriculum")).items():
        assert sample[key] == value, key
