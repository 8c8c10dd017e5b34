"""`ue-rl train`: what it writes, what it refuses, and how it goes on."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import yaml
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback

import ue_rl
import ue_rl.training
from tests.support.command_line import ok, refused, run
from tests.training.conftest import DIALLED, TINY
from ue_rl.bridges import GymnasiumBridge, run_in_thread
from ue_rl.devtools.testing import Fault, FaultKind, FaultyEngine, Script
from ue_rl.system import errors
from ue_rl.training import TrainingReport, TrainOptions
from ue_rl.training.config import parse_setting, read_config, resolve
from ue_rl.training.directory import RunDirectory
from ue_rl.training.hyperparameters import schedule, tuned_for
from ue_rl.training.runs.listing import state_of


@pytest.fixture(scope="module")
def pendulum() -> Iterator[str]:
    with run_in_thread(GymnasiumBridge("Pendulum-v1", 2)) as engine:
        yield engine.url


@pytest.mark.usefixtures("drawn")
def test_a_run_leaves_everything_in_one_directory(tmp_path: Path) -> None:
    output = ok(f"{TINY} --run-id one --save-freq 50 --normalize --seed 1 --log-dir", tmp_path)
    run = RunDirectory(tmp_path / "one")
    for path in (run.config, run.model, run.onnx, run.normalize, run.episodes, run.curves, run.log):
        assert path.stat().st_size > 0, path
    assert (run.path / "progress.csv").exists()
    assert list(run.path.glob("events.out.tfevents*"))
    assert run.curves.read_bytes().startswith(b"\x89PNG")
    # counted in env-steps, at the starts of rollouts: at the beginning, the first one 50 later, and at the end
    saved = list(run.store().newest_first())
    assert [checkpoint.env_steps for checkpoint in saved] == [128, 64, 0]
    for checkpoint in saved:
        assert checkpoint.file("model.onnx")
        assert checkpoint.file("vecnormalize.pkl")
        assert PPO.load(checkpoint.path / "model.zip").num_timesteps == checkpoint.env_steps
    for name in ("model.zip", "model.onnx", "vecnormalize.pkl"):
        assert (run.path / name).read_bytes() == (saved[0].path / name).read_bytes()
    with run.episodes.open() as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert all(int(r["env_steps"]) <= 128 and float(r["return"]) == int(r["length"]) for r in rows)
    assert yaml.safe_load(run.config.read_text())["seed"] == 1
    shown = " ".join(output.replace("│", " ").split())
    said = "equal to predict(), largest difference"
    for name in ("model.zip", "curves.png", "evaluation", "last 100 episodes", said):
        assert name in shown


def test_resume_continues_the_count_and_keeps_the_first_part(tmp_path: Path, cartpole: str) -> None:
    ok(f"{DIALLED} --timesteps 128 --eval-episodes 0 --run-id r --normalize --no-export --log-dir", tmp_path, cartpole)
    before = (tmp_path / "r" / "episodes.csv").read_text()
    assert "256, of them 128 in" in ok("train --resume --run-id r --timesteps 256 --no-export --log-dir", tmp_path)
    model = PPO.load(tmp_path / "r" / "model.zip")
    assert model.num_timesteps == 256
    assert model.n_steps == 32  # the run's own options hold
    after = (tmp_path / "r" / "episodes.csv").read_text()
    assert after.startswith(before)
    assert len(after) > len(before)
    assert len(list((tmp_path / "r").glob("progress*.csv"))) == 1  # the same table goes on
    with (tmp_path / "r" / "progress.csv").open() as file:
        steps = [int(row["time/total_timesteps"]) for row in csv.DictReader(file)]
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (64, 256)


def test_a_finished_run_is_said_to_be_before_an_engine_is_started(
    tmp_path: Path, finished: Callable[[str], RunDirectory], cartpole: str
) -> None:
    run, command = finished("r"), f"train --resume --run-id r --eval-episodes 0 --no-export --log-dir '{tmp_path}'"
    unreachable = f"{command} --port 1"  # where nobody listens: an engine that was dialled would be another error
    for more in ("", "--timesteps 100"):
        text = str(refused(f"{unreachable} {more}"))
        assert "it has learnt 128" in text
        assert "--timesteps 256" in text
        assert "at fault" not in text
    assert "cannot change it" in str(refused(f"{unreachable} --algo a2c"))
    assert state_of(run) == "done", "what is refused changes nothing"
    output = ok(f"{command} --timesteps 192", cartpole)
    assert f"({len(run.episodes.read_text().splitlines()) - 1:,} in all)" in output


@pytest.mark.parametrize("damage", ["missing", "cut", "cut in its last mapping", "nonsense"])
def test_a_run_whose_config_is_broken_goes_on_with_a_checkpoints_copy(
    tmp_path: Path,
    finished: Callable[[str], RunDirectory],
    cartpole: str,
    damage: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = finished("ppo-CartPole-v1-1")
    text, options = run.config.read_text(), run.read_config()
    assert yaml.safe_load(text)["format"] == 1
    assert options["hyperparameters"]["n_steps"] == 32
    if damage == "missing":
        run.config.unlink()
    else:
        cut = {"cut": text[:300], "cut in its last mapping": text[: text.index("n_steps: 3") + 10], "nonsense": "\0"}
        run.config.write_text(cut[damage])
    found = RunDirectory.existing(tmp_path, None, "ppo-CartPole-v1")
    assert found.read_config() == options
    assert "the options are those of checkpoint" in caplog.text
    if damage == "cut":
        again = f"train --resume --run-id {run.path.name} --timesteps 192 --no-export --log-dir"
        assert "192, of them 64 in" in ok(again, tmp_path, cartpole)
        now = {"timesteps": 192, "log_dir": str(tmp_path), "url": cartpole, "run_id": run.path.name}
        assert RunDirectory(run.path).read_config() == {**options, **now}


def test_a_config_of_a_newer_version_is_refused(tmp_path: Path, finished: Callable[[str], RunDirectory]) -> None:
    config = finished("r").config
    config.write_text(config.read_text().replace("format: 1", "format: 2"))
    for words in ("--resume --run-id r", f"--config '{config}'", "--force --run-id r"):
        said = str(refused(f"train {words} --log-dir", tmp_path))
        assert "a newer version of ue_rl (field format); expected 1; got 2" in said
        assert "not a run" not in said


def test_a_replay_buffer_may_be_left_out_and_is_gone_on_with(tmp_path: Path) -> None:
    """A run that is resumed without a name is the newest of its task."""
    with run_in_thread(GymnasiumBridge("Pendulum-v1", 2)) as engine:
        sac = f"train --algo sac --port {engine.port} --no-export --log-dir '{tmp_path}'"
        few = "--net-arch 8 --set learning_starts=50 --set batch_size=16 --set train_freq=10"
        ok(f"{sac} --timesteps 80 --no-save-replay-buffer --save-interval 0 {few}")
        run = RunDirectory(tmp_path / f"sac-127.0.0.1-{engine.port}-1")
        assert run.read_config()["save_replay_buffer"] is False
        assert list(run.path.rglob("replay_buffer.pkl")) == []
        output = ok(f"{sac} --resume --timesteps 100 --save-replay-buffer")
        assert "save_replay_buffer: False before, True now" in output
        ok(f"{sac} --resume --timesteps 120")
    model = SAC.load(run.model)
    model.load_replay_buffer(run.replay)
    assert (model.num_timesteps, model.replay_buffer.size() * 2) == (120, 40), "what was learnt from since 80"
    assert model.replay_buffer.observations[:20].any(axis=2).all(), "no row is an empty one"


def test_a_forced_run_deletes_the_one_that_it_replaces(
    tmp_path: Path, finished: Callable[[str], RunDirectory], cartpole: str
) -> None:
    finished("x")
    (tmp_path / "x" / "mark").touch()
    ok(f"{DIALLED} --timesteps 64 --no-export --run-id x --force --log-dir", tmp_path, cartpole)
    assert not (tmp_path / "x" / "mark").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--algo pppo", "Did you mean 'ppo'"),
        ("--env NoSuchEnv-v9", "Gymnasium cannot make"),
        ("--algo dqn PENDULUM", "dqn needs a Discrete action space"),
        ("--algo sac CARTPOLE", "sac needs a Box action space"),
        ("--algo maskable_ppo CARTPOLE", "needs action masks"),
        ("--set gama=0.9", "ppo does not take these arguments"),
        ("--net-arch 64 --set policy_kwargs=3", "not arguments of a policy"),
        ("--set gamma=[1] --normalize", "PPO does not take this value (field hyperparameters.gamma)"),
        ("--set gamma=null --normalize", "expected a number; got None"),
        # Before an engine is dialled, where nobody listens.
        ("--set gamma=abc --port 1", "PPO does not take this value (field hyperparameters.gamma)"),
        ("--set gama=0.9 --port 1", "ppo does not take these arguments"),
        ("--port 1", "nothing listens on 127.0.0.1:1"),
        ("--env CartPole-v1 --port 9", "exclude each other"),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_leaves_nothing(
    tmp_path: Path, words: str, text: str, cartpole: str, pendulum: str
) -> None:
    words = words.replace("CARTPOLE", cartpole).replace("PENDULUM", pendulum)
    assert text in str(refused(f"train {words} --log-dir", tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_trains_in_a_running_engine(tmp_path: Path) -> None:
    with run_in_thread(GymnasiumBridge("Pendulum-v1", 2)) as engine:
        words = "train --algo td3 --timesteps 150 --set learning_starts=50 --max-episode-steps 20 --net-arch 8"
        words += " --no-export --log-dir"
        output = ok(words, tmp_path, f"tcp://127.0.0.1:{engine.port}?channel=per-env")
    assert "2 env sockets" in output
    assert (tmp_path / f"td3-127.0.0.1-{engine.port}-1" / "model.zip").exists()


def test_the_plugins_own_yaml(tmp_path: Path) -> None:
    config = tmp_path / "sb3_config.yaml"
    content = {
        "model": "ppo", "model_name": "walker", "load_from_checkpoint": False, "total_timesteps": 128,
        "checkpoint_freq": 100, "paths": {"save_dir": str(tmp_path / "saved"), "previous_model": "D:\\x\\y.zip"},
        "common_parameters": {"device": "cpu", "learning_rate": 0.003, "gamma": 0.9, "verbose": 0, "batch_size": 32},
        "on_policy": {"n_steps": 64, "gae_lambda": 0.9, "ent_coef": 0.0, "ppo": {"n_epochs": 2, "clip_range": 0.1}},
        "off_policy": {"buffer_size": 1000, "tau": 0.005, "learning_starts": 100, "sac": {"ent_coef": "auto"}},
    }  # fmt: skip
    config.write_text(yaml.safe_dump(content))
    with run_in_thread(GymnasiumBridge("CartPole-v1", 2)) as engine:
        ok("train --no-export --config", config, "--port", engine.port)
    model = PPO.load(tmp_path / "walker" / "model.zip")
    assert (model.gamma, model.n_steps, model.n_epochs, model.batch_size) == (0.9, 64, 2, 32)
    assert model.clip_range(1.0) == 0.1
    assert model.num_timesteps == 128
    content["common_parameters"]["gama"] = 1  # type: ignore[index]
    config.write_text(yaml.safe_dump(content))
    with pytest.raises(errors.ConfigurationError, match=r"common_parameters\.gama.*Did you mean 'gamma'"):
        read_config(config)
    content["common_parameters"].pop("gama")  # type: ignore[attr-defined]
    content |= {"model": "sac", "load_from_checkpoint": True}
    config.write_text(yaml.safe_dump(content))
    options = resolve({}, config)
    assert options.init_from == "D:\\x\\y.zip"
    assert options.hyperparameters["ent_coef"] == "auto"
    assert "n_steps" not in options.hyperparameters


def test_precedence_and_settings(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("algo: a2c\ntimesteps: 10\nhyperparameters: {gamma: 0.5, n_steps: 3}\n")
    options = resolve({"timesteps": 20, "hyperparameters": {"gamma": 0.7}}, config)
    assert (options.algo, options.timesteps, options.save_freq) == ("a2c", 20, 0)
    assert tuned_for(options) == {"gamma": 0.7, "n_steps": 3}
    assert tuned_for(resolve({}, None))["n_epochs"] == 20
    assert tuned_for(resolve({"url": "127.0.0.1:7777"}, None)) == {}
    shaped = resolve({"algo": "a2c", "hyperparameters": {"policy_kwargs": {"net_arch": [8]}}}, None)
    tuned_for(shaped)["policy_kwargs"]["optimizer_class"] = object  # as SB3's A2C does; it is no part of config.yaml
    assert shaped.hyperparameters == {"policy_kwargs": {"net_arch": [8]}}
    config.write_text(resolve({}, None).as_yaml())
    assert resolve({}, config) == resolve({}, None)
    config.write_text("algorithm: ppo\n")
    with pytest.raises(errors.ConfigurationError, match="algorithm"):
        resolve({}, config)
    for text, bad in (("{", "is not YAML"), ("- 1", "is not a YAML mapping")):
        config.write_text(text)
        with pytest.raises(errors.ConfigurationError, match=bad):
            resolve({}, config)
    assert parse_setting("learning_rate=3e-4") == ("learning_rate", 3e-4)
    assert parse_setting("ent_coef=auto") == ("ent_coef", "auto")
    assert parse_setting("policy_kwargs={net_arch: [8]}") == ("policy_kwargs", {"net_arch": [8]})
    assert schedule("lin_0.2")(0.5) == 0.1


def test_an_engines_text_is_printed_as_it_is(tmp_path: Path) -> None:
    with FaultyEngine(Fault(FaultKind.MALFORMED, step=9, text="[/x] :smile: \x1b[2J\u202e\r")) as engine:
        result = run(f"{DIALLED} --no-export --port {engine.port} --log-dir", tmp_path)
    assert result.exit_code == 1
    for text in ("[/x] :smile: \\x1b[2J\\u202e", "[at fault: engine]", "The model is saved"):
        assert text in result.output, result.output
    (folder,) = tmp_path.iterdir()
    assert "\x1b" not in result.output + (folder / "run.log").read_text()


def test_infos_of_a_game_under_sb3s_own_keys_are_kept_apart(tmp_path: Path) -> None:
    row = 'OBS=1,1,1,1;REW=1;DONE=0;ENV=0;INFO={"episode":12,"terminal_observation":1,"level":3}'
    script = Script(
        handshake="CONFIG:OBS=4;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=2;VERSION=1;FEATURES=INFO",
        faults=(Fault(FaultKind.MALFORMED, text=row),),
    )
    with FaultyEngine(script) as engine:
        ok(f"{DIALLED} --timesteps 64 --eval-episodes 0 --no-export --port {engine.port} --log-dir", tmp_path)
        with closing(ue_rl.connect(engine.url)) as env:
            env.reset()
            *_, infos = env.step(np.zeros((2, 2), np.float32))
    assert infos[0] == {"TimeLimit.truncated": False, "level": 3, "engine": {"episode": 12, "terminal_observation": 1}}


# -- the run itself, without a command line


def test_a_run_reports_to_its_caller(tmp_path: Path, cartpole: str) -> None:
    told: list[tuple[Any, ...]] = []

    class Listed(TrainingReport):
        def started(self, run: RunDirectory) -> None:
            told.append(("started", run.path.name))

        def connected(self, num_envs: int, facts: Mapping[str, str]) -> None:
            told.append(("connected", num_envs))
            assert "transport" in facts

        def progress(self, env_steps: int, total: int, mean_return: float | None) -> None:
            told.append((env_steps, total))

        def ended(self) -> None:
            told.append(("ended",))

    options = TrainOptions(
        timesteps=128,
        url=cartpole,
        log_dir=str(tmp_path),
        export=False,
        hyperparameters={"n_steps": 32, "batch_size": 32, "n_epochs": 1},
    )
    outcome = ue_rl.training.train(options, report=Listed())
    name = f"ppo-{cartpole.removeprefix('tcp://').replace(':', '-')}-1"
    assert told[:3] == [("started", name), ("connected", 2), (0, 128)]
    assert told[-2:] == [(128, 128), ("ended",)]
    assert (outcome.run.path, outcome.env_steps) == (tmp_path / name, 128)
    options.timesteps = 192
    assert ue_rl.training.train(options, resume=outcome.run).env_steps == 192
    for file in Path(str(ue_rl.training.__file__)).parent.glob("*.py"):
        assert not re.search(r"(import|from) (click|rich|ue_rl\.cli)", file.read_text("utf-8")), file


class Statistics(BaseCallback):
    """Notes VecNormalize of the last run, and what it had counted when learning was over."""

    seen: ClassVar[Any] = None
    count: ClassVar[float] = 0.0

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        Statistics.seen = self.model.get_vec_normalize_env()
        Statistics.count = Statistics.seen.obs_rms.count


def test_evaluation_leaves_the_statistics_as_they_were_trained(tmp_path: Path, cartpole: str) -> None:
    words = f"{DIALLED} --timesteps 128 --normalize --no-export --callback {__name__}:Statistics --log-dir"
    output = ok(words, tmp_path, cartpole)
    assert Statistics.seen.obs_rms.count == Statistics.count > 128
    found = re.search(r"mean return ([\d.]+) \+/- [\d.]+, without exploration", output)
    assert found is not None, output
    assert float(found[1]) >= 8
    assert float(found[1]) % 0.5 == 0, "of two episodes of CartPole, unless they were normalised"
