"""A folder with modules of a user's own, one of which registers an env."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

OWN = """
import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

class MyCart(CartPoleEnv):
    pass

gymnasium.register("MyCart-v0", entry_point=MyCart, max_episode_steps=30)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder where the commands run; my_envs.py in it registers MyCart-v0."""
    (tmp_path / "my_envs.py").write_text(OWN)
    (tmp_path / "broken_envs.py").write_text("import gymnasium\nraise RuntimeError('no licence')\n")
    (tmp_path / "lacking_envs.py").write_text("import no_such_simulator\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])  # as a console script has it
    yield tmp_path
    sys.modules.pop("my_envs", None)
    gymnasium.registry.pop("MyCart-v0", None)
