"""Bridges in inference mode: a policy in the trainer's place, tick by tick, without a socket."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.bridges.policies import PlusOne, inferring
from tests.support.games import Steps, bridge
from ue_rl.bridges import GymnasiumBridge, SingleEnvBridge, VectorBridge
from ue_rl.protocol.spec import EnvSpec, EnvType
from ue_rl.system import errors


class Echo(Steps):
    """Its state is the last action; an action runs for two ticks; an episode has three steps."""

    def show(self, env: int) -> Any:
        return [self.acted[env] if self.steps[env] else 10.0 * env]

    def earn(self, env: int) -> Any:
        return self.acted[env], self.steps[env] >= 3

    def runs(self, env: int) -> int:
        return 2


def test_state_model_action_wait_next() -> None:
    game, policy = bridge(kind=Echo), PlusOne()
    with pytest.raises(errors.ConfigurationError, match="needs a policy"):
        game.start_inference()
    inferring(game, policy)
    seen = []
    for _ in range(6):
        game.update_rl(1 / 60)
        seen.append(list(game.acted))
    assert seen == [[1, 11], [1, 11], [2, 12], [2, 12], [3, 13], [3, 13]]
    assert policy.rows == [2, 2, 2]  # one batched call, and none while actions run
    game.update_rl(1 / 60)
    assert game.begun == [2, 2]  # the episode was over: a new one began
    assert game.acted == [1, 11]


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
    policy = PlusOne()
    game = inferring(bridge(kind=Echo), policy)
    for _ in range(2):
        game.update_rl(0)
    before = list(game.acted)
    policy.answer = answer
    with pytest.raises(kind):
        game.update_rl(0)
    assert game.acted == before
    policy.answer = None  # the game goes on with the next tick
    game.update_rl(0)
    assert game.acted == [v + 1 for v in before]


def test_a_choice_that_does_not_exist_is_refused() -> None:
    game = inferring(GymnasiumBridge("CartPole-v1", 1), PlusOne(np.array([[2.0]]), obs_size=4))
    with pytest.raises(errors.ModelOutputError, match=r"not a choice of its space.*expected an integer from 0 to 1"):
        game.update_rl(0)


class One(SingleEnvBridge):
    """Its state is the last action; an episode has two steps."""

    value, steps = 0.0, 0

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
    game = inferring(One(EnvSpec(1, 1, EnvType.SINGLE)), PlusOne())
    seen = []
    for _ in range(4):
        game.update_rl(0)
        seen.append(game.value)
    assert seen == [6, 7, 6, 7]


@pytest.mark.parametrize("n", [1, 3])
def test_a_vector_bridge_asks_once_for_all_and_resets_each_env_by_itself(n: int) -> None:
    policy = PlusOne()
    game = inferring(Vector(n), policy)
    for _ in range(6):
        game.update_rl(0)
    assert policy.rows == [n] * 6
    assert game.began == [6, 3, 2][:n]
    assert game.outbox.obs[:, 0].tolist() == [1, 102, 203][:n]
    policy.answer = np.full((n, 1), np.inf)
    with pytest.raises(errors.ModelOutputError, match="not a finite number"):
        game.update_rl(0)
    policy.answer = None
    game.update_rl(0)  # the next tick goes on where it stood, with no episode lost
    assert game.began == [7, 4, 3][:n]
    assert game.outbox.obs[0] == 1


def test_a_tick_shows_what_ended_in_it() -> None:
    class Two(Echo):
        def earn(self, env: int) -> Any:
            return 1.0, self.steps[env] >= 2

    game = inferring(bridge(1, kind=Two), PlusOne())
    seen = []
    for _ in range(9):
        game.update_rl(1 / 60)
        seen.append((float(game.outbox.rewards[0]), int(game.outbox.dones[0])))
    assert seen == [(0, 0), (0, 0), (1, 0), (0, 0), (1, 1), (0, 0), (1, 0), (0, 0), (1, 1)]
