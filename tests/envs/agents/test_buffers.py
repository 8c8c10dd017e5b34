"""The buffers that leave out inactive rows: what is learnt is exactly the true transitions of each agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecNormalize

from tests.harness.scripted_agents import ACTS, CUT, ENDS, GONE, World, spec_of
from ue_rl.envs.agents import (
    ActiveDictReplayBuffer,
    ActiveDictRolloutBuffer,
    ActiveReplayBuffer,
    ActiveRolloutBuffer,
    ActiveRows,
    GroupVecEnv,
)
from ue_rl.system import errors

GAMMA, LAMBDA, STEPS = 0.9, 0.8, 12


def uneven(env: int, episode: int, time: int) -> list[int]:
    """Agent 0 ends after 2 steps, 1 is cut off after 5, 2 comes at 1, ends at 3 and is there again from 4 to 6."""
    second = [GONE, ACTS, ACTS, ENDS, ACTS, ACTS, ENDS][time]
    first = ACTS if time < 2 else ENDS if time == 2 else GONE
    return [first, ACTS if time < 5 else CUT if time == 5 else GONE, second]


@dataclass
class Trajectory:
    """One agent's episode, noted from the outside, step by step."""

    observations: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    last: float = 0.0  # the value of what comes after it


class ByHand(BaseCallback):
    """Collects what each agent went through from the world itself, not from what the VecEnv says."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world, self.open, self.closed = world, {}, []
        self.seen: dict[int, Any] = {}

    def _on_rollout_start(self) -> None:
        self.notice()

    def notice(self) -> None:
        b = self.world.buffers
        self.seen = {row: b.obs[row].copy() for row in range(len(b.obs)) if b.present[row] and not b.dones[row]}
        self.episodes = self.world.episode.copy()

    def _on_step(self) -> bool:
        infos, new_obs, per = self.locals["infos"], self.locals["new_obs"], self.world.spec.agents_per_env
        for row, obs in self.seen.items():
            env, agent = divmod(row, per)
            time = int(obs[3]) + 1
            trajectory = self.open.setdefault(row, Trajectory())
            trajectory.observations.append(obs)
            trajectory.rewards.append(self.world.received[-1][row, 0] + agent / 10)
            trajectory.values.append(self.locals["values"][row].item())
            does = uneven(env, int(self.episodes[env]), time)[agent]
            if does in (ENDS, CUT):
                trajectory.last = self.value(infos[row]["terminal_observation"]) if does == CUT else 0
                self.closed.append(self.open.pop(row))
            else:
                trajectory.last = self.value(new_obs[row])
        self.notice()
        return True

    def value(self, obs: Any) -> float:
        with th.no_grad():
            return self.model.policy.predict_values(th.as_tensor(obs)[None]).item()  # type: ignore[operator]

    def transitions(self) -> NDArray[np.float64]:
        """[n, observation + return + advantage] of all of them, sorted."""
        rows = []
        for trajectory in [*self.closed, *self.open.values()]:
            ahead, following = 0.0, trajectory.last
            for obs, reward, value in zip(
                reversed(trajectory.observations),
                reversed(trajectory.rewards),
                reversed(trajectory.values),
                strict=True,
            ):
                delta = reward + GAMMA * following - value
                ahead = delta + GAMMA * LAMBDA * ahead
                following = value
                rows.append([*obs, ahead + value, ahead])
        return np.array(sorted(rows))


def rollout(buffer: type[RolloutBuffer] | None, num_envs: int = 2) -> tuple[PPO, ByHand]:
    world = World(spec_of(num_envs, {"a": 3}), uneven)
    env = GroupVecEnv(world)
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=STEPS,
        batch_size=8,
        n_epochs=1,
        gamma=GAMMA,
        gae_lambda=LAMBDA,
        seed=1,
        device="cpu",
        rollout_buffer_class=buffer,
        policy_kwargs={"net_arch": [8]},
    )
    by_hand = ByHand(world)
    _, callback = model._setup_learn(10**6, [ActiveRows(), by_hand])  # as learn() does before its first rollout
    callback.on_training_start({}, {})
    assert model.collect_rollouts(model.env, callback, model.rollout_buffer, STEPS)  # type: ignore[arg-type]
    return model, by_hand


def batched(model: PPO) -> NDArray[np.float64]:
    given = list(model.rollout_buffer.get(8))
    whole = [
        np.concatenate([b.observations.numpy(), b.returns.numpy()[:, None], b.advantages.numpy()[:, None]], axis=1)
        for b in given
    ]
    return np.array(sorted(np.concatenate(whole).astype(np.float64).tolist()))


def test_batches_hold_exactly_the_true_transitions() -> None:
    model, by_hand = rollout(ActiveRolloutBuffer)
    np.testing.assert_allclose(batched(model), by_hand.transitions(), rtol=1e-5, atol=1e-5)
    again = list(model.rollout_buffer.get())
    assert len(again) == 1
    assert len(again[0].observations) == len(by_hand.transitions())


def test_the_plain_buffer_learns_from_steps_that_never_were() -> None:
    model, by_hand = rollout(None)
    plain, true = batched(model), by_hand.transitions()
    assert len(plain) == STEPS * 6 > len(true)
    rows = {tuple(np.round(row, 4)) for row in true.tolist()}
    invented = [row for row in plain.tolist() if tuple(np.round(row, 4)) not in rows]
    assert len(invented) == len(plain) - len(true)  # the true ones are the same; the rest is reward 0 out of nothing
    assert len(invented) / len(plain) > 0.3


def test_gradients_are_those_of_the_true_transitions() -> None:
    """One epoch of one batch over the buffer against the same loss over hand-made tensors."""
    model, by_hand = rollout(ActiveRolloutBuffer)
    true = th.tensor(by_hand.transitions(), dtype=th.float32)
    buffer = model.rollout_buffer
    data = next(iter(buffer.get()))

    def gradient(observations: Any, chosen: Any, old: Any, advantages: Any, returns: Any) -> Any:
        model.policy.zero_grad()
        values, log_prob, _ = model.policy.evaluate_actions(observations, chosen)
        ratio = th.exp(log_prob - old)
        loss = -(advantages * ratio).mean() + ((returns - values.flatten()) ** 2).mean()
        loss.backward()
        return th.cat([p.grad.flatten() for p in model.policy.parameters() if p.grad is not None])

    order = sorted(range(len(true)), key=lambda i: [*data.observations[i].tolist(), data.returns[i].item()])
    mine = gradient(data.observations, data.actions, data.old_log_prob, data.advantages, data.returns)
    theirs = gradient(true[:, :4], data.actions[order], data.old_log_prob[order], true[:, 5], true[:, 4])
    th.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_ppo_learns_and_its_steps_are_counted_as_rows() -> None:
    env = VecNormalize(GroupVecEnv(World(spec_of(2, {"a": 3}), uneven)))
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=STEPS,
        batch_size=8,
        n_epochs=1,
        rollout_buffer_class=ActiveRolloutBuffer,
        device="cpu",
    )
    model.learn(3 * STEPS * 6, callback=ActiveRows())
    assert model.num_timesteps == 3 * STEPS * 6
    assert model.ep_info_buffer is not None
    assert {info["l"] for info in model.ep_info_buffer} == {2, 5}  # agent 2 acts twice two steps an episode


def test_without_the_callback_it_says_so() -> None:
    env = GroupVecEnv(World(spec_of(1, {"a": 3}), uneven))
    model = PPO("MlpPolicy", env, n_steps=STEPS, rollout_buffer_class=ActiveRolloutBuffer, device="cpu")
    with pytest.raises(errors.ConfigurationError, match="ActiveRows"):
        model.learn(STEPS * 3)


def test_a_rollout_without_any_true_step_is_named() -> None:
    def script(env: int, episode: int, time: int) -> list[int]:
        return [ACTS if time == 0 else ENDS if time == 1 else GONE, ACTS]

    env = GroupVecEnv(World(spec_of(1, {"a": 1, "b": 1}), script), "a", {"b": "random"})
    model = PPO("MlpPolicy", env, n_steps=4, batch_size=4, rollout_buffer_class=ActiveRolloutBuffer, device="cpu")
    with pytest.raises(errors.ConfigurationError, match=r"no agent of this group.*raise n_steps"):
        model.learn(8, callback=ActiveRows())


def test_a_replay_buffer_holds_exactly_the_true_transitions() -> None:
    world = World(spec_of(2, {"a": 3}), uneven)
    model = SAC(
        "MlpPolicy",
        GroupVecEnv(world),
        replay_buffer_class=ActiveReplayBuffer,
        buffer_size=50,
        learning_starts=6,
        batch_size=4,
        device="cpu",
        policy_kwargs={"net_arch": [4]},
        seed=0,
    )
    true: list[list[float]] = []

    class Notes(ByHand):
        def _on_step(self) -> bool:
            for row, obs in self.seen.items():
                env, agent = divmod(row, 3)
                time = int(obs[3]) + 1
                does = uneven(env, 0, time)[agent]
                reward = self.world.received[-1][row, 0] + agent / 10
                true.append([*obs, *obs[:3], time, reward, does in (ENDS, CUT), does == CUT])
            self.notice()
            return True

    model.learn(6 * 10, callback=Notes(world))
    buffer = model.replay_buffer
    assert buffer is not None
    assert not buffer.full
    held = np.concatenate(
        [
            buffer.observations[: buffer.pos, 0],
            buffer.next_observations[: buffer.pos, 0],
            buffer.rewards[: buffer.pos],
            buffer.dones[: buffer.pos],
            buffer.timeouts[: buffer.pos],
        ],
        axis=1,
    )
    np.testing.assert_allclose(held, np.array(true, np.float32), rtol=1e-6)


def test_a_replay_buffer_goes_round() -> None:
    space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    buffer = ActiveReplayBuffer(4, space, space, "cpu", n_envs=3)
    for k in range(3):
        obs = np.array([[10 * k], [10 * k + 1], [10 * k + 2]], np.float32)
        infos: list[dict[str, Any]] = [{}, {"inactive": True}, {}]
        buffer.add(obs, obs + 0.5, obs, obs[:, 0], np.zeros(3, np.bool_), infos)
    assert buffer.observations[:, 0, 0].tolist() == [20, 22, 10, 12]
    assert buffer.full
    with pytest.raises(errors.ConfigurationError, match="optimize_memory_usage"):
        ActiveReplayBuffer(4, space, space, "cpu", n_envs=3, optimize_memory_usage=True)


def test_dict_buffers_leave_rows_out_too() -> None:
    space = spaces.Dict({"x": spaces.Box(-9, 99, (1,), np.float32)})
    box = spaces.Box(-1, 1, (1,), np.float32)
    infos: list[dict[str, Any]] = [{}, {"inactive": True}]
    obs = {"x": np.array([[1], [2]], np.float32)}
    action = np.zeros((2, 1), np.float32)
    replay = ActiveDictReplayBuffer(4, space, box, "cpu", n_envs=2)
    replay.add(obs, obs, action, action[:, 0], action[:, 0], infos)
    assert replay.pos == 1
    rollout = ActiveDictRolloutBuffer(1, space, box, "cpu", n_envs=2)
    rollout.next_active = np.array([True, False])
    zeros = th.zeros(2)
    rollout.add(obs, action, action[:, 0], action[:, 0], zeros, zeros)
    (batch,) = list(rollout.get(8))
    assert batch.observations["x"].tolist() == [[1]]
