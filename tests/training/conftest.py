"""What the tests of training share."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command_line import ok
from tests.support.own_envs import own
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.training.directory import RunDirectory

__all__ = ["finished", "own"]

SMALL = "train --num-envs 2 --n-steps 32 --batch-size 32 --set n_epochs=1 --timesteps 128"
TINY = f"{SMALL} --eval-episodes 2"
DIALLED = "train --n-steps 32 --batch-size 32 --eval-episodes 2 --set n_epochs=1"


@pytest.fixture(scope="module")
def cartpole() -> Iterator[str]:
    """The address of two envs in this process: where who starts the engine is not the subject, a second is saved."""
    with run_in_thread(GymnasiumBridge("CartPole-v1", 2)) as engine:
        yield engine.url


@pytest.fixture(scope="session")
def _finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    with run_in_thread(GymnasiumBridge("CartPole-v1", 2)) as engine:
        ok(f"{DIALLED} --timesteps 128 --eval-episodes 0 --run-id r --no-export --log-dir", folder, engine.url)
    return folder / "r"


@pytest.fixture
def finished(_finished: Path, tmp_path: Path) -> Callable[[str], RunDirectory]:
    """Puts a run of 128 env-steps into tmp_path, by this name."""
    return lambda name: RunDirectory(Path(shutil.copytree(_finished, tmp_path / name)))
