"""Action masks of games: the callbacks of the bridges, and what a trainer and a policy are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ue_rl import errors
from ue_rl.bridges import MultiEnvBridge, SingleEnvBridge, VectorBridge
from ue_rl.spec import ActionSpec, EnvSpec, EnvType
from ue_rl.testing import MemoryTransport

ACTION = ActionSpec.multi_discrete((2, 3))


class Doors(MultiEnvBridge):
    """Counts its steps; ends at the third, or is cut there in env 1."""

    mask: Any = staticmethod(lambda env, count: [1, count == 0, True, False, env])

    def create_state_string_for_env(self, env_id: int) -> Any:
        return [self.count[env_id]]

    def calculate_reward_for_env(self, env_id: int) -> Any:
        return 0.0, self.count[env_id] == 3, self.count[env_id] == 3 and env_id == 1

    def handle_reset_for_env(self, env_id: int) -> None:
        self.count: dict[int, int] = {**getattr(self, "count", {}), env_id: 0}

    def handle_response_actions_for_env(self, env_id: int, actions: NDArray[np.float32]) -> None:
        self.count[env_id] += 1

    def create_action_mask_for_env(self, env_id: int) -> Any:
        assert self.count[env_id] < 3 or env_id == 1
        return self.mask(env_id, self.count[env_id])


class Plain(Doors):
    create_action_mask_for_env = MultiEnvBridge.create_action_mask_for_env


def start(bridge: Any, through_codec: bool = True) -> tuple[MemoryTransport, Any]:
    transport = MemoryTransport(bridge, through_codec=through_codec)
    transport.connect()
    transport.reset()
    return transport, transport.receive()


def step(transport: MemoryTransport) -> None:
    transport.send_actions(np.zeros((transport.spec.num_envs, transport.spec.act_size), np.float32))
    transport.receive()


@pytest.mark.parametrize("through_codec", [True, False])
def test_masks_are_announced_and_follow_the_states(through_codec: bool) -> None:
    bridge = Doors(EnvSpec(1, 2, num_envs=2, action=ACTION))
    assert "MASK" in bridge.spec.features
    transport, buffers = start(bridge, through_codec)
    assert buffers.masks.tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 0, 1]]
    step(transport)
    assert buffers.masks.tolist() == [[1, 0, 1, 0, 0], [1, 0, 1, 0, 1]]
    step(transport)
    step(transport)
    assert buffers.dones.all()
    assert buffers.masks.tolist() == [[1, 1, 1, 1, 1], [1, 0, 1, 0, 1]]  # nothing follows a terminal state
    transport.reset([0])
    transport.receive()
    assert buffers.masks.tolist() == [[1, 1, 1, 0, 0], [1, 0, 1, 0, 1]]


def test_where_there_is_nothing_to_say_nothing_is_announced() -> None:
    assert "MASK" not in Plain(EnvSpec(1, 2, num_envs=2, action=ACTION)).spec.features
    assert "MASK" not in Doors(EnvSpec(1, 2, num_envs=2)).spec.features
    assert "MASK" not in Doors(EnvSpec(1, 2, num_envs=2, action=ACTION, version=0)).spec.features
    _, buffers = start(Doors(EnvSpec(1, 2, num_envs=2)))
    assert buffers.masks.shape == (2, 0)
    bridge = Doors(EnvSpec(1, 2, num_envs=2, action=ACTION))
    bridge.mask = lambda env, count: None
    assert start(bridge)[1].masks.all()


def test_a_mask_of_a_wrong_size_is_named() -> None:
    bridge = Doors(EnvSpec(1, 2, num_envs=2, action=ACTION))
    bridge.mask = lambda env, count: [1] * (5 - env)
    with pytest.raises(errors.WrongCount, match=r"wrong number of flags \(env 1, field MASK\); expected 5; got 4"):
        start(bridge)


class OneDoor(SingleEnvBridge):
    """The callbacks without `_for_env`."""

    def create_state_string(self) -> Any:
        return [0.0]

    def calculate_reward(self) -> Any:
        return 0.0, False

    def handle_reset(self) -> None:
        pass

    def handle_response_actions(self, actions: NDArray[np.float32]) -> None:
        pass


class OneMaskedDoor(OneDoor):
    def create_action_mask(self) -> Any:
        return np.array([True, False, False])


def test_single_env_bridges_have_masks_too() -> None:
    spec = EnvSpec(1, 1, EnvType.SINGLE, action=ActionSpec.discrete(3))
    assert start(OneMaskedDoor(spec))[1].masks.tolist() == [[1, 0, 0]]
    assert "MASK" not in OneDoor(spec).spec.features
    assert "MASK" not in OneMaskedDoor(EnvSpec(1, 1, EnvType.RLBASE, action=ActionSpec.discrete(3))).spec.features


class Rows(VectorBridge):
    """Masks in arrays."""

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.outbox.obs[env_ids] = 0
        self.outbox.masks[env_ids] = 1

    def step_envs(self, actions: NDArray[np.float32], env_ids: Any) -> None:
        self.outbox.obs[env_ids] += 1
        self.outbox.masks[env_ids, 2] = 0


def test_vector_bridges_write_masks_in_place() -> None:
    bridge = Rows(EnvSpec(1, 1, num_envs=2, action=ActionSpec.discrete(3), features=frozenset({"MASK"})))
    transport, buffers = start(bridge)
    assert buffers.masks.all()
    step(transport)
    assert buffers.masks.tolist() == [[1, 1, 0]] * 2
    assert bridge.lockstep.check.illegal == 0
    transport.send_actions(np.full((2, 1), 2, np.float32))
    transport.receive()
    assert bridge.lockstep.check.illegal == 2


class Slow(Doors):
    """An action runs for three ticks."""

    left = 0

    def handle_response_actions_for_env(self, env_id: int, actions: NDArray[np.float32]) -> None:
        super().handle_response_actions_for_env(env_id, actions)
        self.left = 3

    def is_action_running_for_env(self, env_id: int) -> bool:
        self.left -= 1
        return self.left > 0


def test_an_illegal_action_counts_once_however_many_ticks_it_takes() -> None:
    bridge = Slow(EnvSpec(1, 2, num_envs=1, action=ACTION))
    bridge.mask = lambda env, count: [1, 0, 1, 1, 1]
    transport, _ = start(bridge)
    for count in (1, 2):
        ticks = bridge.lockstep.ticks
        transport.send_actions(np.array([[1, 0]], np.float32))
        transport.receive()
        assert bridge.lockstep.ticks == ticks + 3
        assert bridge.lockstep.check.illegal == count
    transport.reset()
    transport.receive()
    transport.send_actions(np.array([[1, 0]], np.float32))
    bridge.update_rl(0.0)
    assert (bridge.lockstep.check.illegal, bridge.lockstep.busy) == (3, True)
    bridge.lockstep.forget_requests()  # the trainer has gone; the next one chooses the same
    bridge.inbox.command[:] = 1
    bridge.inbox.actions[:] = 1, 0
    bridge.update_rl(0.0)
    assert bridge.lockstep.check.illegal == 4
