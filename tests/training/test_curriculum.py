"""The curriculum: its lessons as given, when they change, what envs then get, and that it is worth having."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

import ue_rl
from samples.curriculum.climb import HEIGHT, Climb
from tests.harness.scripted_agents import ACTS, ENDS, GONE, World, spec_of
from tests.support.command_line import ok, refused
from tests.training.test_lessons import LESSONS
from ue_rl.bridges import ShmUpgrader, run_in_thread
from ue_rl.cli.do_nothing import DoNothingBridge
from ue_rl.devtools.testing.memory import MemoryTransport
from ue_rl.envs.agents import GroupVecEnv
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.protocol.calls.parameters import as_ranges, check_ranges
from ue_rl.protocol.spec import Parameter
from ue_rl.system import errors
from ue_rl.training import Curriculum, TrainOptions, train
from ue_rl.training.config import resolve
from ue_rl.training.kinds import parse_param
from ue_rl.training.lessons import parse_curriculum

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "curriculum" / "climb.yaml"


def climb(num_envs: int = 4) -> UnrealVecEnv:
    bridge = Climb(num_envs)
    bridge.announce()  # as a host does
    return UnrealVecEnv(MemoryTransport(bridge))


# -- when a lesson is learnt


class Steps:
    """Calls a Curriculum as learn() does."""

    def __init__(self, lessons: Any, num_envs: int = 2, **options: Any) -> None:
        self.env = climb(num_envs)
        self.model = PPO("MlpPolicy", self.env, n_steps=8, batch_size=8, device="cpu")
        self.said: list[str] = []
        self.curriculum = Curriculum(lessons, tell=self.said.append, **options)
        self.model._setup_learn(1000, callback=None)
        self.curriculum.attach(self.env)
        self.curriculum.init_callback(self.model)
        self.curriculum.on_training_start({}, {})

    def step(self, *infos: dict[str, Any] | None) -> int:
        """One step of all envs; a dict is the info of an episode that ends. The index of the lesson afterwards."""
        self.model.num_timesteps += len(infos)
        self.curriculum.locals = {
            "infos": [info or {} for info in infos],
            "dones": np.array([info is not None for info in infos]),
        }
        self.curriculum.on_step()
        return self.curriculum.courses[0].at


def episode(value: float = 1.0, success: bool | None = None) -> dict[str, Any]:
    info: dict[str, Any] = {"episode": {"r": value, "l": 1, "t": 0.0}}
    return info if success is None else {**info, "is_success": success}


def three(**criteria: Any) -> list[dict[str, Any]]:
    done = {"measure": "reward", "threshold": 0.5, "min_lesson_length": 3, "signal_smoothing": False, **criteria}
    return [{"name": name, "params": {"height": n}, "completion_criteria": done} for n, name in enumerate("abc", 1)]


def test_an_episode_of_the_lesson_before_does_not_count() -> None:
    steps = Steps(three())
    assert steps.step(episode(), episode()) == 0
    assert steps.step(episode(), None) == 1
    # Both envs are in an episode that began before the lesson did: the first end of each says nothing of it.
    assert steps.step(episode(), episode()) == 1
    assert steps.step(episode(), episode()) == 1
    assert steps.step(None, episode()) == 2


def test_a_row_that_waits_for_its_agent_ends_no_episode(caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps(three())
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            assert steps.step({"inactive": True}, None) == 0
    assert not caplog.records
    assert steps.step(episode(), episode()) == 0
    assert steps.step(None, episode()) == 1
    assert steps.step({"inactive": True}, None) == 1  # its agent's episode is still that of the lesson before
    assert steps.step(episode(), episode()) == 1
    assert steps.step(episode(), episode()) == 1
    assert steps.step(None, episode()) == 2


def test_agents_that_come_back_count_for_the_lesson_that_their_env_was_reset_with() -> None:
    """Agent 0 of each env ends in every other step and comes back; an env's episode takes 12 steps."""

    def script(env: int, episode: int, time: int) -> list[int]:
        if time == 12:
            return [GONE, ENDS]
        return [[ACTS, ENDS, GONE][time % 3], ACTS]

    world = World(replace(spec_of(2, {"a": 2}), parameters=(Parameter("height", 1.0, 1.0, 40.0),)), script)
    env = GroupVecEnv(world)
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=8, device="cpu")
    curriculum = Curriculum(three(threshold=-100))
    model._setup_learn(1000, callback=None)
    curriculum.attach(env)
    curriculum.init_callback(model)
    env.reset()
    curriculum._on_training_start()
    lessons = []
    for _ in range(40):
        _, _, dones, infos = env.step(np.zeros((4, 2), np.float32))
        curriculum.locals = {"dones": dones, "infos": infos}
        curriculum.on_step()
        lessons.append(curriculum.courses[0].at)
    # Two ends each at steps 1 and 4: the second lesson, which holds from the resets at step 12 on; then at 13 and 16.
    assert [lessons.index(lesson) + 1 for lesson in (0, 1, 2)] == [1, 4, 16]


def test_the_mean_is_that_of_the_last_episodes() -> None:
    steps = Steps(three())
    assert steps.step(episode(-100), episode(0.6)) == 0
    assert steps.step(episode(0.6), None) == 0
    assert steps.step(episode(0.6), None) == 1


def test_success_is_the_share_of_is_success() -> None:
    steps = Steps(three(measure="success", threshold=0.6))
    assert steps.step(episode(0, True), episode(0, False)) == 0
    assert steps.step(episode(0, False), episode(0, True)) == 0
    assert steps.step(episode(0, True), None) == 1


def test_a_measure_that_the_engine_does_not_give_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    steps = Steps(three(measure="success", threshold=0.6))
    with caplog.at_level(logging.WARNING):
        for _ in range(10):
            assert steps.step(episode(), episode()) == 0
    assert len(caplog.records) == 1
    assert "needs is_success in the engine's INFO" in steps.said[-1]


def test_progress_is_the_share_of_the_run() -> None:
    steps = Steps(three(measure="progress", min_lesson_length=1), timesteps=20)
    assert steps.step(episode(), None) == 0
    for _ in range(4):
        assert steps.step(None, None) == 0
    assert steps.step(None, None) == 1  # 12 of 20


# -- what envs get


def test_a_lesson_s_values_go_with_resets_and_repeat_with_the_seed() -> None:
    def heights(seed: int) -> list[float]:
        env = climb(3)
        Curriculum([{"params": {"height": [1, 40]}}], seed=seed).attach(env)
        env.reset()
        drawn = [*env.transport.bridge.height]  # type: ignore[attr-defined]
        env.reset()
        return [*drawn, *env.transport.bridge.height]  # type: ignore[attr-defined]

    assert heights(1) == heights(1) != heights(2)
    assert len(set(heights(1))) == 6  # each env, each episode


def test_lessons_stand_over_what_is_randomised_anyway() -> None:
    env = climb(2)
    env.transport.draw_parameters = lambda env_id: {"height": 7.0, "other": 1.0}  # type: ignore[attr-defined]
    curriculum = Curriculum([{"params": {"height": 2}}])
    curriculum.attach(env)
    assert curriculum.draw(0) == {"height": 2.0, "other": 1.0}


def test_what_is_randomised_later_goes_under_the_lessons() -> None:
    env = climb(2)
    for lesson in (2, 3):  # two curricula, one over the other
        Curriculum([{"params": {"height": lesson}}]).attach(env)
    heights = env.transport.bridge.height  # type: ignore[attr-defined]
    for ranges in ({}, {"height": (7.0, 7.0)}, None):
        env.randomize(ranges)
        env.reset()
        assert {*heights.tolist()} == {3.0}
    alone = climb(2)
    alone.randomize({"height": 7.0})
    alone.randomize({})
    alone.reset()
    assert {*alone.transport.bridge.height.tolist()} == {HEIGHT[1]}  # type: ignore[attr-defined]


def test_what_the_engine_cannot_set_is_refused_before_training() -> None:
    with pytest.raises(errors.UnsupportedByEngine, match="no parameters that a trainer may set"):
        Curriculum(LESSONS).attach(UnrealVecEnv(MemoryTransport(DoNothingBridge(2))))
    with pytest.raises(errors.UnsupportedByEngine, match=r"(?si)no such parameter.*did you mean 'height'"):
        Curriculum([{"params": {"heigth": 1}}]).attach(climb())
    with pytest.raises(errors.ConfigurationError, match=r"(?s)out of range: height.*lesson 1.*1 to 40"):
        Curriculum([{"params": {"height": [1, 41]}}]).attach(climb())


def test_in_a_script_learn_alone_is_enough_in_wrappers_too() -> None:
    env = VecNormalize(climb())
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=64, n_epochs=1, device="cpu", seed=0)
    said: list[str] = []
    model.learn(512, callback=Curriculum(LESSONS, seed=0, tell=said.append))
    assert said[0].startswith("lesson 1 of 2, 'low': height 1")
    assert "lesson 2 of 2, 'high': height 2..3, from" in said[1]
    heights = env.unwrapped.transport.bridge.height  # type: ignore[attr-defined]
    assert ((heights >= 2) & (heights <= 3)).all()


def test_attached_twice_and_to_another_env() -> None:
    curriculum = Curriculum(LESSONS, seed=0)
    env = climb()
    curriculum.attach(env)
    curriculum.attach(env)
    env.reset()
    assert {*env.transport.bridge.height.tolist()} == {1.0}  # type: ignore[attr-defined]
    env = climb()
    PPO("MlpPolicy", env, n_steps=16, batch_size=64, n_epochs=1, device="cpu", seed=0).learn(64, callback=curriculum)
    env.reset()
    assert {*env.transport.bridge.height.tolist()} == {1.0}  # type: ignore[attr-defined]


def test_a_state_goes_on_where_it_was() -> None:
    one = Curriculum(three())
    one.courses[0].at = 2
    state = json.loads(json.dumps(one.state()))
    two = Curriculum(three())
    two.restore(state)
    assert two.courses[0].at == 2
    fewer = Curriculum([three()[2]])  # the lessons were edited: the name counts
    fewer.restore(state)
    assert fewer.courses[0].at == 0
    other = Curriculum(LESSONS)
    other.restore(state)
    assert other.courses[0].at == 0


# -- `ue-rl train`


@pytest.fixture
def served() -> Iterator[Callable[..., Any]]:
    with ExitStack() as stack:
        yield lambda bridge: stack.enter_context(run_in_thread(bridge, upgrader=ShmUpgrader()))


def config(tmp_path: Path, **values: Any) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"url": "127.0.0.1", "eval_episodes": 0, "export": False, **values}))
    return path


TINY = {"hyperparameters": {"n_steps": 32, "batch_size": 64, "n_epochs": 1}, "seed": 0, "device": "cpu"}


@pytest.mark.parametrize("transport", ["tcp", pytest.param("shm", marks=pytest.mark.exhaustive)])
def test_a_run_with_lessons_and_its_resumption(tmp_path: Path, served: Callable[..., Any], transport: str) -> None:
    bridge = Climb(4)
    port = served(bridge).port
    path = config(
        tmp_path, curriculum=LESSONS, timesteps=512, log_dir=str(tmp_path), run_id="r", transport=transport, **TINY
    )
    assert "lesson 2 of 2, 'high': height 2..3, from" in ok("train --config", path, "--port", port)
    assert "lesson 2 of 2" in (tmp_path / "r" / "run.log").read_text()
    table = (tmp_path / "r" / "progress.csv").read_text()
    assert "curriculum/lesson" in table
    assert "engine/holds_left" in table
    assert "engine/is_success" not in table
    lessons = json.loads((tmp_path / "r" / "curriculum.json").read_text())[""]
    assert (lessons["lesson"], lessons["name"]) == (1, "high")
    bridge.height[:] = 40
    output = ok(f"train --resume --run-id r --timesteps 640 --port {port} --log-dir", tmp_path)
    assert "lesson 2 of 2" in output
    assert "lesson 1 of 2" not in output
    assert ((bridge.height >= 2) & (bridge.height <= 3)).all()


@pytest.mark.parametrize("transport", ["shm", pytest.param("tcp", marks=pytest.mark.exhaustive)])
def test_parameters_of_a_run(tmp_path: Path, served: Callable[..., Any], transport: str) -> None:
    bridge = Climb(4)
    command = f"train --port {served(bridge).port} --transport {transport} --run-id r --log-dir '{tmp_path}'"
    path = config(tmp_path, timesteps=128, params={"height": [5, 6]}, **TINY)
    ok(f"{command} --param height=2..3 --config", path)
    assert ((bridge.height >= 2) & (bridge.height <= 3)).all()
    assert len(set(bridge.height)) > 1
    assert yaml.safe_load((tmp_path / "r" / "config.yaml").read_text())["params"] == {"height": [2.0, 3.0]}
    assert "parameters: height 2..3" in (tmp_path / "r" / "run.log").read_text()
    bridge.height[:] = 40
    ok(f"{command} --resume --timesteps 256")
    assert ((bridge.height >= 2) & (bridge.height <= 3)).all()


def test_an_engine_without_the_ability_is_told_of_by_name(tmp_path: Path, served: Callable[..., Any]) -> None:
    command = f"train --port {served(DoNothingBridge(2)).port} --no-export --n-steps 16 --timesteps 32 --batch-size 16"
    command += f" --log-dir '{tmp_path}'"
    assert "gravity" in str(refused(f"{command} --param gravity=3", by=errors.UnsupportedByEngine))
    assert not list(tmp_path.iterdir())
    assert ok(f"{command} --time-scale 4").count("the engine does not change its speed") == 1


def test_time_scale_reaches_the_game(tmp_path: Path, served: Callable[..., Any]) -> None:
    class Fast(Climb):
        scale = 1.0

        def set_time_scale(self, scale: float) -> None:
            self.scale = scale

    bridge = Fast(2)
    train(
        TrainOptions(url=served(bridge).url, timesteps=64, time_scale=4.0, log_dir=str(tmp_path), export=False, **TINY)
    )
    assert bridge.scale == 4.0


def test_param_on_the_command_line() -> None:
    assert parse_param("gravity=3") == ("gravity", 3.0)
    assert parse_param(" wind = -1..2.5 ") == ("wind", [-1.0, 2.5])
    for wrong in ("gravity", "=3", "gravity=", "gravity=a", "gravity=1..2..3"):
        with pytest.raises(errors.ConfigurationError, match="not a parameter"):
            parse_param(wrong)
    options = resolve({"params": {"wind": 1.0}}, None, base={"params": {"gravity": 3.0, "wind": [0, 2]}})
    assert options.params == {"gravity": 3.0, "wind": 1.0}
    with pytest.raises(errors.ConfigurationError, match="parameters are a mapping"):
        as_ranges([1], "params")
    check_ranges(Climb(1).announce(), {"height": (1.0, 40.0)}, "params")


def test_an_episode_of_a_lost_engine_says_nothing_of_what_the_env_lacks(caplog: pytest.LogCaptureFixture) -> None:
    said: list[str] = []
    curriculum = Curriculum(LESSONS, tell=said.append)
    assert curriculum._value("reward", {"engine_lost": "it went away"}) is None
    assert said == []
    assert curriculum._value("reward", {}) is None
    assert len(said) == 1
    assert "needs an env with monitor=True" in said[0]


# -- worth having


@pytest.mark.learning
@pytest.mark.exhaustive
@pytest.mark.timeout(240)
def test_a_curriculum_reaches_its_last_lesson_and_beats_none_on_the_same_budget() -> None:
    options = yaml.safe_load(SAMPLE.read_text())
    successes: dict[bool, float] = {}
    for taught in (True, False):
        env = climb(8)
        env.transport.bridge.set_parameter("height", HEIGHT[1], -1)  # type: ignore[attr-defined]
        model = PPO("MlpPolicy", env, seed=1, device="cpu", **options["hyperparameters"])
        curriculum = Curriculum(options["curriculum"], seed=1)
        if taught:
            curriculum.attach(env)
        model.learn(options["timesteps"], callback=curriculum if taught else None)
        assert curriculum.courses[0].is_last == taught
        env.transport.draw_parameters = None  # type: ignore[attr-defined]
        env.transport.bridge.set_parameter("height", HEIGHT[1], -1)  # type: ignore[attr-defined]
        mean, _ = evaluate_policy(model, env, n_eval_episodes=40, warn=False)
        successes[taught] = float(mean)  # type: ignore[arg-type]
    assert successes[True] >= 0.9
    assert successes[False] <= 0.1


def test_the_sample_is_a_valid_configuration() -> None:
    options = resolve({}, SAMPLE)
    (course_,) = parse_curriculum(options.curriculum)
    spec = Climb(1).announce()
    for lesson in course_.lessons:
        check_ranges(spec, lesson.params, "curriculum")
    assert ue_rl.__version__
