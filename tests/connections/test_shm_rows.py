"""Masks, and steps beside resets in one request, over shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.games import Sum
from tests.support.steps import advance, begin
from ue_rl.bridges import run_shm_in_thread
from ue_rl.connections import SharedMemoryConnection
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.protocol.spaces.tree import Branch, Leaf, LeafKind, box
from ue_rl.protocol.spec import ActionSpec, EnvSpec
from ue_rl.system import errors

N = 4
MASKED = EnvSpec(
    1, 2, num_envs=N, action=ActionSpec.multi_discrete((2, 3)), features=frozenset({"MASK", "SEED", "OPTIONS"})
)


class Writing(Sum):
    """Sets rows of the next answers' arrays, as `writes` says."""

    def __init__(self, spec: EnvSpec = MASKED) -> None:
        super().__init__(spec)
        self.writes: dict[str, Any] = {}

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        super().reset_envs(env_ids, seeds, options)
        self._write()

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        super().step_envs(actions, env_ids)
        self._write()

    def _write(self) -> None:
        for name, (rows, value) in self.writes.items():
            getattr(self.outbox, name)[rows] = value


def actions(spec: EnvSpec, value: float = 1.0) -> np.ndarray:
    return np.full((spec.num_rows, spec.act_size), value, np.float32)


# -- masks


def test_masks_come_with_the_state_that_they_belong_to(connect: Any) -> None:
    game = Writing()
    connection = connect(game)
    assert connection.buffers.masks.tolist() == [[1] * 5] * N, "no mask: every choice is legal"
    game.writes = {"masks": (2, [1, 0, 0, 1, 0])}
    assert advance(connection).masks[2].tolist() == [1, 0, 0, 1, 0]
    assert connection.buffers.masks[1].tolist() == [1] * 5
    game.writes = {"masks": (2, [0, 9, 255, 0, 128])}
    masks = advance(connection).masks
    assert masks[2].tolist() == [0, 1, 1, 0, 1], "any byte but zero means legal"
    assert masks.dtype == np.uint8
    game.writes = {"masks": (slice(None), 1)}
    assert begin(connection, [2]).masks.tolist() == [[1] * 5] * N


@pytest.mark.parametrize(("mask", "number", "count"), [([0, 0, 1, 1, 1], 0, 2), ([1, 0, 0, 0, 0], 1, 3)])
def test_a_mask_that_leaves_nothing_to_choose_is_named(connect: Any, mask: Any, number: int, count: int) -> None:
    game = Writing()
    connection = connect(game)
    game.writes = {"masks": (1, mask)}
    with pytest.raises(errors.MalformedMessage) as caught:
        advance(connection)
    error = caught.value
    assert (error.fault, error.env_id, error.field) == ("engine", 1, "MASK")
    assert f"none of the {count} of number {number}" in str(error)


def test_no_choice_is_needed_where_no_action_follows(connect: Any) -> None:
    """At an episode's end, and in an env that was not asked."""
    game = Writing()
    connection = connect(game)
    game.writes = {"masks": (1, 0), "dones": (1, 1)}
    assert advance(connection).masks[1].tolist() == [0] * 5
    assert begin(connection, [0]).masks[1].tolist() == [0] * 5
    game.writes = {"masks": (1, 1)}
    assert begin(connection, [1]).masks[1].tolist() == [1] * 5


def test_masks_of_a_hybrid_action_leave_its_box_alone(connect: Any) -> None:
    tree = Branch((("where", box((2,), -1, 1)), ("what", Leaf(LeafKind.DISCRETE, (), counts=(3,)))))
    game = Writing(EnvSpec(1, 3, num_envs=N, action=ActionSpec.of(tree), features=frozenset({"MASK"})))
    game.lockstep.check.has_choices = False
    connection = connect(game)
    game.writes = {"masks": (0, [0, 0, 1])}
    assert advance(connection).masks[0].tolist() == [0, 0, 1]
    game.writes = {"masks": (3, 0)}
    with pytest.raises(errors.MalformedMessage, match=r"of the 3 of number 2"):
        advance(connection)


def test_without_masks_there_is_no_region() -> None:
    with run_shm_in_thread(Sum(EnvSpec(1, 1, num_envs=N))) as host, SharedMemoryConnection(host.name) as connection:
        assert connection.memory.masks is None
        assert connection.memory.present is None
        assert connection.buffers.masks.shape == (N, 0)
        assert connection._mask_reader is None
        assert connection._agent_reader is None


# -- steps and resets in one request


def test_rows_of_envs_that_are_reset_may_hold_anything(connect: Any) -> None:
    connection = connect(Writing())
    given = actions(MASKED)
    given[1] = np.nan
    assert advance(connection, given, [1]).obs[:, 0].tolist() == [1, 0, 1, 1]
    given[3, 1] = np.inf
    with pytest.raises(errors.ActionError, match="inf at index 1") as caught:
        connection.send_actions(given, [1])
    assert caught.value.env_id == 3
    assert advance(connection).obs[:, 0].tolist() == [2, 1, 2, 2], "nothing of the refused request was sent"


@pytest.mark.parametrize("may_give", [True, False])
def test_large_observations_are_handed_over_and_never_written_again(may_give: bool) -> None:
    spec = EnvSpec(8192 if may_give else 8, 1, num_envs=4)
    with run_shm_in_thread(Sum(spec)) as host, SharedMemoryConnection(host.url[6:]) as connection:
        env = UnrealVecEnv(connection)
        given = [env.reset()]
        for step in range(3):
            obs, *_ = env.step(np.full((4, 1), step + 1, np.float32))
            given.append(obs)
        assert connection.buffers.may_give is may_give
        assert np.shares_memory(given[-1], connection.buffers.obs) is may_give
        assert [obs[3, 0] for obs in given] == [0, 1, 3, 6]
        assert len({obs.ctypes.data for obs in given}) == len(given)
