"""What can be wrong with an action or an answer in shared memory, as named errors that say which env and field."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.buffers import StepBuffers
from ue_rl.errors import ActionError, EngineTimeout, MalformedMessage, NonFiniteValue, ProtocolError
from ue_rl.wire.codec import nonfinite_action

_OBS, _REWARD, _DONE = 1, 2, 3


def bad_action(actions: NDArray[np.float32], index: int) -> ActionError:
    """For the number at `index` of the flattened actions."""
    return nonfinite_action(actions, *divmod(index, actions.shape[1]))


def bad_state(buffers: StepBuffers, bad: tuple[int, int]) -> ProtocolError:
    """For what check_step found: (kind, index)."""
    kind, index = bad
    if kind in (_OBS, _REWARD):
        env, number = divmod(index, buffers.obs.shape[1]) if kind == _OBS else (index, 0)
        value = buffers.obs[env, number] if kind == _OBS else buffers.rewards[env]
        return NonFiniteValue(
            "a value is NaN or infinite", fault="engine", env_id=env, field="OBS" if kind == _OBS else "REW",
            expected="finite float32", got=f"{value} at index {number}" if kind == _OBS else str(value),
            cure="the game's state or reward is not a finite number: look for a division by zero",
        )  # fmt: skip
    name, array = ("DONE", buffers.dones) if kind == _DONE else ("TRUNC", buffers.truncated)
    limit = kind != _DONE and array[index] == 1
    return MalformedMessage(
        "TRUNC=1 came with DONE=0" if limit else "a flag is neither 0 nor 1", fault="engine", env_id=index,
        field=name, expected="DONE=1" if limit else "0 or 1", got=f"{name}={array[index]}",
    )  # fmt: skip


def late(memory: Any, timeout: float, asked_seq: int, beating: bool | None) -> EngineTimeout:
    """For an answer that did not come in time.

    Args:
        asked_seq: the action_seq that was not answered. beating: does the engine's loop run on; None: unknown.
    """
    num_envs = len(memory.dones)
    asked = np.ones(num_envs, np.bool_) if memory.ask is None else memory.ask != 0
    answered = np.zeros(num_envs, np.bool_)
    if memory.answered is not None and memory.answered_seq[0] == asked_seq:
        answered = memory.answered != 0
    waiting = np.flatnonzero(asked & ~answered).tolist()
    total = int(asked.sum())
    why = {
        None: "is the game paused, or does an action still run?",
        True: "its loop runs on: does an action still run?",
        False: "its loop stands still: is the game paused, or stopped in a debugger?",
    }[beating]
    return EngineTimeout(
        f"the engine answered {total - len(waiting)} of {total} envs within {timeout:g} s", fault="engine",
        env_id=waiting[0] if len(waiting) == 1 else None, expected=f"answers of envs {waiting}", got="nothing",
        cure=f"{why} Raise timeout= for slow actions",
    )  # fmt: skip
