"""`ue-rl train`, `play`, `export` and `inspect` with the spaces of the handshake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import yaml
from gymnasium import spaces
from stable_baselines3 import PPO

from samples.agents.sumo import SumoBridge
from samples.curriculum.climb import Climb
from tests.support.command_line import ok, refused, run
from ue_rl.bridges import GymnasiumBridge, ShmUpgrader, run_in_thread
from ue_rl.cli.inspect_spaces import rows
from ue_rl.connections.dialling import open_transport
from ue_rl.envs.agents import GroupVecEnv
from ue_rl.inference import OnnxInference, export_onnx
from ue_rl.protocol.spec import AgentGroup, EnvSpec
from ue_rl.protocol.text.handshake import decode_handshake
from ue_rl.system import errors
from ue_rl.training import train
from ue_rl.training.config import resolve

TINY = "train --timesteps 32 --n-steps 8 --batch-size 16 --set n_epochs=1"
SMALL = "--net-arch 8 --eval-episodes 0"


class Spaces(gym.Env[Any, Any]):
    """Any spaces; observations are random, and an action must be of its space."""

    def __init__(self, observation: Any, action: Any) -> None:
        self.observation_space, self.action_space = observation, action

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.steps += 1
        return self.observation_space.sample(), 0.0, False, self.steps >= 8, {}


NAMED = spaces.Dict({"where": spaces.Box(-2, 2, (2, 2), np.float32), "weapon": spaces.Discrete(3, start=4)})
# names that torch's ModuleDict has itself or refuses
AWKWARD = spaces.Dict(
    {
        "arm.left": spaces.Box(-1, 1, (2,), np.float32),
        "forward": spaces.Discrete(3, start=1),
        "training": spaces.Box(-1, 1, (1,), np.float32),
        "type": spaces.Box(-1, 1, (3,), np.float32),
    }
)
PICTURE = spaces.Dict({"eye": spaces.Box(0, 255, (36, 36, 1), np.uint8), "speed": spaces.Box(-1, 1, (1,), np.float32)})
HYBRID = spaces.Dict({"aim": spaces.Box(-3, 1, (2,), np.float32), "gun": spaces.Discrete(3, start=2)})


@contextmanager
def served(observation: Any, action: Any, num_envs: int = 2) -> Iterator[str]:
    bridge = GymnasiumBridge(lambda: Spaces(observation, action), num_envs)
    with run_in_thread(bridge, upgrader=ShmUpgrader()) as server:
        yield str(server.port)


KINDS = {
    "named and hybrid": (NAMED, HYBRID),
    "starts": (NAMED, spaces.Discrete(4, start=-1)),
    "picture": (PICTURE, spaces.MultiDiscrete([2, 3])),
    "one choice": (spaces.Discrete(5), spaces.MultiBinary(3)),
    "matrices": (spaces.Box(-1, 1, (3, 4), np.float32), spaces.Box(-1, 1, (2, 2), np.float32)),
    "three axes": (spaces.Box(-1, 1, (3, 4, 2), np.float32), spaces.Discrete(2)),  # but no image
    "awkward names": (AWKWARD, spaces.Discrete(2)),
}


def trained(folder: Path, url: str) -> Path:
    """A run without the exports of its saves, which would be most of the time; test_train.py has one with them."""
    ok(f"{TINY} {SMALL} --device cpu --no-export --run-id r --log-dir", folder, url)
    return folder / "r"


@pytest.mark.parametrize(
    ("transport", "observation", "action"),
    [
        pytest.param(
            transport, *pair, id=f"{name}-{transport}", marks=() if (at + number) % 2 else pytest.mark.exhaustive
        )
        for at, (name, pair) in enumerate(KINDS.items())
        for number, transport in enumerate(("tcp", "shm"))
    ],
)
def test_train_then_play_the_model(tmp_path: Path, transport: str, observation: Any, action: Any) -> None:
    with served(observation, action) as port:
        url = f"127.0.0.1:{port}?transport={transport}"
        ok("play --episodes 3", trained(tmp_path, url) / "model.zip", url)


@pytest.mark.parametrize(
    ("observation", "action"),
    [
        pytest.param(*pair, id=name, marks=() if name in ("named and hybrid", "starts") else pytest.mark.exhaustive)
        for name, pair in KINDS.items()
    ],
)
def test_the_files_of_a_model_play(tmp_path: Path, observation: Any, action: Any) -> None:
    with served(observation, action) as port:
        url = f"127.0.0.1:{port}"
        run_directory = trained(tmp_path, url)
        ok("export", run_directory)
        ok("export --flat", run_directory / "model.zip", "-o", tmp_path / "flat.onnx")
        for file in (run_directory / "model.onnx", tmp_path / "flat.onnx"):
            ok("play --episodes 2", file, url)
    spec = decode_handshake((run_directory / "handshake.txt").read_bytes())
    lowest, _ = spec.obs_bounds
    rows_sent = np.tile(np.where(np.isfinite(lowest), lowest, np.float32(0)), (2, 1))
    assert OnnxInference(tmp_path / "flat.onnx").run_inference(rows_sent).shape == (2, spec.act_size)


def test_names_reach_the_file_and_the_export(tmp_path: Path) -> None:
    with run_in_thread(Climb(2)) as server:
        ok(f"{TINY} {SMALL} --run-id r --port {server.port} --log-dir", tmp_path)
        assert OnnxInference(tmp_path / "r" / "model.onnx").metadata.obs_names[0] == "to_the_top"
        model = tmp_path / "r" / "model.zip"
        output = ok("export", model, "-o", tmp_path / "again.onnx")
        assert "to_the_top, first_lamp, second_lamp" in " ".join(output.split())
        (tmp_path / "r" / "handshake.txt").unlink()
        assert "to_the_top" not in ok("export", model, "-o", tmp_path / "bare.onnx")
        assert "to_the_top" in ok("export", model, "-o", tmp_path / "asked.onnx", "--url", server.url)
    assert OnnxInference(tmp_path / "asked.onnx").metadata.act_names == ("move",)


@pytest.mark.parametrize(
    ("observation", "texts"),
    [
        (spaces.Tuple([NAMED, spaces.Discrete(2)]), ["no policies for Tuple observations"]),
        (
            spaces.Dict({"me": NAMED, "far": spaces.Discrete(2)}),
            [
                "no policies for a Dict or Tuple inside a Dict (field OBS_SPACE, me)",
                "Announce its parts beside the others",
            ],
        ),
    ],
)
def test_observations_without_a_policy_are_refused_by_name(tmp_path: Path, observation: Any, texts: list[str]) -> None:
    with served(observation, spaces.Discrete(2)) as port:
        said = str(refused(f"train --port {port} --log-dir", tmp_path, by=errors.ConfigurationError))
    assert all(text in said for text in texts)
    assert not list(tmp_path.iterdir())


def test_a_group_s_policy_is_exported_with_the_sizes_of_the_group(tmp_path: Path) -> None:
    with run_in_thread(SumoBridge(num_envs=2)) as server:
        env = GroupVecEnv(open_transport(server.url), "wrestler")
        model = PPO("MlpPolicy", env, n_steps=8, batch_size=8, device="cpu").learn(32)
        report = export_onnx(model, tmp_path / "p.onnx")
        env.close()
    assert (report.metadata.obs_size, report.metadata.act_size) == (9, 2)


# -- HER


class Goals(gym.Env[Any, Any]):
    """A point on a line is to reach a goal."""

    def __init__(self) -> None:
        part = spaces.Box(-5, 5, (1,), np.float32)
        self.observation_space = spaces.Dict({"observation": part, "achieved_goal": part, "desired_goal": part})
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x, self.goal, self.steps = np.zeros(1, np.float32), self.np_random.uniform(-3, 3, 1).astype(np.float32), 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.x = np.clip(self.x + action, -5, 5).astype(np.float32)
        self.steps += 1
        reward = float(self.compute_reward(self.x, self.goal, {}))
        return self._look(), reward, reward == 0, self.steps >= 10, {"is_success": reward == 0}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -(np.abs(achieved - desired).max(axis=-1) > 0.5).astype(np.float32)

    def _look(self) -> Any:
        return {"observation": self.x, "achieved_goal": self.x, "desired_goal": self.goal}


class FarGoals(Goals):
    """No episode is over before its fifth step."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.goal[:] = 4.9
        return self._look(), {}


@pytest.mark.parametrize("transport", ["shm", pytest.param("tcp", marks=pytest.mark.exhaustive)])
def test_hindsight_from_a_yaml_file_and_its_resumption(tmp_path: Path, transport: str) -> None:
    path = tmp_path / "her.yaml"
    values = {
        "algo": "sac", "her": {"n_sampled_goal": 4, "goal_selection_strategy": "future"}, "timesteps": 60,
        "device": "cpu", "log_dir": str(tmp_path), "run_id": "r", "transport": transport, "export": False,
        "hyperparameters": {"learning_starts": 40, "batch_size": 32, "buffer_size": 1000,
                            "policy_kwargs": {"net_arch": [8]}},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(values))
    with run_in_thread(GymnasiumBridge(Goals, 2, send_info=True), upgrader=ShmUpgrader()) as server:
        ok("train --config", path, "--port", server.port)
        ok("train --resume --timesteps 80 --config", path, "--port", server.port)
    from stable_baselines3.common.save_util import load_from_pkl

    buffer = load_from_pkl(tmp_path / "r" / "replay_buffer.pkl")
    assert type(buffer).__name__ == "HerReplayBuffer"
    assert buffer.n_sampled_goal == 4


def test_a_run_with_hindsight_is_exported_played_and_begun_from(tmp_path: Path) -> None:
    path = tmp_path / "her.yaml"
    values = {
        "algo": "sac", "her": {}, "timesteps": 60, "device": "cpu", "export": False, "log_dir": str(tmp_path),
        "run_id": "r", "hyperparameters": {"learning_starts": 40, "batch_size": 32, "buffer_size": 1000},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(values))
    path.with_name("plain.yaml").write_text(yaml.safe_dump({**values, "her": None, "run_id": "plain"}))
    with run_in_thread(GymnasiumBridge(Goals, 2, send_info=True)) as server:
        ok("train --net-arch 8 --config", path, "--port", server.port)
        ok("play", tmp_path / "r" / "model.zip", "--port", server.port, "--episodes", 2)
        ok("train --config", path.with_name("plain.yaml"), "--init-from", tmp_path / "r", "--port", server.port)
    ok("export", tmp_path / "r")
    assert (tmp_path / "r" / "model.onnx").exists()
    from stable_baselines3.common.save_util import load_from_pkl

    buffers = {name: load_from_pkl(tmp_path / name / "replay_buffer.pkl") for name in ("r", "plain")}
    assert {name: type(buffer).__name__ for name, buffer in buffers.items()} == {
        "r": "HerReplayBuffer", "plain": "DictReplayBuffer",
    }  # fmt: skip


@pytest.mark.learning
@pytest.mark.timeout(240)
def test_hindsight_solves_a_goal_task_over_the_wire(tmp_path: Path) -> None:
    values = {
        "algo": "sac", "her": {"n_sampled_goal": 4}, "timesteps": 1500, "seed": 0, "device": "cpu", "export": False,
        "log_dir": str(tmp_path), "run_id": "r", "eval_episodes": 40,
        "hyperparameters": {"learning_starts": 200, "batch_size": 128, "buffer_size": 5000, "gamma": 0.9,
                            "learning_rate": 0.002, "policy_kwargs": {"net_arch": [64, 64]}},
    }  # fmt: skip
    path = tmp_path / "her.yaml"
    path.write_text(yaml.safe_dump(values))
    with run_in_thread(GymnasiumBridge(Goals, 2, send_info=True)) as server:
        options = resolve({"url": f"127.0.0.1:{server.port}"}, path)
        outcome = train(options)
    assert outcome.evaluation is not None
    mean, _ = outcome.evaluation
    assert mean > -4  # the way there takes up to 3 steps of -1; who never arrives has -10


def test_hindsight_that_begins_too_early_says_what_to_do(tmp_path: Path) -> None:
    values = {"algo": "sac", "her": {}, "timesteps": 60, "log_dir": str(tmp_path), "device": "cpu", "export": False}
    path = tmp_path / "her.yaml"
    path.write_text(yaml.safe_dump({**values, "hyperparameters": {"learning_starts": 4, "buffer_size": 1000}}))
    with run_in_thread(GymnasiumBridge(FarGoals, 2, send_info=True)) as server:
        result = run("train --config", path, "--port", server.port)
    assert result.exit_code == 1  # steps were taken, so the run is saved like any other that is stopped
    assert "learning_starts" in result.output


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"algo": "ppo", "her": {}}, "needs an algorithm with a replay buffer"),
        ({"algo": "sac", "her": {"n_sample_goal": 4}}, "(?i)did you mean 'n_sampled_goal'"),
        ({"algo": "sac", "her": {"goal_selection_strategy": "past"}}, "no such strategy"),
        ({"algo": "sac", "her": 4}, r"must be a mapping.*field her"),
        ({"time_scale": 0}, r"must be a positive number.*field time_scale"),
        ({"params": [1]}, "must be a mapping"),
        ({"algo": "maskableppo"}, "(?i)did you mean 'maskable_ppo'"),
    ],
)
def test_wrong_options_are_refused_by_name(values: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=said):
        resolve(values, None)


def test_her_needs_goals(tmp_path: Path) -> None:
    path = tmp_path / "her.yaml"
    path.write_text(yaml.safe_dump({"algo": "sac", "her": {}, "log_dir": str(tmp_path / "runs")}))
    with run_in_thread(GymnasiumBridge("Pendulum-v1", 2)) as server:
        said = refused("train --config", path, "--port", server.port, by=errors.ConfigurationError)
    assert "achieved_goal" in str(said)


# -- inspect


def shown(line: str) -> dict[str, str]:
    return dict(rows(decode_handshake(line.encode())))


def test_inspect_shows_the_spaces_as_a_tree() -> None:
    said = shown(
        "CONFIG:OBS=7;ACT=3;ENV_TYPE=SINGLE;VERSION=1;OBS_SPACE=DICT(where:BOX(-1:1)[2,2],in:DICT(gun:DISCRETE(3:5),"
        "on:MULTI_BINARY(2)));ACT_SPACE=TUPLE(BOX(0:1,-2:2),DISCRETE(4));OBS_NAMES=a,b,c,d,e,f,g;ACT_NAMES=x,y,z;"
        "PARAMS=gravity:9.8:0:20,wind:0;FEATURES=MASK;OBS_NMAES=a"
    )
    assert said["observation space"].splitlines() == [
        "DICT, 7 numbers",
        "  where [0:4]: BOX [2,2] float32 -1 to 1: a, b, c, d",
        "  in [4:7]: DICT, 3 numbers",
        "    gun [4]: DISCRETE 3 to 5: e",
        "    on [5:7]: MULTI_BINARY [2]: f, g",
    ]
    assert said["action space"].splitlines() == [
        "TUPLE, 3 numbers",
        "  0 [0:2]: BOX [2] float32 -2 to 2 in all: x, y",
        "  1 [2]: DISCRETE 0 to 3: z",
    ]
    assert said["parameters"] == "gravity = 9.8 (0 to 20)\nwind = 0"
    assert said["action masks"] == "4 flags a row"
    assert said["unknown key"] == "OBS_NMAES: did you mean 'OBS_NAMES'?"


def test_inspect_shows_each_group_of_agents() -> None:
    striker, goalie = EnvSpec(3, 1), EnvSpec(5, 2)
    spec = EnvSpec(5, 2, num_envs=2, groups=(AgentGroup("striker", 2, striker), AgentGroup("goalie", 1, goalie)))
    said = dict(rows(spec))
    assert said["agents: striker"] == "2 in each env (striker_0, striker_1)"
    assert said["observation space of goalie"] == "BOX [5] float32 -inf to inf"


def test_inspect_takes_an_engine_with_agents() -> None:
    with run_in_thread(SumoBridge(num_envs=2)) as server:
        assert "agents:" in ok("inspect --port", server.port)


def test_inspect_shows_the_handshake_as_it_was_sent() -> None:
    with served(NAMED, HYBRID) as port:
        said = " ".join(ok(f"inspect --steps 2 --port {port}").replace("│", " ").split())
    assert "CONFIG:OBS=5;ACT=3;" in said
    assert "weapon [4]: DISCRETE 4 to 6" in said or "weapon [0]: DISCRETE 4 to 6" in said
    assert "HybridBox" in said


SMALL_PICTURE = spaces.Box(0, 255, (7, 7, 3), np.uint8)
ANYWHERE = spaces.Box(-np.inf, np.inf, (2,), np.float32)


def test_pictures_that_are_too_small_for_convolutions_take_an_mlp(tmp_path: Path) -> None:
    with served(SMALL_PICTURE, spaces.Discrete(2)) as port:
        words = f"{TINY} {SMALL} --device cpu --no-export --run-id r --log-dir"
        output = ok(words, tmp_path, "--port", port)
        assert "pictures of 7 x 7 are too small for a CnnPolicy" in " ".join(output.split())
        ok("play --episodes 1", tmp_path / "r" / "model.zip", "--port", port)


@pytest.mark.parametrize(
    ("observation", "action", "words", "texts"),
    [
        (
            spaces.Dict({"eye": SMALL_PICTURE, "speed": spaces.Box(-1, 1, (1,), np.float32)}),
            spaces.Discrete(2),
            "",
            ["too small for Stable-Baselines3's convolutions (field OBS_SPACE, eye)", "expected 36 x 36 or more"],
        ),
        (SMALL_PICTURE, spaces.Discrete(2), "--policy CnnPolicy", ["got 7 x 7", "leave --policy out"]),
        (ANYWHERE, ANYWHERE, "", ["a Box without bounds (field ACT_SPACE)", "[at fault: engine]", "TransformAction"]),
        (ANYWHERE, ANYWHERE, "--algo sac", ["a Box without bounds (field ACT_SPACE)", "[at fault: engine]"]),
        (
            ANYWHERE,
            spaces.Box(-1, 1, (2,), np.float32),
            "--algo sac --set 'train_freq=[1, episode]'",
            ["(field hyperparameters.train_freq)", "with 2 envs", "Give --num-envs 1 and --num-engines 1"],
        ),
    ],
)
def test_what_no_algorithm_takes_is_named(
    tmp_path: Path, observation: Any, action: Any, words: str, texts: list[str]
) -> None:
    with served(observation, action) as port:
        said = str(refused(f"train --port {port} {words} --log-dir", tmp_path, by=errors.ConfigurationError))
    assert all(text in said for text in texts), said
    assert not list(tmp_path.iterdir())
