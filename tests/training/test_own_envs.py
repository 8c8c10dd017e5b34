"""`--env MODULE:ID`, for each command that takes an env: a package of one's own, minigrid, ale_py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import ok, refused
from tests.training.conftest import TINY
from ue_rl.bridges import GymnasiumBridge
from ue_rl.system.errors import ConfigurationError
from ue_rl.training.engine import command_of
from ue_rl.training.options import TrainOptions


def test_an_env_of_a_module_here_is_trained_played_and_served(own: Path) -> None:
    assert "evaluation" in ok(f"{TINY} --timesteps 64 --no-export --env my_envs:MyCart-v0 --run-id mine --log-dir runs")
    assert "2 episodes" in ok("play runs/mine --episodes 2")
    assert "2 episodes" in ok("play --actor random --env my_envs:MyCart-v0 --episodes 2")
    bridge = GymnasiumBridge("my_envs:MyCart-v0", 2)
    assert bridge.spec.num_envs == 2
    bridge.close()


@pytest.mark.parametrize(
    ("env", "text", "cure"),
    [
        ("my_envs:MyCar-v0", "cannot make", "did you mean 'my_envs:MyCart-v0'?"),
        ("my_envs:Zzz-v9", "cannot make", "import my_envs registers no such id"),
        ("MyGame-v0", "cannot make", "write MODULE:ID"),
        ("no_envs:MyCart-v0", "there is no module 'no_envs'", "no_envs.py stands"),
        ("broken_envs:MyCart-v0", "'broken_envs' fails while it is imported", "python -c 'import broken_envs'"),
        ("lacking_envs:MyCart-v0", "'lacking_envs' fails while it is imported", "python -c 'import lacking_envs'"),
    ],
)
def test_what_cannot_be_is_the_modules_fault_or_the_ids(own: Path, env: str, text: str, cure: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as caught:
        command_of(TrainOptions(env=env))
    assert caught.value.field == "env"
    assert cure in str(caught.value.cure)
    assert text in str(refused("serve --port 0 --env", env))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("minigrid", "minigrid:MiniGrid-Empty-5x5-v0 --env-wrapper minigrid.wrappers:ImgObsWrapper"),
        ("ale_py", 'ale_py:ALE/Pong-v5 --env-kwargs \'{"obs_type": "ram"}\' --max-episode-steps 20'),
    ],
)
def test_other_peoples_packages(tmp_path: Path, module: str, words: str) -> None:
    pytest.importorskip(module)
    ok(f"{TINY} --timesteps 64 --no-export --env {words} --run-id other --log-dir", tmp_path)
    ok("play --episodes 1 --max-episode-steps 20", tmp_path / "other")
