"""Rows that differ: what the kernels are told of agents and masks, and when an env with agents has answered. No I/O."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import MalformedMessage


def layouts(spec: EnvSpec) -> tuple[NDArray[np.int32] | None, NDArray[np.int32] | None]:
    """What the kernels are told of states' and of requests' rows; None where there is nothing to tell."""
    masked = spec.mask_size > 0
    if not spec.groups and not masked:
        return None, None
    ones = [group.spec for group in spec.groups for _ in range(group.count)]
    if not ones:
        ones = [spec]
    counts = {}
    if masked:
        counts = {id(one): np.array(one.action_spec.counts, np.int64) for one in ones}
    width = max((len(found) for found in counts.values()), default=0)
    states = np.zeros((len(ones), 2 + width), np.int32)
    requests = np.zeros((len(ones), 2), np.int32)
    for row, one in enumerate(ones):
        states[row, 0], requests[row, 0] = one.obs_size, one.act_size
        if masked:
            found = counts[id(one)]
            states[row, 1], states[row, 2 : 2 + len(found)] = found.sum(), found
    asked = None
    if spec.groups:
        asked = requests
    return states, asked


def live_rows(
    buffers: StepBuffers, spec: EnvSpec, stepping: NDArray[np.bool_] | None = None
) -> NDArray[np.int32] | None:
    """The rows of agents that can act (ue_rl.protocol.transport.live_agents), int32; None: all rows.

    Args:
        stepping: bool [num_envs], the envs that take a step; None: all.
    """
    present = buffers.present
    if stepping is None and not np.count_nonzero(buffers.dones) and np.count_nonzero(present) == len(present):
        return None  # the usual case
    live = (present != 0) & (buffers.dones == 0)
    if stepping is not None:
        live &= np.repeat(stepping, spec.agents_per_env)
    return np.flatnonzero(live).astype(np.int32)


def end_answers(spec: EnvSpec, buffers: StepBuffers, before: NDArray[np.uint8], line: memoryview | None = None) -> int:
    """Ends the answers of the envs of which rows have come; of how many envs.

    `buffers.pending` is 0 of each row that has come; of an env that answered it becomes 0 of all its rows, and
    `present` says which of them have come.

    Args:
        before: `pending` before they came. line: what came, for the error.

    Raises:
        MalformedMessage: an agent that had to answer (1 in `before`) has not.
    """
    if not np.count_nonzero(buffers.pending) and np.count_nonzero(before) == len(before):  # the usual case
        buffers.present[:] = 1
        return spec.num_envs
    per_env = spec.agents_per_env
    pending = buffers.pending.reshape(-1, per_env)
    came = (before.reshape(-1, per_env) != 0) & (pending == 0)
    envs = np.flatnonzero(came.any(axis=1))
    missing = pending[envs] == 1
    if missing.any():
        at, agent = np.argwhere(missing)[0]
        raise MalformedMessage(
            f"an agent that acted is missing from its env's answer (agent {spec.agent_names[agent]})",
            fault="engine",
            env_id=int(envs[at]),
            field="AGENT",
            expected=f"AGENT={agent} in the line that answers for its env",
            got=line and bytes(line),
            cure="put all agents of an env into one line; DONE=1 ends an agent's part in the episode",
        )
    buffers.present.reshape(-1, per_env)[envs] = came[envs]
    pending[envs] = 0
    return len(envs)
