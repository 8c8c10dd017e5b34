"""Whose answers a request awaits: StepBuffers.pending, filled before it is sent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ue_rl.buffers import Resets, StepBuffers
from ue_rl.errors import ConfigurationError


def expect(buffers: StepBuffers, per_env: int, resets: Resets | None, steps: bool) -> int:
    """Notes in `buffers.pending` whose answers are awaited; of how many envs.

    Args:
        per_env: agents of each env. steps: all envs but those that `resets` names take a step.

    Raises:
        ConfigurationError: an env with agents is to take a step, but none of them can act any more.
    """
    pending = buffers.pending
    env_ids = None if resets is None else resets.env_ids
    if per_env > 1:
        return _expect_agents(buffers, per_env, resets, steps)
    if steps or env_ids is None:
        pending[:] = 1
        if resets is None or not len(resets.resting):
            return len(pending)
        pending[np.asarray(resets.resting, np.intp)] = 0
        return len(pending) - len(resets.resting)
    pending[:] = 0
    pending[np.asarray(env_ids, np.intp)] = 1
    return len(env_ids)


def _expect_agents(buffers: StepBuffers, per_env: int, resets: Resets | None, steps: bool) -> int:
    """`expect` for [num_envs, agents]: an agent that acts must answer, any other one may turn up (2)."""
    pending = buffers.pending.reshape(-1, per_env)
    present, dones = buffers.present.tobytes(), buffers.dones.tobytes()
    if steps and not resets and 0 not in present and 1 not in dones:  # the usual case; much faster than by NumPy
        pending[:] = 1
        return len(pending)
    reset, rest = np.zeros((2, len(pending)), np.bool_)
    if resets is not None:
        reset[slice(None) if resets.env_ids is None else np.asarray(resets.env_ids, np.intp)] = True
        rest[np.asarray(resets.resting, np.intp)] = True
    asked = reset | (steps & ~rest)
    act = acting(buffers, reset | rest) if steps else None
    pending[:] = np.where(asked[:, None], 2, 0)
    if act is not None:
        pending[act] = 1
    return int(np.count_nonzero(asked))


def acting(buffers: StepBuffers, reset: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which agents take a step where the envs `reset` (bool [num_envs]) take none; bool [num_envs, agents].

    Raises:
        ConfigurationError: none of an env that takes a step.
    """
    act: NDArray[np.bool_] = live_agents(buffers).reshape(len(reset), -1) & ~reset[:, None]
    stuck = ~act.any(axis=1) & ~reset
    if stuck.any():
        raise ConfigurationError(
            "nobody in this env can act any more: its episode is over",
            env_id=int(stuck.argmax()),
            cure="reset it: send_actions(actions, resets=[..]) or reset([..])",
        )
    return act


def live_agents(buffers: StepBuffers) -> NDArray[np.bool_]:
    """Which rows can act, bool [num_rows]: their agent is there, and its episode is not over."""
    live: NDArray[np.bool_] = (buffers.present != 0) & (buffers.dones == 0)
    return live
