"""open_engines: what an env_config may say, and what is said of a wrong one. Needs no Ray."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ue_rl.devtools.testing import Leftovers, chaos_command
from ue_rl.plugins.rllib.engines import open_engines
from ue_rl.system.errors import ConfigurationError, EngineNotStarted, EngineUnreachable

EXITS = [sys.executable, "-S", "-c", "print('no licence'); raise SystemExit(3)", "{port}"]


@pytest.mark.parametrize(
    ("env_config", "said"),
    [
        ({}, r"says where the engine is \(field env_config\); expected one of engine, url, env, bridge"),
        ({"env": None}, "says where the engine is"),
        ({"env": "CartPole-v1", "url": "tcp://127.0.0.1:1"}, "says where the engine is"),
        ({"engin": "x"}, "Did you mean 'engine'"),
        ({"env": "CartPole-v1", "num_enviroments": 2}, "Did you mean|expected one of"),
        ({"env": 5}, r"wrong value \(field env\); expected a text; got 5"),
        ({"engine": 5}, r"wrong value \(field engine\); expected a text, or a list of texts; got 5"),
        ({"url": 5}, r"wrong value \(field url\)"),
        ({"url": {"host": "a"}}, r"no engine for this env runner \(field url\)"),
        ({"env": "CartPole-v1", "num_engines": "2"}, r"\(field num_engines\); expected a positive integer; got 2"),
        ({"env": "CartPole-v1", "num_engines": True}, r"\(field num_engines\)"),
        ({"env": "CartPole-v1", "num_engines": 0}, r"\(field num_engines\); expected a positive integer"),
        ({"env": "CartPole-v1", "num_engines": 3}, r"cannot be shared out .*; expected a number that 2 envs can be"),
        ({"env": "CartPole-v1", "seed": 1.5}, r"\(field seed\); expected a whole number; got 1.5"),
        ({"env": "CartPole-v1", "timeout": "fast"}, r"\(field timeout\); expected a duration above 0, .*got fast"),
        ({"env": "CartPole-v1", "restarts": -1}, r"\(field restarts\); expected TIMES/WINDOW"),
        ({"env": "CartPole-v1", "start_timeout": 0}, r"\(field start_timeout\)"),
        ({"env": "CartPole-v1", "env_kwargs": [1]}, r"\(field env_kwargs\); expected a mapping"),
        ({"env": "CartPole-v1", "output_dir": 3}, r"\(field output_dir\); expected a folder"),
        ({"env": "CartPole-v1", "transport": "udp"}, r"transport"),
        ({"env": "CartPole-v2000"}, "CartPole"),
        ({"url": "127.0.0.1:x"}, "not an address of an engine"),
        ({"bridge": "nowhere"}, "bridge"),
    ],
)
def test_an_env_config_that_cannot_be(env_config: dict[str, Any], said: str) -> None:
    with pytest.raises((ConfigurationError, EngineNotStarted), match=said):
        open_engines(env_config, 2)


def test_a_folder_for_output_that_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConfigurationError, match=r"cannot be made \(field output_dir\); got .*Not a directory"):
        open_engines({"engine": EXITS, "output_dir": file}, 2)


def test_an_engine_that_is_not_there() -> None:
    with pytest.raises(EngineUnreachable, match=r"127\.0\.0\.1:9"):
        open_engines({"url": "tcp://127.0.0.1:{worker_index}"}, 2, 9)


def test_an_engine_that_ends_at_once(tmp_path: Path) -> None:
    with pytest.raises(EngineNotStarted, match=r"(?s)exit code 3.*no licence") as caught:
        open_engines({"engine": EXITS, "timeout": "20s", "output_dir": tmp_path / "{worker_index}"}, 2, 4)
    assert str(tmp_path / "4" / "env-runner-4" / "engine-0.log") in str(caught.value)


def test_two_runners_on_one_node_share_nothing(tmp_path: Path) -> None:
    said = {"engine": chaos_command(shm=True), "num_engines": 2, "output_dir": str(tmp_path)}
    with Leftovers():
        first = open_engines(said, 4, 1)
        second = open_engines({**said, "num_engines": 1}, 2, 1)
        addresses = [engine.name for runner in (first, second) for engine in runner.engines]
        assert len(set(addresses)) == 3
        segments = [runner.describe() for runner in (first, second)]
        assert segments[0] != segments[1]
        first.close()
        second.close()
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.log")}
    assert files == {"env-runner-1/engine-0.log", "env-runner-1/engine-1.log", "env-runner-1-2/engine-0.log"}
