"""A resumed run's options: applied and said, or refused by name; and the engine that it goes on with."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ue_rl.protocol.spec import ActionSpec, EnvSpec
from ue_rl.protocol.text.handshake import decode_handshake, encode_handshake
from ue_rl.system.errors import ConfigurationError
from ue_rl.training import comparison
from ue_rl.training.algorithms import ALGORITHMS
from ue_rl.training.comparison import check_engine, check_order, compare
from ue_rl.training.config import resolve
from ue_rl.training.hyperparameters import APPLIED
from ue_rl.training.options import ROWS, TrainOptions
from ue_rl.training.rows import APPLIED as MAY_CHANGE
from ue_rl.training.rows import UNSAID

RUN = Path("runs/mine")


def saved(**options: Any) -> dict[str, Any]:
    return dict(yaml.safe_load(resolve(options, None).as_yaml()))


def compared(before: dict[str, Any], **flags: Any) -> comparison.ResumePlan:
    return compare(before, resolve(flags, None, base=before), RUN)


def test_every_option_keeps_its_rule() -> None:
    """A new one need not stand here: its own test says what becomes of it."""
    assert set(APPLIED) == set(ALGORITHMS)
    # the last two are of a folder of runs
    unsaid = {"log_dir", "run_id", "hyperparameters", "seeds", "jobs"}
    of_model = {"backend", "algo", "policy", "prefill", "overlap", "rnd", "init_from", "seed", "gail", "bc", "her"}
    of_env = {"env", "env_wrapper", "frame_stack", "group", "self_play", "normalize", "vecnormalize"}
    may_change = (
        "env_kwargs engine num_engines num_envs num_env_runners ray_address num_learners num_gpus_per_learner "
        "start_timeout restarts url reconnect wait transport channel nul_terminated token_file timeout timesteps "
        "learner callback max_episode_steps params time_scale curriculum others device threads log_to save_freq "
        "save_interval keep save_replay_buffer eval_freq eval_episodes eval_url stop_at_return video_freq export trace "
        "metrics trace_size verbose"
    )
    assert {name for name in unsaid if ROWS[name].resume != UNSAID} == set()
    assert {name for name in of_model | of_env if ROWS[name].resume in (MAY_CHANGE, UNSAID)} == set()
    assert {name for name in may_change.split() if ROWS[name].resume != MAY_CHANGE} == set()


def test_nothing_changed_is_nothing_said() -> None:
    before = saved(algo="sac", url="a:7", hyperparameters={"buffer_size": 500, "gamma": 0.9, "train_freq": [1, "step"]})
    options, said, load = compared(before, log_dir="/elsewhere", run_id="mine")
    assert said == []
    assert load == {"gamma": 0.9, "train_freq": (1, "step")}
    assert options.hyperparameters["buffer_size"] == 500


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"timesteps": 5}, "timesteps: 100000 before, 5 now"),
        ({"save_freq": 7}, "save_freq: 0 before, 7 now"),
        ({"url": "a:9"}, "url: none before, tcp://a:9 now"),
        ({"nul_terminated": True}, "nul_terminated: none before, True now"),
        ({"num_engines": 4}, "num_engines: 1 before, 4 now"),
        ({"params": {"wind": 2.0}}, "params: none before, {'wind': 2.0} now"),
        ({"hyperparameters": {"learning_rate": 0.1}}, "learning_rate: lin_0.001 before, 0.1 now"),
        ({"hyperparameters": {"ent_coef": 0.1}}, "ent_coef: the default before, 0.1 now"),
    ],
)
def test_what_may_change_is_said(flags: dict[str, Any], text: str) -> None:
    assert text in compared(saved(), **flags).said


def test_what_applies_to_the_model_is_given_to_it() -> None:
    load = compared(saved(), hyperparameters={"gamma": 0.5, "learning_rate": "lin_0.1"}).load
    assert (load["gamma"], load["learning_rate"](0.5), load["n_steps"]) == (0.5, 0.05, 32)


@pytest.mark.parametrize(
    ("flags", "field", "cure"),
    [
        ({"algo": "a2c"}, "algo", "those of ppo"),
        ({"policy": "CnnPolicy"}, "policy", "Leave it out"),
        ({"seed": 3}, "seed", "--init-from runs/mine"),
        ({"env": "Acrobot-v1"}, "env", "--init-from runs/mine"),
        ({"normalize": True}, "normalize", "--init-from runs/mine"),
        ({"group": "red"}, "group", "--init-from"),
        ({"self_play": {"save_steps": 5}}, "self_play", "--init-from"),
        ({"init_from": "x.zip"}, "init_from", "its own weights"),
        ({"hyperparameters": {"policy_kwargs": {"net_arch": [4]}}}, "hyperparameters.policy_kwargs", "--init-from"),
        ({"hyperparameters": {"gama": 1}}, "hyperparameters.gama", "Did you mean 'gamma'"),
    ],
)
def test_what_cannot_change_is_refused_by_name(flags: dict[str, Any], field: str, cure: str) -> None:
    with pytest.raises(ConfigurationError, match="a run that is resumed cannot change it") as caught:
        compared(saved(), **flags)
    assert (caught.value.field, caught.value.fault) == (field, "caller")
    assert cure in str(caught.value)


@pytest.mark.parametrize("hyper", [{"buffer_size": 5}, {"ent_coef": 0.1}, {"gamma": 0.5, "n_steps": 3}])
def test_what_a_replay_buffer_has_in_it_cannot_change(hyper: dict[str, Any]) -> None:
    before = saved(algo="sac", hyperparameters={"n_steps": hyper.get("n_steps", 1)})
    with pytest.raises(ConfigurationError, match="cannot change it"):
        compared(before, hyperparameters=hyper)


def test_the_same_env_by_its_name_is_no_change() -> None:
    assert compared(saved(), env="CartPole-v1").said == []
    assert compared(saved(env="CartPole-v1"), env="CartPole-v1").said == []


def test_an_engine_of_another_kind_keeps_the_runs_hyperparameters() -> None:
    """CartPole's own are the defaults of an engine that is hosted here, and the model was made with them."""
    before = saved(hyperparameters={"n_epochs": 3})
    options, said, load = compared(before, url="farm", hyperparameters={"gamma": 0.9})
    assert said == ["url: none before, tcp://farm:7777 now", "gamma: 0.98 before, 0.9 now"]
    assert options.hyperparameters["learning_rate"] == "lin_0.001"
    assert (load["n_steps"], load["n_epochs"], load["gamma"]) == (32, 3, 0.9)
    again = compared(asdict(options))
    assert (again.said, set(again.load)) == ([], set(load))


def shake(path: Path, spec: EnvSpec) -> Path:
    (path / "handshake.txt").write_bytes(encode_handshake(spec))
    return path / "handshake.txt"


SPEC = EnvSpec(obs_size=4, act_size=2, num_envs=8)


def test_the_same_engine_is_none_to_speak_of(tmp_path: Path) -> None:
    path = shake(tmp_path, SPEC)
    assert check_engine(TrainOptions(), SPEC, path) == []
    assert check_engine(TrainOptions(), replace(SPEC, shm="x", features=frozenset({"SEED"})), path) == []
    assert check_engine(TrainOptions(), SPEC, tmp_path / "none") == []
    path.write_text("torn")
    assert check_engine(TrainOptions(), SPEC, path) == []
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigurationError, match=r"handshake\.txt cannot be read.*not an ordinary file.*Move it away"):
        check_engine(TrainOptions(), SPEC, path)


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        (EnvSpec(5, 2, num_envs=8), "OBS", "expected 4; got 5"),
        (EnvSpec(4, 3, num_envs=8), "ACT", "expected 2; got 3"),
        (EnvSpec(4, 2, num_envs=8, action=ActionSpec.box(2, low=-2, high=2)), "ACT_SPACE", r"got BOX\(-2:2"),
        (EnvSpec(4, 2, num_envs=8, obs_low=(0.0,), obs_high=(1.0,)), "OBS_SPACE", r"expected nothing; got BOX\(0:1\)"),
    ],
)
def test_another_game_is_refused_by_what_differs(tmp_path: Path, spec: EnvSpec, field: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match="not the one that the run was trained in") as caught:
        check_engine(TrainOptions(), spec, shake(tmp_path, SPEC))
    assert caught.value.field == field
    assert re.search(said, str(caught.value))


NAMED = replace(SPEC, obs_names=("x", "y", "speed", "fuel"), act_names=("turn", "run"))


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        ({"obs_names": ("x", "speed", "y", "fuel")}, "OBS_NAMES); expected y at 1; got speed at 1"),
        ({"act_names": ("run", "turn")}, "ACT_NAMES); expected turn at 0; got run at 0"),
        ({"obs_names": ("x", "y", "velocity", "fuel")}, None),
        ({"obs_names": ()}, None),
    ],
    ids=["observations", "actions", "renamed", "silent"],
)
def test_the_same_numbers_in_another_order_are_refused(
    tmp_path: Path, names: dict[str, tuple[str, ...]], refused: str | None
) -> None:
    path, now = shake(tmp_path, NAMED), replace(NAMED, **names)  # type: ignore[arg-type]
    for look in (
        lambda: check_engine(TrainOptions(), now, path),
        lambda: check_order(tmp_path / "checkpoints" / "0001_9_steps" / "model.zip", now),
    ):
        if refused is None:
            look()
            continue
        with pytest.raises(ConfigurationError) as caught:
            look()
        assert refused in str(caught.value)
    path.write_text("torn")
    check_order(tmp_path / "model.zip", now)
    path.unlink()
    path.mkdir()  # somebody else's: who plays needs none
    check_order(tmp_path / "model.zip", now)


def test_the_numbers_of_parts_move_with_them(tmp_path: Path) -> None:
    def game(*parts: str) -> EnvSpec:
        sizes = {"a": 2, "b": 1}
        names = ",".join(f"{part}{i}" for part in parts for i in range(sizes[part]))
        space = ",".join(f"{part}:BOX(0:1)[{sizes[part]}]" for part in parts)
        return decode_handshake(f"CONFIG:OBS=3;ACT=1;VERSION=1;OBS_SPACE=DICT({space});OBS_NAMES={names}".encode())

    shake(tmp_path, game("a", "b"))
    check_order(tmp_path / "model.zip", game("b", "a"))


def test_another_number_of_envs_is_for_algorithms_without_a_replay_buffer(tmp_path: Path) -> None:
    path, wider = shake(tmp_path, SPEC), replace(SPEC, num_envs=16)
    (said,) = check_engine(TrainOptions(), wider, path)
    assert "8 before, 16 now" in said
    with pytest.raises(ConfigurationError, match=r"replay buffer.*expected 8; got 16.*Run 8 envs in all"):
        check_engine(TrainOptions(algo="sac"), wider, path)
