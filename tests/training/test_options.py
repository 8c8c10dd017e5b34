"""TrainOptions: what each option may be, what excludes what, and malformed settings; all said by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ue_rl.cli.train import train
from ue_rl.errors import ConfigurationError
from ue_rl.training.config import parse_setting, read_config, resolve
from ue_rl.training.hyperparameters import tuned_for
from ue_rl.training.options import DEFAULTS, ROWS, TrainOptions, program_of


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("timesteps", 0, "a positive integer"),
        ("timesteps", True, "a positive integer"),
        ("keep", 0, "a positive integer"),
        ("num_engines", 2.5, "a positive integer"),
        ("max_restarts", -1, "an integer from 0"),
        ("port", 70_000, "1 to 65535"),
        ("seed", -1, "from 0 to"),
        ("timeout", 0, "seconds above 0"),
        ("start_timeout", "soon", "seconds above 0"),
        ("restart_window", float("inf"), "seconds above 0"),
        ("reconnect", float("nan"), "seconds from 0"),
        ("save_minutes", -1, "minutes from 0"),
        ("normalize", "no", "true or false"),
        ("run_id", 7, "text"),
        ("engine", " ", "text"),
        ("host", [], "a list of them"),
        ("host", ["a:1", 2], "a list of them"),
        ("env_kwargs", [1], "a mapping"),
        ("transport", "udp", "auto, tcp, shm"),
        ("channel", ["auto"], "auto, shared, per_env"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(name: str, value: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"must be .*{text}") as caught:
        resolve({name: value}, None)
    assert (caught.value.field, caught.value.got) == (name, value)


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        ({"env": "CartPole-v1", "port": 1}, "env"),
        ({"engine": "game", "port": 1}, "engine"),
        ({"engine": "game", "host": "a"}, "engine"),
        ({"engine": "game", "env": "CartPole-v1"}, "engine"),
        ({"host": "a", "num_engines": 2}, "num_engines"),
        ({"host": ["a:1", "b"]}, "host"),
        ({"host": ["a:1", "::1"]}, "host"),
        ({"host": ["a:1", "b:2"], "port": 3}, "host"),
        ({"host": ["a:1", "a:1"]}, "host"),
    ],
)
def test_what_excludes_each_other_is_named(flags: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve(flags, None)
    assert (caught.value.field, caught.value.fault) == (field, "caller")


def test_engines_of_every_kind_have_a_name() -> None:
    for flags, hosts, name in (
        ({}, [], "ppo-CartPole-v1"),
        ({"env": "ALE/Pong-v5"}, [], "ppo-ALE-Pong-v5"),
        ({"port": 9}, ["127.0.0.1"], "ppo-127.0.0.1-9"),
        ({"host": "walk"}, ["walk"], "ppo-walk-7777"),
        ({"host": "../walk"}, ["../walk"], "ppo-..-walk-7777"),
        ({"host": ["a:1"]}, ["a:1"], "ppo-a-1"),
        ({"host": ["a:1", "[::1]:2", "shm://x"]}, ["a:1", "[::1]:2", "shm://x"], "ppo-a-1-and-2-more"),
        ({"engine": "godot:/games/the walker.x86_64", "num_engines": 4}, [], "ppo-the-walker"),
        ({"engine": "python -u game/walk.py --port {port}"}, [], "ppo-walk"),
    ):
        options = resolve(flags, None)
        assert (options.hosts, options.run_name, options.embedded) == (hosts, name, not hosts and not options.engine)
    assert program_of(r"C:\Games\Walker.exe -port {port}") == "Walker"
    assert program_of("unreal-editor:/home/me/Walker.uproject") == "Walker"
    assert program_of("python3.11") == "python3"


def test_a_later_engine_of_another_kind_replaces_the_earlier() -> None:
    saved = {"engine": "game", "num_engines": 4, "host": None, "env": None}
    options = resolve({"host": "a"}, None, base=saved)
    assert (options.engine, options.num_engines, options.host) == (None, 1, "a")
    options = resolve({"engine": "game2"}, None, base={"host": "a", "port": 5})
    assert (options.engine, options.host, options.port) == ("game2", None, None)
    assert resolve({"num_engines": 2}, None, base=saved).num_engines == 2
    assert resolve({"port": 6}, None, base={"host": "a", "port": 5}).host == "a"


def test_a_row_of_the_table_is_a_flag() -> None:
    """And the other way round, but for what is no option of a run, or a part of `hyperparameters`."""
    own = {"config", "resume", "force", "ui", "log_format"}
    parts = {"net_arch", "learning_rate", "n_steps", "batch_size", "settings"}
    assert {flag.name for flag in train.params} - own - parts == {name for name, row in ROWS.items() if row.help}
    assert list(ROWS) == list(DEFAULTS)


@pytest.mark.parametrize("text", ["a=[1", "a={b: ", "a=: :", 'a="x'])
def test_a_setting_that_is_not_yaml_is_one_sentence(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a value") as caught:
        parse_setting(text)
    assert "\n" not in str(caught.value)
    assert caught.value.field == "set a"


def test_a_schedule_needs_a_number() -> None:
    with pytest.raises(ConfigurationError, match=r"not a schedule.*lin_fast"):
        resolve({"hyperparameters": {"learning_rate": "lin_fast"}}, None)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"\xff\xfe\x00", "not text in UTF-8"),
        (b"a: [1\nb: 2", "is not YAML"),
        (b"\x00", "is not YAML"),
        (b"model: ppo\npaths: 5", "a YAML mapping"),
        (b"model: ppo\non_policy: [1]", "a YAML mapping"),
        (b"model: ppo\non_policy: {ppo: 3}", "a YAML mapping"),
        (b"params: 5", "must be a mapping"),
        (b"timesteps: many", "a positive integer"),
    ],
)
def test_a_broken_file_is_one_sentence(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=text) as caught:
        resolve({}, path)
    assert "\n" not in str(caught.value)


def test_new_options_are_read_back(tmp_path: Path) -> None:
    options = TrainOptions(host=["a:1", "b:2"], reconnect=5.0, save_minutes=1, keep=5, max_restarts=0)
    (tmp_path / "config.yaml").write_text(options.as_yaml())
    assert resolve({}, None, base=read_config(tmp_path / "config.yaml")) == options


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, 256), ({"num_engines": 4}, 256), ({"num_envs": 2, "num_engines": 2}, 128), ({"num_envs": 12}, 192),
     ({"hyperparameters": {"n_steps": 8}}, 64), ({"hyperparameters": {"batch_size": 100}}, 100)],
)  # fmt: skip
def test_the_known_good_batch_size_fits_the_number_of_envs(given: dict[str, Any], expected: int) -> None:
    assert tuned_for(TrainOptions(**given))["batch_size"] == expected
