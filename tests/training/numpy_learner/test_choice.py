"""`ue-rl train --learner`: who learns a run, what its folder says of it, and what a resumed run keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from stable_baselines3 import PPO

from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.system.errors import ConfigurationError
from ue_rl.training.comparison import compare
from ue_rl.training.config import resolve
from ue_rl.training.directory import RunDirectory
from ue_rl.training.options import TrainOptions
from ue_rl.training.report import TrainingReport
from ue_rl.training.run import train

SMALL: dict[str, Any] = {
    "n_steps": 8, "batch_size": 16, "n_epochs": 2, "policy_kwargs": {"net_arch": [8]},
    "learning_rate": 1e-3, "clip_range": 0.2,  # which do not depend on how long the run is
}  # fmt: skip

pytestmark = pytest.mark.usefixtures("one_thread")
URLS: dict[str, str] = {}


class Heard(TrainingReport):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def said(self, text: str) -> None:
        self.heard.append(text)


@pytest.fixture(scope="module", autouse=True)
def _engines() -> Iterator[None]:
    """Each trains in this process: who starts the engine plays no part."""
    with ExitStack() as stack:
        for env in ("CartPole-v1", "Pendulum-v1"):
            URLS[env] = stack.enter_context(run_in_thread(GymnasiumBridge(env, 2))).url
        yield


def options(folder: Path, env: str = "CartPole-v1", **more: Any) -> TrainOptions:
    hyperparameters = {**SMALL, **more.pop("hyperparameters", {})}
    given = {"url": URLS[env], "timesteps": 32, "seed": 0, "export": False, "device": "cpu", **more}
    return resolve({"log_dir": str(folder), "run_id": "r", "hyperparameters": hyperparameters, **given}, None)


def learnt(folder: Path, **more: Any) -> tuple[dict[str, Any], list[str]]:
    """(config.yaml, what was said) of a run."""
    heard = Heard()
    outcome = train(options(folder, **more), report=heard)
    return outcome.run.read_config(), heard.heard


def resumed(folder: Path, **flags: Any) -> tuple[dict[str, Any], list[str]]:
    run, heard = RunDirectory(folder / "r"), Heard()
    outcome = train(resolve(flags, None, base=run.read_config()), resume=run, report=heard)
    return outcome.run.read_config(), heard.heard


def weights(folder: Path) -> Any:
    return PPO.load(folder / "r" / "model.zip", device="cpu").get_parameters()


def assert_same(one: Any, other: Any) -> None:
    for name, value in one["policy"].items():
        assert torch.equal(value, other["policy"][name]), name


def test_auto_is_numpy_where_that_is_faster_and_the_run_keeps_it(tmp_path: Path) -> None:
    config, heard = learnt(tmp_path / "whole", learner="auto", timesteps=64)
    assert config["learner"] == "numpy"
    assert not [text for text in heard if "torch" in text]
    learnt(tmp_path / "parts", learner="auto")
    for flags in ({}, {"learner": "auto"}):
        steps = 64 if flags else 48
        config, heard = resumed(tmp_path / "parts", timesteps=steps, **flags)
        assert config["learner"] == "numpy"
        assert not [text for text in heard if "learner" in text]
    assert_same(weights(tmp_path / "parts"), weights(tmp_path / "whole"))


def test_a_run_goes_on_with_the_other_learner_where_that_is_said(tmp_path: Path) -> None:
    learnt(tmp_path, learner="numpy")
    config, heard = resumed(tmp_path, learner="torch", timesteps=48)
    assert config["learner"] == "torch"
    assert "learner: numpy before, torch now" in heard
    config, heard = resumed(tmp_path, learner="numpy", timesteps=64)
    assert config["learner"] == "numpy"
    assert "learner: torch before, numpy now" in heard


def test_a_run_of_before_there_was_the_option_stays_with_torch(tmp_path: Path) -> None:
    saved = yaml.safe_load(options(tmp_path).as_yaml())
    del saved["learner"]
    found = compare(saved, resolve({"learner": "auto"}, None, base=saved), tmp_path)
    assert (found.options.learner, found.said) == ("torch", [])


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"hyperparameters": {"policy_kwargs": {"activation_fn": "nn.GELU"}}}, "GELU"),
        ({"hyperparameters": {"use_sde": True}, "env": "Pendulum-v1"}, "use_sde"),
        ({"hyperparameters": {"policy_kwargs": {"net_arch": [320, 320]}}}, "weights"),
    ],
)
def test_auto_is_torch_where_numpy_cannot_or_is_no_faster(tmp_path: Path, more: Any, reason: str) -> None:
    config, heard = learnt(tmp_path / "auto", learner="auto", **more)
    assert config["learner"] == "torch"
    assert len([text for text in heard if "with torch" in text and reason in text]) == 1
    config, heard = learnt(tmp_path / "torch", learner="torch", **more)
    assert config["learner"] == "torch"
    assert not [text for text in heard if "torch" in text]
    assert_same(weights(tmp_path / "auto"), weights(tmp_path / "torch"))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"algo": "sac", "env": "Pendulum-v1"}, "does not learn this algorithm"),
        ({"overlap": True}, "--overlap"),
        ({"hyperparameters": {"policy_kwargs": {"activation_fn": "nn.GELU"}}}, "GELU"),
    ],
)
def test_numpy_is_refused_by_name_where_it_cannot(tmp_path: Path, more: Any, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        train(options(tmp_path, learner="numpy", **more))
    assert caught.value.field == "learner"
    assert not (tmp_path / "r").exists()


def test_big_networks_are_learnt_in_numpy_where_that_is_said(tmp_path: Path) -> None:
    more = {"hyperparameters": {"policy_kwargs": {"net_arch": [320, 320]}}}
    assert learnt(tmp_path, learner="numpy", **more)[0]["learner"] == "numpy"


def test_other_algorithms_and_overlap_are_torchs_without_a_word(tmp_path: Path) -> None:
    config, heard = learnt(tmp_path, learner="auto", overlap=True)
    assert config["learner"] == "torch"
    assert not [text for text in heard if "torch" in text]
