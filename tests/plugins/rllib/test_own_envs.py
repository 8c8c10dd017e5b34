"""`--env MODULE:ID` where RLlib trains: what starts its engines finds a module of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ue_rl.plugins.rllib.cli.rllink import _engines
from ue_rl.plugins.rllib.engines import open_engines
from ue_rl.system.errors import ConfigurationError

CUT = {"gymnasium.wrappers:TimeLimit": {"max_episode_steps": 3}}


def test_backends_and_links_of_rllib_start_it(own: Path) -> None:
    with open_engines({"env": "my_envs:MyCart-v0"}, 2) as engines:
        assert engines.spec.num_envs == 2
    flags: dict[str, Any] = {"engine": None, "url": (), "env": "my_envs:MyCart-v0", "env_kwargs": "{}"}
    flags |= {"restarts": "10/60s", "num_envs": 2, "num_engines": 1}
    _engines(0, flags).close()


@pytest.mark.exhaustive
def test_wrappers_stand_around_the_hosted_env_with_rllib_too(own: Path) -> None:
    with open_engines(
        {"env": "my_envs:MyCart-v0", "env_wrapper": [CUT, "gymnasium.wrappers:FlattenObservation"]}, 2
    ) as e:
        assert e.spec.num_envs == 2


def test_wrappers_around_no_env_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="it is for env") as caught:
        open_engines({"engine": "x {port}", "env_wrapper": [CUT]}, 2)
    assert caught.value.field == "env_wrapper"
