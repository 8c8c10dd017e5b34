"""Action masks of games: the callbacks of the bridges, and what a trainer and a policy are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.games import Steps
from tests.support.steps import advance, begin
from ue_rl.bridges import SingleEnvBridge, VectorBridge
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.protocol.spec import ActionSpec, EnvSpec, EnvType
from ue_rl.system import errors

ACTION = ActionSpec.multi_discrete((2, 3))


class Doors(Steps):
    """Ends at the third step, or is cut there in env 1."""

    mask: Any = staticmethod(lambda env, count: [1, count == 0, True, False, env])

    def earn(self, env: int) -> Any:
        return 0.0, self.steps[env] == 3, self.steps[env] == 3 and env == 1

    def create_action_mask_for_env(self, env_id: int) -> Any:
        assert self.steps[env_id] < 3 or env_id == 1
        return self.mask(env_id, self.steps[env_id])


def doors(n: int = 2, kind: type[Steps] = Doors, **spec: Any) -> Any:
    return kind(EnvSpec(1, 2, num_envs=n, **{"action": ACTION, **spec}))


def start(bridge: Any, through_codec: bool = True) -> tuple[MemoryTransport, Any]:
    transport = MemoryTransport(bridge, through_codec=through_codec)
    return transport, begin(transport)


@pytest.mark.parametrize("through_codec", [True, False])
def test_masks_are_announced_and_follow_the_states(through_codec: bool) -> None:
    bridge = doors()
    assert "MASK" in bridge.spec.features
    transport, buffers = start(bridge, through_codec)
    assert buffers.masks.tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 0, 1]]
    advance(transport, 0)
    assert buffers.masks.tolist() == [[1, 0, 1, 0, 0], [1, 0, 1, 0, 1]]
    advance(transport, 0)
    advance(transport, 0)
    assert buffers.dones.all()
    assert buffers.masks.tolist() == [[1, 1, 1, 1, 1], [1, 0, 1, 0, 1]]  # nothing follows a terminal state
    begin(transport, [0])
    assert buffers.masks.tolist() == [[1, 1, 1, 0, 0], [1, 0, 1, 0, 1]]


def test_where_there_is_nothing_to_say_nothing_is_announced() -> None:
    assert "MASK" not in doors(kind=Steps).spec.features
    assert "MASK" not in doors(action=None).spec.features
    assert "MASK" not in doors(version=0).spec.features
    _, buffers = start(doors(action=None))
    assert buffers.masks.shape == (2, 0)
    bridge = doors()
    bridge.mask = lambda env, count: None
    assert start(bridge)[1].masks.all()


def test_a_mask_of_a_wrong_size_is_named() -> None:
    bridge = doors()
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
    advance(transport, 0)
    assert buffers.masks.tolist() == [[1, 1, 0]] * 2
    assert bridge.lockstep.check.illegal == 0
    advance(transport, 2)
    assert bridge.lockstep.check.illegal == 2


class Slow(Doors):
    """An action runs for three ticks."""

    def runs(self, env: int) -> int:
        return 3


def test_an_illegal_action_counts_once_however_many_ticks_it_takes() -> None:
    bridge = doors(1, Slow)
    bridge.mask = lambda env, count: [1, 0, 1, 1, 1]
    transport, _ = start(bridge)
    for count in (1, 2):
        ticks = bridge.lockstep.ticks
        advance(transport, [1, 0])
        assert bridge.lockstep.ticks == ticks + 3
        assert bridge.lockstep.check.illegal == count
    begin(transport)
    transport.send_actions(np.array([[1, 0]], np.float32))
    bridge.update_rl(0.0)
    assert (bridge.lockstep.check.illegal, bridge.lockstep.busy) == (3, True)
    bridge.lockstep.forget_requests()  # the trainer has gone; the next one chooses the same
    bridge.inbox.command[:] = 1
    bridge.inbox.actions[:] = 1, 0
    bridge.update_rl(0.0)
    assert bridge.lockstep.check.illegal == 4
