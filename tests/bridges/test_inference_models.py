"""Trained models in a bridge: exported ones earn what SB3 says, recurrent ones remember, files change under them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

import ue_rl
from tests.bridges.policies import inferring
from tests.support.games import Steps, bridge
from tests.support.models import export_briefly, scramble
from ue_rl.bridges import GymnasiumBridge, Mode, run_in_thread
from ue_rl.inference import OnnxInference, ReloadingInference, Sb3Inference
from ue_rl.system import errors


def episodes(game: Any, each: int) -> list[tuple[float, int]]:
    """Return and length of the first episodes, `each` from every env, as evaluate_policy counts them."""
    n = game.num_envs
    returns, steps, finished, got = np.zeros(n), np.zeros(n, int), np.zeros(n, int), []
    while len(got) < n * each:
        game.update_rl(1 / 60)
        returns += game.outbox.rewards
        steps += 1
        for i in np.flatnonzero(game.outbox.dones):
            if finished[i] < each:
                got.append((float(returns[i]), int(steps[i])))
            finished[i] += 1
            returns[i], steps[i] = 0, 0
    return got


def evaluated(model: Any, env: Any, count: int) -> list[tuple[float, int]]:
    returns, lengths = evaluate_policy(model, env, n_eval_episodes=count, return_episode_rewards=True, warn=False)
    env.close()
    return list(zip(returns, lengths, strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("env_id", "normalize"),
    [
        pytest.param("CartPole-v1", False, marks=pytest.mark.exhaustive),
        ("CartPole-v1", True),
        ("Pendulum-v1", True),
    ],
)
def test_the_exported_policy_earns_in_inference_mode_what_sb3_says(
    tmp_path: Path, env_id: str, normalize: bool
) -> None:
    """Same seeds, deterministic: the same returns, episode by episode."""
    path, stats = tmp_path / "policy.onnx", None
    with run_in_thread(GymnasiumBridge(env_id, 4)) as engine:
        env: Any = ue_rl.connect(engine.url)
        if normalize:
            env = stats = VecNormalize(env)
        more: Any = {"n_epochs": 2, "policy_kwargs": {"net_arch": [16]}}
        model = PPO("MlpPolicy", env, n_steps=32, batch_size=64, seed=0, device="cpu", **more).learn(256)
        export_briefly(model, path, stats)
        env.close()
    with run_in_thread(GymnasiumBridge(env_id, 3)) as engine:
        env = ue_rl.connect(engine.url)
        env.seed(100)
        if stats is not None:
            stats.save(str(tmp_path / "stats.pkl"))
            env = VecNormalize.load(str(tmp_path / "stats.pkl"), env)
            env.training = env.norm_reward = False
        want = evaluated(model, env, 6)
    game = inferring(GymnasiumBridge(env_id, 3), OnnxInference(path), np.array([100, 101, 102]))  # type: ignore[arg-type]
    got = episodes(game, 2)
    assert [length for _, length in got] == [length for _, length in want]
    if env_id == "CartPole-v1":  # discrete: equal to the last bit
        assert got == want
    else:  # continuous: actions agree to 1e-5 of their range, and pendulums amplify
        np.testing.assert_allclose([v for v, _ in got], [v for v, _ in want], rtol=2e-3, atol=0.05)


# -- files


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The file of a policy for CartPole that was never trained, by its seed."""
    folder = tmp_path_factory.mktemp("exported")

    def file(seed: int) -> Path:
        path = folder / f"{seed}.onnx"
        if not path.exists():
            export_briefly(PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, seed=seed, device="cpu"), path)
        return path

    return file


@pytest.fixture
def path(exported: Callable[[int], Path], tmp_path: Path) -> Path:
    """One of its own."""
    return Path(shutil.copy(exported(0), tmp_path / "policy.onnx"))


def test_switching_between_training_and_inference_is_safe(path: Path) -> None:
    game = GymnasiumBridge("CartPole-v1", 2)
    game.start_training()
    game.inbox.command[:] = 1  # a request is open when the switch comes
    inferring(game, OnnxInference(path))
    assert not game.lockstep.busy
    for _ in range(50):
        game.update_rl(0)
    assert game.mode is Mode.INFERENCE
    assert not game.answered.any()
    game.start_training()
    game.inbox.command[:] = 2
    game.update_rl(0)
    assert game.answered.tolist() == [1, 1]
    with run_in_thread(game) as engine:  # and a trainer can come
        env = ue_rl.connect(engine.url, timeout=10)
        env.reset()
        env.step(np.zeros(2, np.int64))
        env.close()


def test_bad_files_and_other_sizes_leave_the_old_model_in_use(path: Path) -> None:
    good = path.read_bytes()
    with ReloadingInference(path, interval=None) as policy:
        game = inferring(GymnasiumBridge("CartPole-v1", 1), policy, [0])
        game.update_rl(0)
        for content in (b"not a model", good[: len(good) // 2], b""):
            path.write_bytes(content)
            assert not policy.poll()
            game.update_rl(0)
        with pytest.raises(errors.ModelLoadError):
            OnnxInference(path)
    other = GymnasiumBridge("Pendulum-v1", 1)
    path.write_bytes(good)
    with pytest.raises(errors.ModelMismatch, match="3 observation numbers"):
        other.set_inference_interface(OnnxInference(path))
    with pytest.raises(errors.ConfigurationError, match="needs a policy"):
        other.start_inference()
    with pytest.raises(errors.ConfigurationError, match="one seed per env"):
        game.start_inference(seeds=[1, 2])


def test_a_newer_file_takes_over_in_a_running_bridge(path: Path, exported: Callable[[int], Path]) -> None:
    seen: list[Any] = []

    class Noted(GymnasiumBridge):
        def step_envs(self, actions: Any, env_ids: Any) -> None:
            seen.append(actions.copy())
            super().step_envs(actions, env_ids)

    game = Noted("CartPole-v1", 64)
    with ReloadingInference(path, interval=None) as policy:
        inferring(game, policy, range(64))
        game.update_rl(0)
        shutil.copy(exported(7), path)
        obs = game.outbox.obs.copy()
        assert policy.poll()
        seen.clear()
        game.update_rl(0)
    newer, older = (OnnxInference(exported(seed)).run_inference(obs) for seed in (7, 0))
    np.testing.assert_array_equal(seen[0], newer)
    assert (newer != older).any()


# -- recurrent policies


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, list[tuple[float, int]]]:
    """A file, its model, and what SB3 says of four episodes of it in two envs, with the seeds 5 and 6."""
    small: Any = {"net_arch": [16], "lstm_hidden_size": 16}
    model = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", seed=0, device="cpu", n_steps=8, policy_kwargs=small)
    scramble(model.policy, seed=2)  # one that lasts, by what it remembers
    path = tmp_path_factory.mktemp("recurrent") / "policy.onnx"
    export_briefly(model, path)
    with run_in_thread(GymnasiumBridge("CartPole-v1", 2)) as engine:
        env = ue_rl.connect(engine.url)
        env.seed(5)
        want = evaluated(model, env, 4)
    assert min(length for _, length in want) > 20, "those that do the same for ever last for ten steps"
    return path, model, want


@pytest.mark.parametrize("kind", ["onnx", "reloading", "sb3"])
def test_a_recurrent_policy_remembers_each_env_and_forgets_at_each_episode(
    recurrent: tuple[Path, Any, list[tuple[float, int]]], kind: str
) -> None:
    path, model, want = recurrent
    policy: Any = {
        "onnx": lambda: OnnxInference(path),
        "reloading": lambda: ReloadingInference(path, interval=None),
        "sb3": lambda: Sb3Inference(model),
    }[kind]()
    game = GymnasiumBridge("CartPole-v1", 2)
    for _ in range(2):  # the second start begins as the first did: nothing is left of it
        assert episodes(inferring(game, policy, [5, 6]), 2) == want


class Uneven(Steps):
    """Env i's actions run i + 1 ticks, its observations are fixed by env and step, an episode has five."""

    table = np.random.default_rng(3).uniform(-1, 1, (3, 6, 4)).astype(np.float32)

    def show(self, env: int) -> Any:
        return self.table[env, self.steps[env]]

    def earn(self, env: int) -> Any:
        return 0.0, self.steps[env] >= 5

    def runs(self, env: int) -> int:
        self.taken[env].append(self.acted[env])
        return env + 1


def test_a_recurrent_policy_is_right_where_envs_act_at_different_ticks(recurrent: tuple[Path, Any, Any]) -> None:
    game = bridge(3, kind=Uneven, obs_size=4)
    game.taken = [[], [], []]
    inferring(game, OnnxInference(recurrent[0]))
    for _ in range(40):
        game.update_rl(0)
    alone = OnnxInference(recurrent[0])
    for env, taken in enumerate(game.taken):
        assert len(taken) == -(-40 // (env + 1))
        for number, action in enumerate(taken):
            if number % 5 == 0:
                alone.reset()
            assert alone.run_inference(game.table[env, number % 5][None])[0, 0] == action
