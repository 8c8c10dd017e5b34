"""overlap: what is learnt from is what was done, whatever was computed while the engine ticked."""

from __future__ import annotations

from types import MethodType
from typing import Any

import numpy as np
import pytest
import torch
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack, VecNormalize

import ue_rl
from tests.connections.engines.test_several import several
from tests.envs.test_vec_env import maker
from tests.harness.exactness import bridge
from tests.harness.several import MaskedWalk, Walk
from ue_rl.bridges import GymnasiumBridge, run_in_thread, run_shm_in_thread
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.protocol.spec import Parameter
from ue_rl.system.errors import ConfigurationError
from ue_rl.training.overlap import _HalfActing

N = 5
SMALL: dict[str, Any] = {"seed": 3, "device": "cpu"}
ON = {**SMALL, "n_steps": 8, "n_epochs": 1}


def off(**more: Any) -> dict[str, Any]:
    """A dict of its own: Stable-Baselines3 writes into policy_kwargs."""
    small = {"learning_starts": 20, "batch_size": 8, "buffer_size": 500, "policy_kwargs": {"net_arch": [16]}}
    return {**SMALL, **small, **more}


def cartpole(n: int = N) -> UnrealVecEnv:
    return UnrealVecEnv(MemoryTransport(GymnasiumBridge("CartPole-v1", n)))


def pendulum(n: int = N) -> UnrealVecEnv:
    return UnrealVecEnv(MemoryTransport(GymnasiumBridge("Pendulum-v1", n)))


def weights(model: BaseAlgorithm) -> bytes:
    return b"".join(value.detach().numpy().tobytes() for value in model.policy.parameters())


def acting_in_halves(algorithm: Any) -> Any:
    """The algorithm itself, with whole steps, whose policy acts for one half of the envs after the other."""

    class Reference(algorithm):  # type: ignore[misc]
        def collect_rollouts(self, env: VecEnv, callback: Any, *args: Any, **kwargs: Any) -> Any:
            halves = _HalfActing(self, env, 1 << 30)
            forward = self.policy.forward

            def act(policy: Any, obs: Any, *more: Any, **masks: Any) -> Any:
                first, second = (halves._of_half(obs, more, masks, half) for half in (halves._first, halves._second))
                return tuple(halves._join(*pair) for pair in zip(first, second, strict=True))

            self.policy.forward = MethodType(act, self.policy)
            try:
                return super().collect_rollouts(env, callback, *args, **kwargs)
            finally:
                self.policy.forward = forward

    return Reference


CASES: dict[str, tuple[Any, str, Any, dict[str, Any]]] = {
    "ppo": (PPO, "MlpPolicy", cartpole, ON),
    "a2c-box": (A2C, "MlpPolicy", pendulum, SMALL),
    "ppo-dict": (PPO, "MultiInputPolicy", lambda: UnrealVecEnv(MemoryTransport(bridge("dict"))), ON),
    "recurrent": (RecurrentPPO, "MlpLstmPolicy", cartpole, {**ON, "policy_kwargs": {"lstm_hidden_size": 8}}),
    "masked": (MaskablePPO, "MlpPolicy", lambda: UnrealVecEnv(several(MaskedWalk, (3, 2, 4))), ON),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.exhaustive if name == "a2c-box" else ()) for name in CASES]
)
def test_only_the_order_of_the_draws_differs_from_whole_steps(name: str) -> None:
    """Rollouts and weights are, to the bit, those of whole steps of a policy that acts for one half after the other."""
    kind, policy, env, options = CASES[name]
    mine = ue_rl.overlap(kind)(policy, env(), **options).learn(80)
    reference = acting_in_halves(kind)(policy, env(), **options).learn(80)
    for field in ("actions", "rewards", "values", "log_probs", "episode_starts"):
        got, want = getattr(mine.rollout_buffer, field), getattr(reference.rollout_buffer, field)
        np.testing.assert_array_equal(got, want)
    assert weights(mine) == weights(reference)


def test_training_is_the_same_over_every_carrier_and_again() -> None:
    found = {weights(ue_rl.overlap(PPO)("MlpPolicy", cartpole(), **ON).learn(80)) for _ in range(2)}
    with run_in_thread(GymnasiumBridge("CartPole-v1", N)) as text:
        for channel in ("shared", "per_env"):
            with ue_rl.connect(text.url, channel=channel, timeout=20).transport as transport:
                found.add(weights(ue_rl.overlap(PPO)("MlpPolicy", UnrealVecEnv(transport), **ON).learn(80)))
    with run_shm_in_thread(GymnasiumBridge("CartPole-v1", N)) as shm:
        env = ue_rl.connect(shm.url, timeout=20)
        found.add(weights(ue_rl.overlap(PPO)("MlpPolicy", env, **ON).learn(80)))
        env.close()
    assert len(found) == 1


def test_what_is_stored_is_what_the_policy_saw_and_did() -> None:
    """Of VecNormalize, whose statistics move on while the second half steps."""

    class Judge(BaseCallback):
        judged = 0

        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            buffer = self.model.rollout_buffer  # type: ignore[attr-defined]
            obs, actions = (
                torch.as_tensor(values.reshape(8 * N, -1)) for values in (buffer.observations, buffer.actions)
            )
            with torch.no_grad():
                values, log_probs, _ = self.model.policy.evaluate_actions(obs, actions)  # type: ignore[operator]
            np.testing.assert_allclose(values.reshape(8, N), buffer.values, atol=1e-5)
            np.testing.assert_allclose(log_probs.reshape(8, N), buffer.log_probs, atol=1e-4)
            self.judged += 1

    judge = Judge()
    env = VecNormalize(pendulum())
    ue_rl.overlap(PPO)("MlpPolicy", env, **ON).learn(160, callback=judge)
    assert judge.judged == 4
    assert env.obs_rms.count > 160


@pytest.mark.parametrize("kind", [PPO, SAC])
def test_what_is_saved_is_the_algorithms_own(tmp_path: Any, kind: Any) -> None:
    overlapped = ue_rl.overlap(kind)
    assert ue_rl.overlap(overlapped) is overlapped
    model = overlapped("MlpPolicy", pendulum(), **(ON if kind is PPO else off())).learn(40)
    model.save(tmp_path / "model.zip")
    assert weights(kind.load(tmp_path / "model.zip")) == weights(model)
    again = overlapped.load(tmp_path / "model.zip", env=pendulum())
    again.learn(40)
    assert again.num_timesteps >= 40


def test_a_callback_finds_the_policy_itself_and_may_ask_the_engine() -> None:
    """It may save, export and call the policy, and nothing of the next step is under way."""

    class Looking(BaseCallback):
        def _on_rollout_start(self) -> None:
            self._look()

        def _on_step(self) -> bool:
            self._look()
            return self.num_timesteps < 50

        def _look(self) -> None:
            assert "forward" not in vars(self.model.policy)
            with torch.no_grad():
                self.model.policy(torch.zeros(2, 4))
            assert self.training_env.env_method("get_params", indices=[0]) == [{"gravity": 9.8}]

    env = UnrealVecEnv(several(Walk, (3, 2), parameters=(Parameter("gravity", 9.8, 0, 20),)))
    model = ue_rl.overlap(PPO)("MlpPolicy", env, **ON)
    model.learn(1000, callback=Looking())
    assert model.num_timesteps == 50
    model.learn(80, reset_num_timesteps=False)  # goes on where it stopped
    assert model.num_timesteps >= 130
    assert "forward" not in vars(model.policy)
    env.close()


class Order(MemoryTransport):
    """Notes what happens while its answers are awaited."""

    def __init__(self, bridge: Any) -> None:
        super().__init__(bridge)
        self.events: list[str] = []

    def send_actions(self, *args: Any, **options: Any) -> None:
        self.events.append("ask")
        super().send_actions(*args, **options)

    def receive(self) -> Any:
        self.events.append("take")
        return super().receive()


@pytest.mark.parametrize(
    ("kind", "name", "more", "shares"),
    [
        pytest.param(SAC, "Pendulum-v1", {"train_freq": 1, "gradient_steps": 1}, {1}, marks=pytest.mark.exhaustive),
        (SAC, "Pendulum-v1", {"train_freq": 4, "gradient_steps": 10}, {3, 2}),
        (DQN, "CartPole-v1", {"train_freq": 4, "gradient_steps": 2}, {1, 0}),
    ],
)
def test_gradient_steps_are_taken_while_the_engine_ticks(
    kind: Any, name: str, more: dict[str, Any], shares: set[int]
) -> None:
    transport = Order(GymnasiumBridge(name, N))

    class Noted(kind):  # type: ignore[misc]
        def train(self, gradient_steps: int, batch_size: int) -> None:
            transport.events.append(f"learn {gradient_steps}")
            super().train(gradient_steps, batch_size)

    model = ue_rl.overlap(Noted)("MlpPolicy", UnrealVecEnv(transport), **off(**more)).learn(60)
    *events, last = transport.events
    learnt = [int(event.split()[1]) for event in (*events, last) if event.startswith("learn")]
    assert set(learnt[:-1]) <= shares
    for before, event, after in zip(events, events[1:], events[2:], strict=False):
        if event.startswith("learn"):
            assert (before, after) == ("ask", "take")
    plain = kind("MlpPolicy", UnrealVecEnv(MemoryTransport(GymnasiumBridge(name, N))), **off(**more)).learn(60)
    assert sum(learnt) == model._n_updates == plain._n_updates
    assert model.gradient_steps_owed == 0
    again = ue_rl.overlap(kind)("MlpPolicy", UnrealVecEnv(Order(GymnasiumBridge(name, N))), **off(**more)).learn(60)
    assert weights(model) == weights(again)


@pytest.mark.parametrize(("kind", "options"), [(PPO, ON), (DQN, off())])
def test_a_run_that_was_broken_off_goes_on_with_new_episodes(kind: Any, options: dict[str, Any]) -> None:
    model = ue_rl.overlap(kind)("MlpPolicy", cartpole(), **options)
    left = iter(range(20))

    def interrupt(*_: object) -> None:
        if model.get_env().unwrapped.under_way and next(left, None) is None:
            raise KeyboardInterrupt

    hook = torch.nn.modules.module.register_module_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.learn(200)
    hook.remove()
    assert model._last_obs is None
    model.learn(100, reset_num_timesteps=False)
    env = model.get_env().unwrapped
    assert not env.under_way
    env.step(np.zeros(N, np.int64))


def refused(make: Any, match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        make().learn(100)


def test_what_cannot_be_overlapped_is_refused_by_name() -> None:
    refused(lambda: ue_rl.overlap(PPO)("MlpPolicy", pendulum(), **ON, use_sde=True), "use_sde")
    refused(lambda: ue_rl.overlap(PPO)("MlpPolicy", VecFrameStack(pendulum(), 2), **ON), "VecFrameStack")
    refused(lambda: ue_rl.overlap(PPO)("MlpPolicy", cartpole(1), **ON), "two envs or more")
    own = DummyVecEnv([maker("box")] * 2)
    for kind, options in ((PPO, ON), (SAC, off())):
        refused(lambda kind=kind, options=options: ue_rl.overlap(kind)("MlpPolicy", own, **options), "UnrealVecEnv")
    with pytest.raises(ConfigurationError, match="no rollouts"):
        ue_rl.overlap(BaseAlgorithm)


class AsksThePolicy(BaseCallback):
    """Asks the policy itself, for two observations, wherever a callback is called."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def _ask(self, where: str) -> bool:
        policy: Any = self.model.policy
        with torch.no_grad():
            actions = policy(torch.zeros(2, 4))[0]
        assert len(actions) == 2
        assert "forward" not in vars(policy), "the policy is itself, and may be saved"
        self.asked.append(where)
        return True

    def _on_training_start(self) -> None:
        self._ask("training start")

    def _on_rollout_start(self) -> None:
        self._ask("rollout start")

    def _on_step(self) -> bool:
        return self._ask("step")

    def _on_rollout_end(self) -> None:
        self._ask("rollout end")

    def _on_training_end(self) -> None:
        self._ask("training end")


@pytest.mark.parametrize("kind", [PPO, A2C])
def test_a_callback_may_ask_the_policy_wherever_it_is_called(kind: Any) -> None:
    env = cartpole()
    asks = AsksThePolicy()
    ue_rl.overlap(kind)("MlpPolicy", env, n_steps=8, **SMALL).learn(16 * N, asks)
    env.close()
    steps = ["rollout start", *["step"] * 8, "rollout end"]
    assert asks.asked == ["training start", *steps, *steps, "training end"]
