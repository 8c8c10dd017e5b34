"""The plugin's life cycle on a MultiEnvBridge and a SingleEnvBridge, in memory and over sockets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ue_rl
from tests.support.games import Steps, bridge
from ue_rl.bridges import BaseBridge, Mode, SingleEnvBridge, VectorBridge
from ue_rl.bridges.game import EnvIds
from ue_rl.protocol.spec import EnvSpec, EnvType
from ue_rl.system import errors

FEATURES = frozenset({"SEED", "OPTIONS", "TRUNC"})


class Counter(Steps):
    """An action runs for as many ticks as it says; over after three steps, cut after four."""

    def show(self, env: int) -> Any:
        return [self.steps[env], env]

    def earn(self, env: int) -> Any:
        return self.steps[env] / 2, self.steps[env] >= 3, self.steps[env] == 4

    def runs(self, env: int) -> int:
        return int(self.acted[env])


def counter(n: int = 2) -> Any:
    game = bridge(n, kind=Counter, obs_size=2)
    game.start_training()
    return game


def ask(bridge: BaseBridge, *commands: int) -> None:
    bridge.inbox.command[:] = commands


def test_an_action_is_answered_in_the_first_tick_in_which_it_has_ended() -> None:
    game = counter(3)
    ask(game, 2, 2, 2)
    game.update_rl(0.1)
    assert game.answered.tolist() == [1, 1, 1]
    game.answered[:] = 0
    game.inbox.actions[:, 0] = [1, 2, 3]
    ask(game, 1, 1, 1)
    for expected in ([1, 0, 0], [0, 1, 0], [0, 0, 1]):
        assert game.lockstep.busy
        game.update_rl(0.1)
        assert game.answered.tolist() == expected
        game.answered[:] = 0
    assert not game.lockstep.busy
    assert game.outbox.obs.tolist() == [[1, 0], [1, 1], [1, 2]]
    assert game.outbox.rewards.tolist() == [0.5] * 3
    assert game.steps == [1, 1, 1]  # applied once each


def test_only_asked_envs_are_touched_and_a_reset_interrupts_an_action() -> None:
    game = counter(2)
    ask(game, 2, 2)
    game.update_rl(0)
    game.inbox.actions[:, 0] = 5
    game.answered[:] = 0
    ask(game, 0, 1)
    game.update_rl(0)
    assert game.answered.tolist() == [0, 0]
    assert game.steps == [0, 1]
    game.lockstep.forget_requests()  # the trainer has gone in the middle of an action
    assert not game.lockstep.busy
    ask(game, 0, 2)
    game.inbox.seeds[1] = 8
    game.update_rl(0)
    assert game.answered.tolist() == [0, 1]
    assert game.steps == [0, 0]
    assert game.seeds == [None, 8]


def test_truncated_is_done_too() -> None:
    game = counter(1)
    ask(game, 2)
    game.update_rl(0)
    seen = []
    for _ in range(4):
        game.inbox.actions[:, 0] = 1
        ask(game, 1)
        game.update_rl(0)
        seen.append((int(game.outbox.dones[0]), int(game.outbox.truncated[0])))
    assert seen == [(0, 0), (0, 0), (1, 0), (1, 1)]


@pytest.mark.parametrize("text", ["0.5,-1.25;", "0.5;-1.25;", "0.50,-1.25", "0.500000,-1.250000;"])
def test_ready_strings_in_every_spelling(text: str) -> None:
    game = counter(1)
    game.show = lambda env: text
    ask(game, 2)
    game.update_rl(0)
    assert game.outbox.obs.tolist() == [[0.5, -1.25]]


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ([1.0], errors.WrongCount),
        ("1;", errors.WrongCount),
        ("1,x", errors.MalformedMessage),
        ("nan,1", errors.NonFiniteValue),
        (None, errors.MalformedMessage),
        ({"x": 1, "y": 2}, errors.MalformedMessage),
        (["left", "right"], errors.MalformedMessage),
        ([[1, 2], 3], errors.MalformedMessage),
    ],
)
def test_a_wrong_state_is_the_games_fault_by_name(state: Any, kind: type[Exception]) -> None:
    game = counter(1)
    game.show = lambda env: state
    ask(game, 2)
    with pytest.raises(kind, match="at fault: engine"):
        game.update_rl(0)


@pytest.mark.parametrize("result", [None, 1.0, (1.0,), (1.0, False, False, {}), {"reward": 1}])
def test_a_reward_without_done_is_the_games_fault_by_name(result: Any) -> None:
    class Wrong(Counter):
        def calculate_reward_for_env(self, env_id: int) -> Any:
            return result

    game = bridge(1, kind=Wrong, obs_size=2)
    game.start_training()
    ask(game, 2)
    with pytest.raises(errors.MalformedMessage, match="whether the episode is over") as caught:
        game.update_rl(0)
    assert f"got {result!r}" in str(caught.value)


def test_the_plugins_order_initialize_then_connect() -> None:
    bridge = Counter()
    with pytest.raises(errors.ConfigurationError, match="no sizes yet"):
        _ = bridge.spec
    bridge.initialize_environments(3)
    server = bridge.connect("127.0.0.1", 0, act_size=1, obs_size=2)
    try:
        told = "CONFIG:OBS=2;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=3;VERSION=1;CHANNEL=ANY;FEATURES=AUTORESET,ERROR,SEQ"
        assert bridge.build_handshake() == told
        assert bridge.mode is Mode.TRAINING
        for channel in ("per_env", "shared"):  # one trainer after the other
            env = ue_rl.connect(server.url, channel=channel, timeout=10)
            assert env.reset().tolist() == [[0, 0], [0, 1], [0, 2]]
            obs, rewards, _, _ = env.step(np.array([[2], [1], [4]], np.float32))
            assert obs.tolist() == [[1, 0], [1, 1], [1, 2]]
            assert rewards.tolist() == [0.5] * 3
            env.close()
    finally:
        bridge.disconnect()
        bridge.disconnect()
    assert bridge.mode is Mode.IDLE
    with pytest.raises(errors.EngineUnreachable):
        ue_rl.connect(server.url, timeout=1)
    bridge.initialize_environments(2)
    assert bridge.num_envs == 2


class One(SingleEnvBridge):
    """One env: the sum of its actions."""

    def create_state_string(self) -> Any:
        return f"{self.total:.2f};"

    def calculate_reward(self) -> Any:
        return 1, abs(self.total) > 1

    def handle_reset(self, options: Any = None) -> None:
        self.total = float((options or {}).get("start", 0))

    def handle_response_actions(self, actions: np.ndarray) -> None:
        self.total += float(actions[0])


@pytest.mark.parametrize("env_type", [EnvType.SINGLE, EnvType.RLBASE])
def test_single_bridge(env_type: EnvType) -> None:
    features = FEATURES if env_type is EnvType.SINGLE else frozenset()
    bridge = One(EnvSpec(1, 1, env_type, features=features))
    bridge.total = 0.0
    server = bridge.connect("127.0.0.1", 0)
    env = ue_rl.connect(server.url, timeout=10)
    if env_type is EnvType.SINGLE:
        env.set_options({"start": 0.5})
    start = 0.5 if env_type is EnvType.SINGLE else 0.0
    assert env.reset().tolist() == [[start]]
    obs, rewards, dones, _ = env.step(np.array([[0.25]], np.float32))
    assert (obs.tolist(), rewards.tolist(), dones.tolist()) == ([[start + 0.25]], [1], [False])
    _, _, dones, infos = env.step(np.array([[1]], np.float32))
    assert dones.tolist() == [True]
    assert infos[0]["terminal_observation"].tolist() == [start + 1.25]
    env.close()
    bridge.disconnect()


class Doubler(VectorBridge):
    """Arrays in, arrays out; remembers what it was asked for."""

    def reset_envs(self, env_ids: EnvIds, seeds: Any, options: Any) -> None:
        self.asked = (env_ids.tolist(), list(seeds), list(options))
        self.outbox.obs[env_ids] = 0

    def step_envs(self, actions: np.ndarray, env_ids: EnvIds) -> None:
        self.stepped = env_ids.tolist()
        self.outbox.obs[env_ids] = 2 * actions[env_ids]
        self.outbox.dones[env_ids] = actions[env_ids, 0] > 5


def test_vector_bridge_steps_all_or_some() -> None:
    bridge = Doubler(EnvSpec(1, 1, num_envs=3, features=FEATURES))
    bridge.start_training()
    bridge.inbox.actions[:, 0] = [1, 2, 9]
    ask(bridge, 1, 1, 1)
    bridge.update_rl(0)
    assert bridge.outbox.obs.ravel().tolist() == [2, 4, 18]
    assert bridge.outbox.dones.tolist() == [0, 0, 1]
    assert bridge.answered.tolist() == [1, 1, 1]
    bridge.answered[:] = 0
    ask(bridge, 1, 0, 2)
    bridge.inbox.seeds[2] = 7
    bridge.inbox.options[2] = {"a": 1}
    bridge.update_rl(0)
    assert bridge.stepped == [0]
    assert bridge.asked == ([2], [7], [{"a": 1}])
    assert bridge.answered.tolist() == [1, 0, 1]
    assert bridge.outbox.dones.tolist() == [0, 0, 0]
    assert bridge.inbox.seeds.tolist() == [-1] * 3
    assert not bridge.lockstep.busy
