"""TrainOptions: what each option may be, what excludes what, and malformed settings; all said by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ue_rl.cli.common import WrongCommandLine
from ue_rl.cli.train import train
from ue_rl.connections.launching.template import program_of
from ue_rl.system.errors import ConfigurationError
from ue_rl.training.checks import without_use
from ue_rl.training.config import parse_setting, read_config, resolve
from ue_rl.training.hyperparameters import tuned_for
from ue_rl.training.options import DEFAULTS, ROWS, TrainOptions, plain


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("timesteps", 0, "a positive integer"),
        ("timesteps", True, "a positive integer"),
        ("keep", 0, "a positive integer"),
        ("num_engines", 2.5, "a positive integer"),
        ("restarts", -1, "TIMES/WINDOW"),
        ("restarts", "10/soon", "TIMES/WINDOW"),
        ("restarts", "1/0s", "TIMES/WINDOW"),
        ("restarts", True, "TIMES/WINDOW"),
        ("seed", -1, "from 0 to"),
        ("timeout", 0, "duration above 0"),
        ("start_timeout", "soon", "duration above 0"),
        ("start_timeout", float("inf"), "duration above 0"),
        ("reconnect", float("nan"), "duration from 0"),
        ("save_interval", -1, "duration from 0"),
        ("normalize", "no", "true or false"),
        ("run_id", 7, "text"),
        ("engine", " ", "text"),
        ("url", [], "a list of them"),
        ("url", ["a:1", 2], "a list of them"),
        ("env_kwargs", [1], "a mapping"),
        ("transport", "udp", "auto, tcp, shm"),
        ("channel", ["auto"], "auto, shared, per-env"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(name: str, value: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"must be .*{text}") as caught:
        resolve({name: value}, None)
    assert (caught.value.field, caught.value.got) == (name, value)


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        ({"env": "CartPole-v1", "url": "a"}, "env"),
        ({"engine": "game", "url": "a"}, "engine"),
        ({"engine": "game", "env": "CartPole-v1"}, "engine"),
        ({"url": "a", "num_engines": 2}, "num_engines"),
        ({"url": ["a:7777", "a?channel=shared"]}, "url"),
        ({"url": "a", "eval_freq": 9}, "eval_freq"),
        ({"url": "a", "eval_freq": 9, "eval_url": "a:7777"}, "eval_url"),
        ({"eval_url": "a"}, "eval_url"),
        ({"eval_freq": 9, "eval_episodes": 0}, "eval_episodes"),
        ({"url": "a", "eval_url": "b", "eval_freq": 9, "group": "red"}, "eval_freq"),
        ({"video_freq": 9, "overlap": True}, "video_freq"),
        ({"jobs": 2}, "jobs"),
        ({"seeds": 2, "url": "a"}, "url"),
        ({"seeds": 2, "eval_url": "a", "eval_freq": 9}, "eval_url"),
        ({"seeds": 2, "trace": "a.trace"}, "trace"),
        ({"seeds": 2, "metrics": "9090"}, "metrics"),
        ({"stop_at_return": float("nan")}, "stop_at_return"),
        ({"normalize": {"norm_rewards": True}}, "normalize.norm_rewards"),
        ({"callback": "no dots"}, "callback"),
        ({"eval_freq": 9, "backend": "rllib"}, "eval_freq"),
    ],
)
def test_what_does_not_go_together_is_named(flags: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve(flags, None)
    assert (caught.value.field, caught.value.fault) == (field, "caller")


def test_engines_of_every_kind_have_a_name() -> None:
    for flags, urls, name in (
        ({}, [], "ppo-CartPole-v1"),
        ({"env": "ALE/Pong-v5"}, [], "ppo-ALE-Pong-v5"),
        ({"url": "127.0.0.1:9"}, ["tcp://127.0.0.1:9"], "ppo-127.0.0.1-9"),
        ({"url": "walk"}, ["tcp://walk:7777"], "ppo-walk-7777"),
        ({"url": "shm:///tmp/walk"}, ["shm:///tmp/walk"], "ppo-tmp-walk"),
        ({"url": ["a:1?wait=1min"]}, ["tcp://a:1?wait=60s"], "ppo-a-1"),
        ({"url": ["a:1", "::1", "shm://x"]}, ["tcp://a:1", "tcp://[::1]:7777", "shm://x"], "ppo-a-1-and-2-more"),
        ({"engine": "godot:/games/the walker.x86_64", "num_engines": 4}, [], "ppo-the-walker"),
        ({"engine": "python -u game/walk.py --port {port}"}, [], "ppo-walk"),
    ):
        options = resolve(flags, None)
        assert (options.urls, options.run_name, options.embedded) == (urls, name, not urls and not options.engine)
    assert program_of(r"C:\Games\Walker.exe -port {port}") == "Walker"
    assert program_of("unreal-editor:/home/me/Walker.uproject") == "Walker"
    assert program_of("python3.11") == "python3"


def test_a_later_engine_of_another_kind_replaces_the_earlier() -> None:
    saved = {"engine": "game", "num_engines": 4, "url": None, "env": None}
    options = resolve({"url": "a"}, None, base=saved)
    assert (options.engine, options.num_engines, options.urls) == (None, 1, ["tcp://a:7777"])
    options = resolve({"engine": "game2"}, None, base={"url": "a"})
    assert (options.engine, options.url) == ("game2", None)
    assert resolve({"num_engines": 2}, None, base=saved).num_engines == 2


def test_a_row_of_the_table_is_a_flag() -> None:
    """And the other way round, but for what is no option of a run, or a part of `hyperparameters`."""
    own = {"config", "resume", "force", "trust", "ui", "log_format", "written_here", "url", "port", "page", "headless"}
    parts = {"net_arch", "learning_rate", "n_steps", "batch_size", "settings"}
    assert {flag.name for flag in train.params} - own - parts == {name for name, row in ROWS.items() if row.help}
    assert list(ROWS) == list(DEFAULTS)


ANY = {"env": {"env": "CartPole-v1"}, "engine": {"engine": "x {port}"}, "url": {"url": "a"}}
OF_SOME = [
    (name, kind)
    for name, row in ROWS.items()
    if row.engines is not None
    for kind in sorted(ANY.keys() - set(row.engines.kinds))
]


def another(name: str) -> Any:
    """A value that the option may have, and that is not its default."""
    return next(value for value in (True, {"x": 1}, "3/60s", 9) if ROWS[name].kind.fits(value))


@pytest.mark.parametrize(("name", "kind"), OF_SOME)
def test_an_option_of_other_engines_is_refused_or_told_of(name: str, kind: str) -> None:
    row = ROWS[name]
    given = {**ANY[kind], name: another(name)}
    if row.tolerated:
        assert without_use(resolve(given, None)) == [f"{name} has no effect: {row.elsewhere}"]
        return
    with pytest.raises(ConfigurationError, match=f"{name} has no effect here: it is for") as caught:
        resolve(given, None)
    assert (caught.value.field, caught.value.got, caught.value.cure) == (name, another(name), row.elsewhere)


@pytest.mark.parametrize(("name", "kind"), OF_SOME)
def test_an_option_of_other_engines_goes_with_them(name: str, kind: str) -> None:
    engines = ROWS[name].engines
    assert engines is not None
    before = {**ANY[engines.kinds[0]], name: another(name)}
    assert getattr(resolve(ANY[kind], before), name) == DEFAULTS[name]


def test_what_starts_something_is_known() -> None:
    """A stranger's file of options needs trust for these; a new option says of itself whether it does."""
    starting = {"engine", "env", "env_kwargs", "env_wrapper", "callback", "trace", "ray_address"}
    assert starting <= {name for name, row in ROWS.items() if row.starts}


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


@pytest.mark.parametrize(
    ("key", "cure"),
    [
        ("host: a", "Write url: tcp://HOST:PORT"),
        ("port: 7777", "Write url: tcp://127.0.0.1:PORT"),
        ("start_timout: 5", "Did you mean 'start_timeout'?"),
    ],
)
def test_a_key_that_is_another_one_is_named(key: str, cure: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"algo: ppo\n{key}\n", "utf-8")
    with pytest.raises(ConfigurationError, match="unknown key") as caught:
        read_config(path)
    assert caught.value.field == key.partition(":")[0]
    assert cure in str(caught.value)


def test_durations_and_quotas_are_read_as_people_write_them(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("timeout: 2min\nrestarts: 3/5min\nchannel: per-env\nurl: [a, 'b:1?wait=1min']\n", "utf-8")
    options = resolve({"start_timeout": "500ms"}, path)
    assert (options.timeout, options.restarts, options.channel) == (120.0, "3/5min", "per_env")
    assert (options.start_timeout, options.urls) == (0.5, ["tcp://a:7777", "tcp://b:1?wait=60s"])


@pytest.mark.parametrize(
    "options",
    [
        TrainOptions(url=["a:1", "b:2?channel=per-env"], reconnect="5min", save_interval=1, keep=5, restarts=0),
        TrainOptions(backend="rllib", num_learners=2, ray_address="auto"),
        TrainOptions(params={"wind": (0, 2)}, curriculum=({"params": {"wind": (1, 2)}},)),  # of a script
    ],
)
def test_options_are_read_back(options: TrainOptions, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(options.as_yaml())
    again = resolve({}, None, base=read_config(tmp_path / "config.yaml"))
    assert plain(vars(again)) == plain(vars(options))
    assert resolve({}, tmp_path / "config.yaml") == again


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, 256), ({"num_engines": 4}, 256), ({"num_envs": 2, "num_engines": 2}, 128), ({"num_envs": 12}, 192),
     ({"hyperparameters": {"n_steps": 8}}, 64), ({"hyperparameters": {"batch_size": 100}}, 100)],
)  # fmt: skip
def test_the_known_good_batch_size_fits_the_number_of_envs(given: dict[str, Any], expected: int) -> None:
    assert tuned_for(TrainOptions(**given))["batch_size"] == expected


@pytest.mark.parametrize("words", ["--algo dqn --rnd 0.1", "--algo sac --gail x", "--prefill x", "--rnd 1 --overlap"])
def test_teaching_that_does_not_fit_is_refused_before_a_folder_is_made(words: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(train, [*words.split(), "--log-dir", str(tmp_path / "runs")])
    assert isinstance(done.exception, WrongCommandLine)  # exit code 2
    assert "does not go with this run" in str(done.exception)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("given", "cure"),
    [
        ({"url": "a", "env_kwargs": {"x": 1}}, "--env"),
        ({"engine": "x {port}", "env_kwargs": {"x": 1}}, "--env"),
        ({"engine": "x {port}", "reconnect": 60}, "--restarts"),
        ({"env": "CartPole-v1", "wait": 5}, "--start-timeout"),
        ({"trace_size": 5}, "--trace FILE"),
        ({"init_from": "x.zip", "policy": "MlpPolicy"}, "--init-from"),
    ],
)
def test_what_would_have_no_effect_is_refused(given: dict[str, Any], cure: str) -> None:
    with pytest.raises(ConfigurationError, match="has no effect here") as caught:
        resolve(given, None)
    assert caught.value.field == list(given)[1 if len(given) > 1 and "policy" not in given else -1]
    assert cure in str(caught.value.cure)


def test_limits_that_have_no_effect_are_said() -> None:
    options = resolve({"url": "a", "num_envs": 64, "start_timeout": 9, "restarts": "3/60s"}, None)
    assert [text.partition(" ")[0] for text in without_use(options)] == ["num_envs", "start_timeout", "restarts"]
    assert without_use(resolve({"url": "a", "restarts": "3/60s", "reconnect": 60}, None)) == []
    assert without_use(resolve({"start_timeout": 9, "restarts": "3/60s"}, None)) == []


def test_what_a_file_says_of_an_engine_of_another_kind_goes_with_it() -> None:
    file = {"engine": "x {port}", "num_envs": 64, "num_engines": 2, "start_timeout": 9, "restarts": "3/60s"}
    options = resolve({"url": "a"}, file)
    assert (options.num_envs, options.num_engines, options.start_timeout) == (8, 1, 120.0)
    assert resolve({"env": "CartPole-v1"}, {"url": "a", "reconnect": 60, "wait": 5}).wait == 0
    assert resolve({"url": "b", "backend": "rllib"}, {"num_envs": 64}).num_envs == 64
    assert resolve({"url": "b"}, {"url": "a", "reconnect": 60, "restarts": "3/60s"}).restarts == "3/60s"


@pytest.mark.parametrize("name", ["a run", "ü \U0001f600", "~", "x: y", os.fsdecode(b"\xff"), "a\nb", "word " * 60])
def test_whatever_a_folder_is_called_is_read_back(tmp_path: Path, name: str) -> None:
    """Also one whose bytes are no UTF-8."""
    config = tmp_path / "config.yaml"
    config.write_text(TrainOptions(log_dir=name).as_yaml(), "utf-8")
    assert read_config(config)["log_dir"] == name
