"""Bridges in inference mode: a policy in the trainer's place, tick by tick, without a socket."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

import ue_rl
from tests.support.waiting import eventually
from ue_rl import errors
from ue_rl.bridges import (
    GymnasiumBridge,
    Mode,
    MultiEnvBridge,
    SingleEnvBridge,
    VectorBridge,
    base,
    run_in_thread,
    run_shm_in_thread,
)
from ue_rl.inference import InferenceInterface, OnnxInference, ReloadingInference, Sb3Inference, export_onnx
from ue_rl.spec import EnvSpec, EnvType


class Echo(MultiEnvBridge):
    """Its state is the last action plus one; an action runs for two ticks; an episode has three steps."""

    def __init__(self, n: int) -> None:
        super().__init__(EnvSpec(1, 1, num_envs=n))
        self.value, self.left, self.steps, self.resets = [0.0] * n, [0] * n, [0] * n, [0] * n

    def create_state_string_for_env(self, env_id: int) -> Any:
        return [self.value[env_id]]

    def calculate_reward_for_env(self, env_id: int) -> Any:
        return self.value[env_id], self.steps[env_id] >= 3

    def handle_reset_for_env(self, env_id: int) -> None:
        self.value[env_id], self.steps[env_id] = 10.0 * env_id, 0
        self.resets[env_id] += 1

    def handle_response_actions_for_env(self, env_id: int, actions: Any) -> None:
        self.value[env_id] = float(actions[0])
        self.left[env_id], self.steps[env_id] = 2, self.steps[env_id] + 1

    def is_action_running_for_env(self, env_id: int) -> bool:
        self.left[env_id] -= 1
        return self.left[env_id] > 0


class PlusOne(InferenceInterface):
    """Counts its calls and rows; says what it is told to."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.answer: Any = None

    def load_model(self, path: Any) -> None:
        raise AssertionError("not used")

    def is_model_loaded(self) -> bool:
        return True

    def run_inference(self, observations: Any) -> Any:
        self.rows.append(len(observations))
        return observations + 1 if self.answer is None else self.answer

    @property
    def obs_size(self) -> int:
        return 1

    @property
    def act_size(self) -> int:
        return 1


def test_state_model_action_wait_next() -> None:
    bridge, policy = Echo(2), PlusOne()
    with pytest.raises(errors.ConfigurationError, match="needs a policy"):
        bridge.start_inference()
    bridge.set_inference_interface(policy)
    bridge.start_inference()
    seen = []
    for _ in range(6):
        bridge.update_rl(1 / 60)
        seen.append(list(bridge.value))
    assert seen == [[1, 11], [1, 11], [2, 12], [2, 12], [3, 13], [3, 13]]
    assert policy.rows == [2, 2, 2]  # one batched call, and none while actions run
    bridge.update_rl(1 / 60)
    assert bridge.resets == [2, 2]  # the episode was over: a new one began
    assert bridge.value == [1, 11]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (np.array([[np.nan], [1]]), errors.ModelOutputError),
        (np.array([["left"], ["right"]]), errors.ModelOutputError),
        (np.ones((2, 3)), errors.ModelMismatch),
        (np.ones(3), errors.ModelMismatch),
    ],
)
def test_a_bad_answer_is_named_and_nothing_is_applied(answer: Any, kind: type[Exception]) -> None:
    bridge, policy = Echo(2), PlusOne()
    bridge.set_inference_interface(policy)
    bridge.start_inference()
    for _ in range(2):
        bridge.update_rl(0)
    before = list(bridge.value)
    policy.answer = answer
    with pytest.raises(kind):
        bridge.update_rl(0)
    assert bridge.value == before
    policy.answer = None  # the game goes on with the next tick
    bridge.update_rl(0)
    assert bridge.value == [v + 1 for v in before]


def test_a_choice_that_does_not_exist_is_refused() -> None:
    bridge, policy = GymnasiumBridge("CartPole-v1", 1), PlusOne()
    policy.require = lambda obs, act: None  # type: ignore[method-assign]
    policy.answer = np.array([[2.0]])
    bridge.set_inference_interface(policy)
    bridge.start_inference()
    with pytest.raises(errors.ModelOutputError, match=r"not a choice of its space.*expected an integer from 0 to 1"):
        bridge.update_rl(0)


def trained(env_id: str, folder: Path, normalize: bool = False) -> tuple[Path, Any, Any]:
    """A policy trained over the bridge and exported: (file, model, VecNormalize or None)."""
    with run_in_thread(GymnasiumBridge(env_id, 4)) as engine:
        env: Any = ue_rl.connect(engine.url)
        stats = VecNormalize(env) if normalize else None
        model = PPO("MlpPolicy", stats or env, n_steps=64, batch_size=64, seed=0, device="cpu")
        model.learn(2048)
        export_onnx(model, folder / "policy.onnx", stats)
        env.close()
    return folder / "policy.onnx", model, stats


@pytest.mark.parametrize(
    ("env_id", "normalize"), [("CartPole-v1", False), ("CartPole-v1", True), ("Pendulum-v1", True)]
)
def test_the_exported_policy_earns_in_inference_mode_what_sb3_says(
    tmp_path: Path, env_id: str, normalize: bool
) -> None:
    """Same seeds, deterministic: the same returns, episode by episode."""
    n, episodes = 3, 9
    path, model, stats = trained(env_id, tmp_path, normalize)
    with run_in_thread(GymnasiumBridge(env_id, n)) as engine:
        env: Any = ue_rl.connect(engine.url)
        env.seed(100)
        if stats is not None:
            stats.save(str(tmp_path / "stats.pkl"))
            env = VecNormalize.load(str(tmp_path / "stats.pkl"), env)
            env.training = env.norm_reward = False
        expected, lengths = evaluate_policy(
            model, env, n_eval_episodes=episodes, return_episode_rewards=True, warn=False
        )
        env.close()
    bridge = GymnasiumBridge(env_id, n)
    bridge.set_inference_interface(OnnxInference(path))
    bridge.start_inference(seeds=np.array([100, 101, 102]))
    got: list[tuple[float, int]] = []
    returns, steps, finished = np.zeros(n), np.zeros(n, int), np.zeros(n, int)
    while len(got) < episodes:
        bridge.update_rl(1 / 60)
        returns += bridge.outbox.rewards
        steps += 1
        for i in np.flatnonzero(bridge.outbox.dones):
            if finished[i] < episodes // n:  # as evaluate_policy counts: the same number from each env
                got.append((float(returns[i]), int(steps[i])))
            finished[i] += 1
            returns[i], steps[i] = 0, 0
    want = list(zip(expected, lengths, strict=True))
    assert [length for _, length in got] == [length for _, length in want]
    if env_id == "CartPole-v1":  # discrete: equal to the last bit
        assert [value for value, _ in got] == [value for value, _ in want]
    else:  # continuous: actions agree to 1e-5 of their range, and pendulums amplify
        np.testing.assert_allclose([v for v, _ in got], [v for v, _ in want], rtol=2e-3, atol=0.05)


def test_switching_between_training_and_inference_is_safe(tmp_path: Path) -> None:
    path, _, _ = trained("CartPole-v1", tmp_path)
    bridge = GymnasiumBridge("CartPole-v1", 2)
    bridge.start_training()
    bridge.inbox.command[:] = 1  # a request is open when the switch comes
    bridge.set_inference_interface(OnnxInference(path))
    bridge.start_inference()
    assert not bridge.lockstep.busy
    for _ in range(50):
        bridge.update_rl(0)
    assert bridge.mode is Mode.INFERENCE
    assert not bridge.answered.any()
    bridge.start_training()
    bridge.inbox.command[:] = 2
    bridge.update_rl(0)
    assert bridge.answered.tolist() == [1, 1]
    with run_in_thread(bridge) as engine:  # and a trainer can come
        env = ue_rl.connect(engine.url, timeout=10)
        env.reset()
        env.step(np.zeros(2, np.int64))
        env.close()


def test_bad_files_and_other_sizes_leave_the_old_model_in_use(tmp_path: Path) -> None:
    path, _, _ = trained("CartPole-v1", tmp_path)
    bridge = GymnasiumBridge("CartPole-v1", 1)
    with ReloadingInference(path, interval=None) as policy:
        bridge.set_inference_interface(policy)
        bridge.start_inference(seeds=[0])
        bridge.update_rl(0)
        good = path.read_bytes()
        for content in (b"not a model", good[: len(good) // 2], b""):
            path.write_bytes(content)
            assert not policy.poll()
            bridge.update_rl(0)
        with pytest.raises(errors.ModelLoadError):
            OnnxInference(path)
    other = GymnasiumBridge("Pendulum-v1", 1)
    path.write_bytes(good)
    with pytest.raises(errors.ModelMismatch, match="3 observation numbers"):
        other.set_inference_interface(OnnxInference(path))
    with pytest.raises(errors.ConfigurationError, match="needs a policy"):
        other.start_inference()
    with pytest.raises(errors.ConfigurationError, match="one seed per env"):
        bridge.start_inference(seeds=[1, 2])


class One(SingleEnvBridge):
    """Its state is the last action; an episode has two steps."""

    def __init__(self) -> None:
        super().__init__(EnvSpec(1, 1, EnvType.SINGLE))
        self.value, self.steps = 0.0, 0

    def create_state_string(self) -> str:
        return f"{self.value:.1f};"

    def calculate_reward(self) -> tuple[float, bool]:
        return self.value, self.steps == 2

    def handle_reset(self) -> None:
        self.value, self.steps = 5.0, 0

    def handle_response_actions(self, actions: Any) -> None:
        self.value, self.steps = float(actions[0]), self.steps + 1


class Vector(VectorBridge):
    """Env i's state is its last action; its episodes have i + 1 steps."""

    def __init__(self, n: int) -> None:
        super().__init__(EnvSpec(1, 1, num_envs=n))
        self.steps, self.began = np.zeros(n, int), [0] * n

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.outbox.obs[env_ids] = 100 * env_ids[:, None]
        self.steps[env_ids] = 0
        for env in env_ids:
            self.began[env] += 1

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        self.outbox.obs[env_ids] = actions[env_ids]
        self.steps[env_ids] += 1
        self.outbox.dones[env_ids] = self.steps[env_ids] > env_ids


def test_a_single_bridge_acts_with_states_as_strings() -> None:
    bridge = One()
    bridge.set_inference_interface(PlusOne())
    bridge.start_inference()
    seen = []
    for _ in range(4):
        bridge.update_rl(0)
        seen.append(bridge.value)
    assert seen == [6, 7, 6, 7]


@pytest.mark.parametrize("n", [1, 3])
def test_a_vector_bridge_asks_once_for_all_and_resets_each_env_by_itself(n: int) -> None:
    bridge, policy = Vector(n), PlusOne()
    bridge.set_inference_interface(policy)
    bridge.start_inference()
    for _ in range(6):
        bridge.update_rl(0)
    assert policy.rows == [n] * 6
    assert bridge.began == [6, 3, 2][:n]
    assert bridge.outbox.obs[:, 0].tolist() == [1, 102, 203][:n]
    policy.answer = np.full((n, 1), np.inf)
    with pytest.raises(errors.ModelOutputError, match="not a finite number"):
        bridge.update_rl(0)
    policy.answer = None
    bridge.update_rl(0)  # the next tick goes on where it stood, with no episode lost
    assert bridge.began == [7, 4, 3][:n]
    assert bridge.outbox.obs[0] == 1


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    model = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_steps=64, batch_size=64, seed=0, device="cpu")
    model.learn(256)
    path = tmp_path_factory.mktemp("recurrent") / "policy.onnx"
    export_onnx(model, path)
    return path, model


@pytest.mark.parametrize("kind", ["onnx", "reloading", "sb3"])
def test_a_recurrent_policy_remembers_each_env_and_forgets_at_each_episode(
    recurrent: tuple[Path, Any], kind: str
) -> None:
    path, model = recurrent
    env = GymnasiumBridge("CartPole-v1", 2)
    with run_in_thread(env) as engine:
        vec_env = ue_rl.connect(engine.url)
        vec_env.seed(5)
        expected, lengths = evaluate_policy(model, vec_env, n_eval_episodes=8, return_episode_rewards=True, warn=False)
        vec_env.close()
    bridge = GymnasiumBridge("CartPole-v1", 2)
    policy: Any = (
        OnnxInference(path)
        if kind == "onnx"
        else Sb3Inference(model)
        if kind == "sb3"
        else ReloadingInference(path, interval=None)
    )
    bridge.set_inference_interface(policy)
    for _ in range(2):  # the second start begins as the first did: nothing is left of it
        bridge.start_inference(seeds=[5, 6])
        steps, got, finished = np.zeros(2, int), [], np.zeros(2, int)
        while len(got) < 8:
            bridge.update_rl(0)
            steps += 1
            for i in np.flatnonzero(bridge.outbox.dones):
                if finished[i] < 4:
                    got.append(int(steps[i]))
                finished[i] += 1
                steps[i] = 0
        assert got == lengths
    assert sum(expected) == sum(lengths)


class Uneven(MultiEnvBridge):
    """Env i's actions run i + 1 ticks; its observations are fixed by env and step."""

    def __init__(self, n: int, steps: int) -> None:
        super().__init__(EnvSpec(4, 1, num_envs=n))
        self.table = np.random.default_rng(3).uniform(-1, 1, (n, steps + 1, 4)).astype(np.float32)
        self.at, self.left, self.length = [0] * n, [0] * n, steps
        self.taken: list[list[float]] = [[] for _ in range(n)]

    def create_state_string_for_env(self, env_id: int) -> Any:
        return self.table[env_id, self.at[env_id]]

    def calculate_reward_for_env(self, env_id: int) -> Any:
        return 0.0, self.at[env_id] >= self.length

    def handle_reset_for_env(self, env_id: int) -> None:
        self.at[env_id] = 0

    def handle_response_actions_for_env(self, env_id: int, actions: Any) -> None:
        self.taken[env_id].append(float(actions[0]))
        self.at[env_id] += 1
        self.left[env_id] = env_id + 1

    def is_action_running_for_env(self, env_id: int) -> bool:
        self.left[env_id] -= 1
        return self.left[env_id] > 0


def test_a_recurrent_policy_is_right_where_envs_act_at_different_ticks(tmp_path: Path) -> None:
    n, steps = 3, 5
    model = RecurrentPPO("MlpLstmPolicy", GymnasiumBridge("CartPole-v1").envs[0], n_steps=8, batch_size=8, seed=1)
    path = tmp_path / "r.onnx"
    export_onnx(model, path)

    bridge = Uneven(n, steps)
    bridge.set_inference_interface(OnnxInference(path))
    bridge.start_inference()
    for _ in range(40):
        bridge.update_rl(0)
    alone = OnnxInference(path)
    for env in range(n):
        assert len(bridge.taken[env]) == -(-40 // (env + 1))
        for number, action in enumerate(bridge.taken[env]):
            if number % steps == 0:
                alone.reset()
            assert alone.run_inference(bridge.table[env, number % steps][None])[0, 0] == action


def test_a_switch_under_a_live_trainer_ends_its_session_at_once(tmp_path: Path, caplog: Any) -> None:
    class Push:
        def run_inference(self, observations: Any) -> Any:
            return np.zeros((len(observations), 1), np.float32)

    bridge = GymnasiumBridge("CartPole-v1", 2)
    with run_in_thread(bridge) as engine:
        for channel in ("shared", "per_env"):
            trainer = ue_rl.connect(engine.url, timeout=30, channel=channel)
            trainer.reset()
            bridge.set_inference_interface(Push())
            bridge.start_inference()
            with pytest.raises(errors.EngineDisconnected):  # not after the deadline: the engine says so
                trainer.step(np.zeros(2, np.int64))
            trainer.close()
            for _ in range(20):
                bridge.update_rl(0)
            with pytest.raises(errors.TransportError):
                ue_rl.connect(engine.url, timeout=30)
            assert bridge.mode is Mode.INFERENCE
            bridge.start_training()
        trainer = ue_rl.connect(engine.url, timeout=30)
        trainer.reset()
        trainer.step(np.zeros(2, np.int64))
        trainer.close()
    assert "left training mode" in caplog.text
    assert "in inference mode" in caplog.text


def test_a_trainer_that_goes_after_the_switch_does_not_cut_an_action_short() -> None:
    bridge = Echo(1)
    with run_in_thread(bridge) as engine:
        trainer = ue_rl.connect(engine.url, timeout=30)
        trainer.reset()
        bridge.set_inference_interface(PlusOne())
        bridge.start_inference()
        bridge.update_rl(0)
        assert bridge.value == [1]
        trainer.close()
        eventually(lambda: engine.server._session is None)
        bridge.update_rl(0)
        assert bridge.value == [1]  # the first action still runs
        bridge.update_rl(0)
        assert bridge.value == [2]


@pytest.mark.parametrize("host", [run_in_thread, run_shm_in_thread])
def test_a_host_with_a_tick_rate_ticks_in_inference_mode_too(host: Any) -> None:
    bridge = Echo(1)
    bridge.set_inference_interface(PlusOne())
    with host(bridge, tick_rate=200.0) as engine:
        trainer = ue_rl.connect(engine.url, timeout=30)
        trainer.reset()
        for _ in range(2):
            bridge.start_inference()
            with pytest.raises(errors.EngineDisconnected):
                trainer.step(np.zeros((1, 1), np.float32))
            trainer.close()
            ticks, began = bridge.lockstep.ticks, time.monotonic()
            eventually(lambda: bridge.lockstep.ticks >= ticks + 40)  # noqa: B023
            assert time.monotonic() - began > 0.15, "in real time"
            with pytest.raises(errors.UeRlError, match="inference mode"):
                ue_rl.connect(engine.url, timeout=5).reset()
            bridge.start_training()
            trainer = ue_rl.connect(engine.url, timeout=30)
            trainer.reset()
            trainer.step(np.zeros((1, 1), np.float32))
        trainer.close()


def test_a_policy_that_fails_in_a_host_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    bridge, policy = Echo(1), PlusOne()
    bridge.set_inference_interface(policy)
    with run_shm_in_thread(bridge, tick_rate=200.0):
        policy.answer = np.array([[np.nan]])
        bridge.start_inference()
        eventually(lambda: "inference: " in caplog.text)


@pytest.mark.parametrize("ticked", [False, True])
@pytest.mark.parametrize("host", [run_in_thread, run_shm_in_thread])
def test_a_host_without_a_tick_rate_says_that_nothing_ticks(
    host: Any, ticked: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_TICKED_WITHIN", 0.05)
    bridge = Echo(1)
    bridge.set_inference_interface(PlusOne())
    with host(bridge):
        bridge.start_inference()
        if ticked:
            bridge.update_rl(0)
        time.sleep(0.15)
    assert ("nothing has ticked it for 0.05 s" in caplog.text) == (not ticked)


def test_a_newer_file_takes_over_in_a_running_bridge(tmp_path: Path) -> None:
    path, _, _ = trained("CartPole-v1", tmp_path)
    newer = PPO("MlpPolicy", GymnasiumBridge("CartPole-v1").envs[0], n_steps=8, batch_size=8, seed=7, device="cpu")
    bridge = GymnasiumBridge("CartPole-v1", 64)
    with ReloadingInference(path, interval=None) as policy:
        bridge.set_inference_interface(policy)
        bridge.start_inference(seeds=list(range(64)))
        bridge.update_rl(0)
        export_onnx(newer, path)
        obs = bridge.outbox.obs.copy()
        assert policy.poll()
        expected = OnnxInference(path).run_inference(obs)
        seen: list[Any] = []
        step = bridge.step_envs
        bridge.step_envs = lambda actions, ids: (seen.append(actions.copy()), step(actions, ids))[1]  # type: ignore[method-assign]
        bridge.update_rl(0)
        np.testing.assert_array_equal(seen[0], expected)
