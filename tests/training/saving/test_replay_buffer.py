"""Replay buffers are written as far as they are filled, and come back whole."""

from __future__ import annotations

import logging
import pickle
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import SAC
from stable_baselines3.common import buffers
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.save_util import load_from_pkl

from tests.harness.exactness import CASES, At, Broken, broken, differ, env_of, learn, new
from ue_rl.bridges import GymnasiumBridge
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.agents.buffers import ActiveReplayBuffer
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.training.saving.autosave import AutoSave
from ue_rl.training.saving.resuming import write_replay_buffer

N, ROWS = 2, 10
IN_EACH_RUN = (("dqn", (46, 50)), ("her", (100,)))
BOX = spaces.Box(-1, 1, (3,), np.float32)
DICT = spaces.Dict({"a": BOX, "b": spaces.Box(0, 255, (2, 2), np.uint8)})
ACTION = spaces.Box(-1, 1, (2,), np.float32)


class Priorities(ReplayBuffer):
    """Somebody's own, with an array that is not empty from the start."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.priorities = np.ones((self.buffer_size, self.n_envs))


class Backwards(ReplayBuffer):
    """Somebody's own, filled from the end."""

    def add(self, *args: Any) -> None:
        own, self.pos = self.pos, self.buffer_size - 1 - self.pos
        super().add(*args)
        self.pos, self.full = own + 1, False


KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "plain": (ReplayBuffer, BOX, {}),
    "one_observation": (ReplayBuffer, BOX, {"optimize_memory_usage": True, "handle_timeout_termination": False}),
    "dict": (DictReplayBuffer, DICT, {}),
    "active": (ActiveReplayBuffer, BOX, {}),
    "priorities": (Priorities, BOX, {}),
    "backwards": (Backwards, BOX, {}),
}
if hasattr(buffers, "NStepReplayBuffer"):  # of newer versions
    KINDS["n_steps"] = (buffers.NStepReplayBuffer, BOX, {"n_steps": 3})


def filled(name: str, steps: int) -> Any:
    kind, space, options = KINDS[name]
    buffer = kind(ROWS * N, space, ACTION, "cpu", N, **options)

    def seen() -> Any:
        if space is BOX:
            return np.random.rand(N, 3)
        return {"a": np.random.rand(N, 3), "b": np.random.randint(0, 255, (N, 2, 2))}

    for step in range(steps):
        infos = [{"TimeLimit.truncated": step % 3 == 0}] * N
        buffer.add(seen(), seen(), np.random.rand(N, 2), np.random.rand(N), np.arange(N) == step % 2, infos)
    return buffer


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())
    return bool(one == other)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("steps", [0, 1, 4, ROWS - 1, ROWS, ROWS + 3])
def test_a_buffer_comes_back_as_it_was(tmp_path: Path, name: str, steps: int) -> None:
    if name == "backwards" and steps > ROWS - 1:
        pytest.skip("it has no rounds")
    buffer = filled(name, steps)
    write_replay_buffer(buffer, tmp_path / "r.pkl")
    read = load_from_pkl(tmp_path / "r.pkl")
    assert type(read) is type(buffer)
    assert same(vars(read), vars(buffer))
    if name in ("plain", "n_steps"):
        seen = np.zeros_like(buffer.observations[0])
        read.add(seen, seen, np.zeros((N, 2)), np.zeros(N), np.zeros(N), [{}] * N)


def test_hers_comes_back_as_it_was(tmp_path: Path) -> None:
    """With the infos that compute_reward() may need, and without its env."""
    env = env_of("her")
    options = {"copy_info_dict": True, "n_sampled_goal": 2}
    model = new("her", env, buffer_size=900, learning_starts=500, replay_buffer_kwargs=options).learn(300)
    buffer: Any = model.replay_buffer
    write_replay_buffer(buffer, tmp_path / "r.pkl")
    assert len(pickle.dumps(buffer)) > 2 * (tmp_path / "r.pkl").stat().st_size
    read = load_from_pkl(tmp_path / "r.pkl")
    assert read.env is None
    facts = vars(buffer) | {"env": None}
    assert same(facts, vars(read))


def test_hers_episodes_that_ended_since_the_rollout_began_have_not_ended_where_it_begins_again(tmp_path: Path) -> None:
    """In other envs they end elsewhere: no goal may be taken from rows that belong to the next episode by then."""
    rollouts = {"train_freq": 30, "buffer_size": 900}  # of 90 env-steps; episodes have up to 30 steps of an env

    def part(folder: str, total: int, *callbacks: Any) -> Any:
        return learn("her", env_of("her"), tmp_path / folder, total, [*callbacks], arguments=rollouts)

    one: Any = part("one", 90)
    broken_off = part("parts", 180, At(150, broken))
    assert (broken_off.replay_buffer.ep_length[:30] != one.replay_buffer.ep_length[:30]).any(), "some have ended"
    again: Any = AutoSave(tmp_path / "parts", signals=False, lock=False).resume(SAC, CASES["her"][4](env_of("her")))
    assert again.num_timesteps == 90
    np.testing.assert_array_equal(again.replay_buffer.ep_length, one.replay_buffer.ep_length)


class Wide(gym.Env[Any, Any]):
    """100 numbers."""

    observation_space = spaces.Box(-1, 1, (100,), np.float32)
    action_space = ACTION

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """It only chooses a start."""
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Nothing but noise."""
        self.steps += 1
        return self._look(), float(np.sum(action)), False, self.steps >= 100, {}

    def _look(self) -> Any:
        return self.np_random.uniform(-1, 1, 100).astype(np.float32)


def test_a_checkpoint_writes_what_is_filled_and_the_newest_alone_keeps_it(tmp_path: Path, slack: float) -> None:
    """The buffer has room for a hundred thousand steps: 85 MB."""
    env = UnrealVecEnv(MemoryTransport(GymnasiumBridge(Wide, 8)))
    autosave = AutoSave(tmp_path, save_freq=600, signals=False)
    autosave.resume(SAC, env)
    options = {"buffer_size": 100_000, "learning_starts": 1 << 30, "policy_kwargs": {"net_arch": [8]}}
    model = SAC("MlpPolicy", env, device="cpu", seed=1, **options)
    model.learn(1_500, callback=autosave)
    began = time.process_time()
    assert autosave.save() is not None
    assert time.process_time() - began < 2 * slack
    autosave.rescue()
    sizes = {path.name: sum(f.stat().st_size for f in path.iterdir()) for path in autosave.store.folder.glob("0*")}
    assert len(sizes) == 3
    assert max(sizes.values()) < 6e6
    held = sorted(path.parent.name for path in autosave.store.folder.glob("*/replay_buffer.pkl"))
    assert held == [max(sizes)]
    assert [str(each) for each in autosave.store.newest_first()] == sorted(sizes, reverse=True), "none is broken"
    again = AutoSave(tmp_path, signals=False).resume(SAC, UnrealVecEnv(MemoryTransport(GymnasiumBridge(Wide, 8))))
    assert again is not None
    assert model.replay_buffer is not None
    assert again.replay_buffer is not None
    assert same(vars(again.replay_buffer), vars(model.replay_buffer))


@pytest.mark.parametrize(
    ("name", "stops"),
    [
        pytest.param(name, stops, marks=() if (name, stops) in IN_EACH_RUN else pytest.mark.exhaustive)
        for name in ("sac", "dqn", "her")
        for stops in ((30, 65), (46, 50), (100,))
    ],
)
def test_a_run_with_room_for_more_is_resumed_exactly(tmp_path: Path, name: str, stops: tuple[int, ...]) -> None:
    """The buffers of the cases are full soon: here they never are."""
    torch.set_num_threads(1)
    case = CASES[name]
    options = {**case[3], "buffer_size": 3000}

    def part(folder: str, *callbacks: Any) -> Any:
        env = env_of(name)
        autosave = AutoSave(tmp_path / folder, signals=False, lock=False)
        wrapped = case[4](env)
        model = autosave.resume(case[0], wrapped) or new(name, wrapped, buffer_size=options["buffer_size"])
        try:
            model.learn(108, callback=[autosave, *callbacks])
        except Broken as error:
            autosave.rescue(error)
        return model

    whole = part("whole")
    for stop in stops:
        part("parts", At(stop, broken))
    last = part("parts")
    assert last.num_timesteps == 108
    assert differ(last, whole) == []


def test_without_its_replay_buffer_a_run_begins_with_an_empty_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not with as many rows of zeros as there were."""
    env = env_of()
    learn("sac", env, tmp_path, total=30, replay_buffer=False)
    assert list(tmp_path.glob("checkpoints/*/replay_buffer.pkl")) == []
    seen: list[Any] = []

    def look() -> None:
        seen.append(model.replay_buffer.pos)

    autosave = AutoSave(tmp_path, signals=False, lock=False)
    env = env_of()
    with caplog.at_level(logging.WARNING):
        model: Any = autosave.resume(SAC, env)
    assert "holds no replay buffer" in caplog.text
    model.learn(60, callback=[autosave, At(0, look)])
    assert seen == [0]
    assert model.replay_buffer.pos == (60 - 30) / 3
