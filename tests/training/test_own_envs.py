"""`--env MODULE:ID`, for each command that takes an env: a package of one's own, minigrid, ale_py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from tests.support.command_line import ok, refused
from tests.training.conftest import TINY
from ue_rl.bridges import GymnasiumBridge
from ue_rl.plugins.rllib.cli.rllink import _engines
from ue_rl.plugins.rllib.engines import open_engines
from ue_rl.system.errors import ConfigurationError
from ue_rl.training.engine import command_of
from ue_rl.training.options import TrainOptions

OWN = """
import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

class MyCart(CartPoleEnv):
    pass

gymnasium.register("MyCart-v0", entry_point=MyCart, max_episode_steps=30)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where the commands run; my_envs.py in it registers MyCart-v0."""
    (tmp_path / "my_envs.py").write_text(OWN)
    (tmp_path / "broken_envs.py").write_text("import gymnasium\nraise RuntimeError('no licence')\n")
    (tmp_path / "lacking_envs.py").write_text("import no_such_simulator\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])  # as a console script has it
    yield tmp_path
    sys.modules.pop("my_envs", None)
    gymnasium.registry.pop("MyCart-v0", None)


def test_an_env_of_a_module_here_is_trained_played_and_served(own: Path) -> None:
    assert "evaluation" in ok(f"{TINY} --env my_envs:MyCart-v0 --run-id mine --log-dir runs")
    assert "2 episodes" in ok("play runs/mine --episodes 2")
    assert "2 episodes" in ok("play --actor random --env my_envs:MyCart-v0 --episodes 2")
    bridge = GymnasiumBridge("my_envs:MyCart-v0", 2)
    assert bridge.spec.num_envs == 2
    bridge.close()


def test_backends_and_links_of_rllib_start_it(own: Path) -> None:
    with open_engines({"env": "my_envs:MyCart-v0"}, 2) as engines:
        assert engines.spec.num_envs == 2
    flags: dict[str, Any] = {"engine": None, "url": (), "env": "my_envs:MyCart-v0", "env_kwargs": "{}"}
    flags |= {"restarts": "10/60s", "num_envs": 2, "num_engines": 1}
    _engines(0, flags).close()


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


def test_wrappers_stand_around_the_hosted_env_with_rllib_too(own: Path) -> None:
    cut = {"gymnasium.wrappers:TimeLimit": {"max_episode_steps": 3}}
    with open_engines(
        {"env": "my_envs:MyCart-v0", "env_wrapper": [cut, "gymnasium.wrappers:FlattenObservation"]}, 2
    ) as e:
        assert e.spec.num_envs == 2
    with pytest.raises(ConfigurationError, match="it is for env") as caught:
        open_engines({"engine": "x {port}", "env_wrapper": [cut]}, 2)
    assert caught.value.field == "env_wrapper"


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("minigrid", "minigrid:MiniGrid-Empty-5x5-v0 --env-wrapper minigrid.wrappers:ImgObsWrapper"),
        ("ale_py", 'ale_py:ALE/Pong-v5 --env-kwargs \'{"obs_type": "ram"}\' --max-episode-steps 20'),
    ],
)
def test_other_peoples_packages(tmp_path: Path, module: str, words: str) -> None:
    pytest.importorskip(module)
    ok(f"{TINY} --env {words} --run-id other --log-dir", tmp_path)
    ok("play --episodes 1 --max-episode-steps 20", tmp_path / "other")
