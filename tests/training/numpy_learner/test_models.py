"""A model that NumPy learns is the algorithm's own: saved, loaded, copied, gone on with by torch, and the reverse."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

import ue_rl
from tests.training.numpy_learner.test_kinds import ACTIONS, BOX, KINDS, SMALL, by_ppo, envs, weights
from ue_rl.bridges import GymnasiumBridge, run_in_thread, run_shm_in_thread
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.agents import ActiveRolloutBuffer
from ue_rl.envs.vec_env import UnrealVecEnv

ONE_BATCH = {"batch_size": 24, "n_epochs": 3}  # so that the order of the samples decides nothing


def env_of(kind: Any, action: str = "Discrete") -> DummyVecEnv:
    return envs(BOX, ACTIONS[action], kind is MaskablePPO)


def arguments(kind: Any) -> dict[str, Any]:
    return dict(SMALL) if kind is A2C else {**SMALL, **ONE_BATCH}


def new(kind: Any, action: str = "Discrete", **more: Any) -> Any:
    return ue_rl.numpy_learner(kind)("MlpPolicy", env_of(kind, action), **{**arguments(kind), **more})


def optimizer_state(model: Any) -> dict[str, Any]:
    return {
        f"{number}.{name}": torch.as_tensor(value).clone()
        for number, state in model.policy.optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }


def assert_near(one: Any, other: Any) -> None:
    """The same but for rounding: weights, and what the optimizer remembers."""
    for mine, theirs in zip(one.policy.parameters(), other.policy.parameters(), strict=True):
        np.testing.assert_allclose(mine.detach(), theirs.detach(), rtol=2e-4, atol=2e-5)
    first, second = optimizer_state(one), optimizer_state(other)
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_allclose(value, second[name], rtol=2e-3, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_what_it_is_made_of(kind: Any, tmp_path: Path) -> None:
    model = new(kind).learn(24)
    assert isinstance(model, kind)
    assert type(model).__name__ == kind.__name__
    assert ue_rl.numpy_learner(kind) is type(model)
    assert ue_rl.numpy_learner(type(model)) is type(model)
    model.save(tmp_path / "model.zip")
    loaded = kind.load(tmp_path / "model.zip")
    assert type(loaded) is kind
    assert weights(loaded) == weights(model)
    assert not {name for name in vars(loaded) if name in ("_binding", "_warned")}
    observations = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    np.testing.assert_array_equal(
        loaded.predict(observations, deterministic=True)[0], model.predict(observations, deterministic=True)[0]
    )


@pytest.mark.parametrize("action", ["Discrete", "Box", "MultiDiscrete", "MultiBinary"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_update_is_torchs(kind: Any, action: str) -> None:
    """From the same rollout, with weights and an optimizer that have learnt; the same numbers are logged."""
    if kind is MaskablePPO and action == "Box":
        return
    more = {} if kind is A2C else {"clip_range_vf": 0.3, "max_grad_norm": 0.2}
    model = new(kind, action, ent_coef=0.05, **more).learn(48)
    reference = kind("MlpPolicy", env_of(kind, action), **{**arguments(kind), "ent_coef": 0.05, **more})
    reference.set_parameters(deepcopy(model.get_parameters()))  # torch keeps what it is given
    reference._setup_learn(1)
    model._setup_learn(1)
    reference._n_updates = model._n_updates
    reference.rollout_buffer = deepcopy(model.rollout_buffer)
    assert_near(model, reference)
    model.train()
    reference.train()
    assert_near(model, reference)
    mine, theirs = model.logger.name_to_value, reference.logger.name_to_value
    assert set(mine) == set(theirs)
    for name, value in theirs.items():
        assert mine[name] == pytest.approx(value, rel=1e-3, abs=1e-4), name


@pytest.mark.parametrize("kind", KINDS)
def test_torch_goes_on_with_it_and_the_reverse(kind: Any, tmp_path: Path) -> None:
    """What the optimizer remembers is in the file."""
    numpys = ue_rl.numpy_learner(kind)
    model = new(kind).learn(48)
    model.save(tmp_path / "model.zip")
    for first, second in ((numpys, kind), (kind, numpys)):
        one = first.load(tmp_path / "model.zip", env=env_of(kind), device="cpu")
        other = second.load(tmp_path / "model.zip", env=env_of(kind), device="cpu")
        assert optimizer_state(one).keys() == optimizer_state(model).keys()
        one.set_logger(model.logger)
        other.set_logger(model.logger)
        one.rollout_buffer = deepcopy(model.rollout_buffer)
        other.rollout_buffer = deepcopy(model.rollout_buffer)
        one.train()
        one.save(tmp_path / "one.zip")
        # The other one takes the next step, from the file of the first.
        resumed = second.load(tmp_path / "one.zip", env=env_of(kind), device="cpu")
        stays = first.load(tmp_path / "one.zip", env=env_of(kind), device="cpu")
        for each in (resumed, stays):
            each.set_logger(model.logger)
            each.rollout_buffer = deepcopy(model.rollout_buffer)
            each.train()
        assert_near(resumed, stays)
        assert weights(resumed) != weights(one)


def test_torch_takes_steps_in_between() -> None:
    """As cloning does, with an optimizer that has seen some of the parameters only."""
    model, reference = new(PPO), PPO("MlpPolicy", env_of(PPO), **arguments(PPO))
    for each in (model, reference):
        torch.manual_seed(0)
        policy: Any = each.policy
        policy.action_net(torch.ones(4, 64)).square().sum().backward()
        policy.optimizer.step()
        policy.optimizer.zero_grad()
    model.learn(24)
    reference._setup_learn(1)
    reference.rollout_buffer = deepcopy(model.rollout_buffer)
    reference._update_current_progress_remaining(24, 24)
    reference.train()
    assert_near(model, reference)
    assert len({float(value) for name, value in optimizer_state(model).items() if name.endswith("step")}) == 2


def rebound(model: Any, change: Any) -> Any:
    """The model that `change` gives learns with arrays that its policy sees."""
    changed = change(model) or model
    changed.learn(24)
    assert changed.torch_learns is None
    assert changed._binding.holds(changed.policy)
    flat = changed._binding.flat
    for parameter in changed.policy.parameters():
        np.testing.assert_array_equal(flat.view(flat.values, parameter), parameter.detach().numpy())
    return changed


def test_its_parameters_stay_views_or_become_views_again(tmp_path: Path) -> None:
    model = new(PPO).learn(24)
    saved = model.get_parameters()
    model.save(tmp_path / "model.zip")
    before = weights(model)
    copied = rebound(model, deepcopy)
    assert weights(model) == before  # the copy has arrays of its own
    assert copied._binding is not model._binding
    rebound(model, lambda each: each.set_parameters(deepcopy(saved)))
    rebound(model, lambda each: each.policy.to("cpu") and None)
    rebound(model, lambda each: each.policy.double().float() and None)
    rebound(model, lambda each: type(each).load(tmp_path / "model.zip", env=env_of(PPO), device="cpu"))


def test_set_parameters_brings_the_optimizer_back_too() -> None:
    model = new(PPO).learn(24)
    saved, buffer = deepcopy(model.get_parameters()), deepcopy(model.rollout_buffer)
    found = []
    for _ in range(2):
        model.set_parameters(deepcopy(saved))
        model.rollout_buffer = deepcopy(buffer)
        np.random.seed(0)
        model.train()
        found.append((weights(model), {name: value.tolist() for name, value in optimizer_state(model).items()}))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", [PPO, A2C])
def test_the_same_seed_is_the_same_run_over_every_carrier(kind: Any) -> None:
    def run(env: Any) -> bytes:
        return weights(ue_rl.numpy_learner(kind)("MlpPolicy", env, **{**arguments(kind), "n_steps": 16}).learn(96))

    bridge = GymnasiumBridge("CartPole-v1", 3)
    found = {run(DummyVecEnv([lambda: gym.make("CartPole-v1")] * 3)) for _ in range(2)}
    found.add(run(UnrealVecEnv(MemoryTransport(bridge))))
    with run_in_thread(GymnasiumBridge("CartPole-v1", 3)) as text:
        for channel in ("shared", "per_env"):
            env = ue_rl.connect(text.url, channel=channel, timeout=20)
            found.add(run(env))
            env.close()
    with run_shm_in_thread(GymnasiumBridge("CartPole-v1", 3)) as shm:
        env = ue_rl.connect(shm.url, timeout=20)
        found.add(run(env))
        env.close()
    assert len(found) == 1


class Locals(BaseCallback):
    """Notes the names and kinds of what a step lets a callback see."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, tuple[type, Any, Any]] = {}
        self.last: Any = None

    def _on_step(self) -> bool:
        for name, value in self.locals.items():
            self.seen[name] = type(value), getattr(value, "shape", None), getattr(value, "dtype", None)
        return True

    def _on_rollout_end(self) -> None:
        self.last = self.locals["values"]


@pytest.mark.parametrize(("kind", "action"), by_ppo(["Discrete", "Box", "MultiDiscrete", "MultiBinary"]))
def test_callbacks_find_what_they_find_with_torch(kind: Any, action: str) -> None:
    if kind is MaskablePPO and action == "Box":
        return
    mine, theirs = Locals(), Locals()
    new(kind, action).learn(48, callback=mine)
    kind("MlpPolicy", env_of(kind, action), **arguments(kind)).learn(48, callback=theirs)
    # These are of one episode's end, inside of a loop over the envs.
    hidden = {"idx", "done", "terminal_obs", "terminal_value"}
    for name, wanted in theirs.seen.items():
        if name in hidden or (isinstance(getattr(wanted[0], "mro", list)(), list) and name in ("self", "callback")):
            continue
        if name == "iteration":
            assert name in mine.seen
            continue
        assert mine.seen[name] == wanted, name
    assert mine.last.shape == theirs.last.shape


def test_a_callback_ends_learning_in_the_middle_of_a_rollout() -> None:
    class Ends(BaseCallback):
        def _on_step(self) -> bool:
            return self.n_calls < 4

    model = new(PPO)
    before = weights(model)
    model.learn(48, callback=Ends())
    assert model.num_timesteps == 12
    assert model.rollout_buffer.pos == 3
    assert weights(model) == before
    model.learn(24)
    assert weights(model) != before


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_no_numbers_end_a_run_as_with_torch(kind: Any) -> None:
    for each in (new(kind), kind("MlpPolicy", env_of(kind), **arguments(kind))):
        each.learn(24)
        with torch.no_grad():
            next(each.policy.action_net.parameters())[0] = float("nan")
        with pytest.raises(ValueError, match=r"NaN|nan"):
            each.learn(24)


def test_a_run_that_learns_no_numbers_ends_at_the_next_action_as_with_torch() -> None:
    for kind in (PPO, ue_rl.numpy_learner(PPO)):
        model = kind(
            "MlpPolicy", env_of(PPO), **arguments(PPO), learning_rate=lambda left: 1e-3 if left == 1 else float("nan")
        )
        with pytest.raises(ValueError, match=r"NaN|nan"):
            model.learn(240)
        assert model.num_timesteps == 24


def test_updates_stop_at_the_divergence_that_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    model = new(PPO, learning_rate=0.1, target_kl=0.01, n_epochs=50, verbose=1).learn(24)
    assert 1 < model._n_updates < 50
    assert "ends early" in capsys.readouterr().out


def test_schedules_are_followed() -> None:
    model = new(PPO, learning_rate=lambda left: 0.01 * left, clip_range=lambda left: 0.4 * left).learn(48)
    assert model.policy.optimizer.param_groups[0]["lr"] == 0
    model = new(PPO, learning_rate=lambda left: 0.01 * left, clip_range=lambda left: 0.4 * left)
    model.learn(48, callback=(seen := Rates()))
    assert seen.rates == [(0.005, 0.2), (0.0, 0.0)][: len(seen.rates)]


class Rates(BaseCallback):
    """Learning rate and clip range of each update but the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.rates: list[tuple[float, float]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        values = self.logger.name_to_value
        if "train/clip_range" in values:
            self.rates.append((values["train/learning_rate"], values["train/clip_range"]))


def test_returns_are_those_of_the_buffer_and_cut_episodes_go_on() -> None:
    class Compares(BaseCallback):
        compared = 0

        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            model: Any = self.model
            buffer = deepcopy(model.rollout_buffer)
            advantages, returns = buffer.advantages.copy(), buffer.returns.copy()
            buffer.compute_returns_and_advantage(self.locals["values"], self.locals["dones"])
            np.testing.assert_allclose(advantages, buffer.advantages, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(returns, buffer.returns, rtol=1e-4, atol=1e-5)
            self.compared += 1

    new(PPO, gae_lambda=0.9).learn(96, callback=(compares := Compares()))
    assert compares.compared == 4


def test_the_value_of_what_a_limit_cut_off_is_added_to_its_reward() -> None:
    """Torch and NumPy act alike here: they are given the same actions."""

    class Same(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.given: list[Any] = []

        def _on_step(self) -> bool:
            self.given.append(self.locals["rewards"])
            return True

    more = {"n_steps": 32, "gamma": 0.9}
    mine = new(PPO, **more)
    theirs = PPO("MlpPolicy", env_of(PPO), **{**arguments(PPO), **more})
    with torch.no_grad():
        for each in (mine, theirs):
            each.policy.value_net.bias.fill_(7.0)  # so that what is added shows
    rewards = []
    for each in (mine, theirs):
        each._setup_learn(96, callback=(same := Same()))
        each.collect_rollouts(each.env, wrapped(each, same), each.rollout_buffer, 32)
        rewards.append(np.array(same.given))
    np.testing.assert_allclose(rewards[0], rewards[1], atol=0.5)
    assert (np.abs(rewards[0]) > 4).any()


def wrapped(model: BaseAlgorithm, callback: BaseCallback) -> BaseCallback:
    callback.init_callback(model)
    callback.on_training_start({}, {})
    return callback


class FirstEnvAlone(ActiveRolloutBuffer):
    """Leaves out the rows of the other envs."""

    def add(self, *args: Any, **kwargs: Any) -> None:
        self.next_active = np.arange(self.n_envs) == 0
        super().add(*args, **kwargs)


def test_another_buffer_is_asked_by_its_methods() -> None:
    """It may leave out rows."""
    model = new(PPO, rollout_buffer_class=FirstEnvAlone)
    before = weights(model)
    model.learn(24)
    assert len(model.rollout_buffer.returns) == 8
    assert weights(model) != before


@pytest.mark.parametrize("kind", [PPO, A2C])
def test_a_learning_rate_that_is_far_too_high_ends_a_run_as_with_torch(kind: Any) -> None:
    """A gradient that has one number too few spoils all weights, so that the next action shows it."""
    for each in (kind, ue_rl.numpy_learner(kind)):
        model = each("MlpPolicy", env_of(kind), **arguments(kind), learning_rate=1e30)
        with pytest.raises(ValueError, match=r"NaN|nan"):
            model.learn(240)
