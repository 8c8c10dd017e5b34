"""What a request writes into the segment and into the ring, besides the usual step of all rows, which Bell.ask does."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ue_rl.connections.base.pending_resets import ANY
from ue_rl.connections.shm.commands import ShmCommands
from ue_rl.protocol.buffers import ActionBatch, Next, Resets
from ue_rl.protocol.commands.entries import NEXT_PARAMETERS, RESET_OPTIONS, RESET_PARAMETERS
from ue_rl.protocol.memory.memory import StepMemory
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.refusals import nonfinite_action

_NONE: NDArray[np.intp] = np.zeros(0, np.intp)


def reset_entries(spec: EnvSpec, commands: ShmCommands, resets: Resets | None) -> tuple[NDArray[np.intp], list[bytes]]:
    """The envs that are reset, and what goes through the ring: options and parameters, each of its env's first row.

    Raises:
        ConfigurationError: one is no JSON, or longer than the ring takes. UnsupportedByEngine: the engine has no rings.
    """
    if resets is None:
        return _NONE, []
    if resets.env_ids is None:
        ids = np.arange(spec.num_envs)
    else:
        ids = np.asarray(resets.env_ids, np.intp)
    if not (resets.options or resets.parameters):
        return ids, []
    entries = [
        commands.reset_entry(method, int(env) * spec.agents_per_env, value)
        for method, values in ((RESET_OPTIONS, resets.options), (RESET_PARAMETERS, resets.parameters))
        for env, value in zip(ids, values or (), strict=False)
        if value is not None and (value or method == RESET_OPTIONS)
    ]
    return ids, entries


def entries_ahead(commands: ShmCommands, following: Mapping[int, Next], before: Mapping[int, Next]) -> list[bytes]:
    """What goes through the ring for resets that are asked ahead: their parameters; raises as `reset_entries`.

    Args:
        before: what was asked ahead until now; where that had parameters and the new one has none, {} replaces them.
    """
    entries = []
    for env, (_, values) in following.items():
        had = before.get(env, ANY)[1]
        if values or had:
            entries.append(commands.reset_entry(NEXT_PARAMETERS, env, values or {}))
    return entries


def note_ahead(memory: StepMemory, following: Mapping[int, Next]) -> None:
    """Marks the envs whose next episode is asked ahead; each has its seed."""
    assert memory.seeds is not None
    assert memory.ahead is not None
    for env, (seed, _) in following.items():
        if seed is None:
            memory.seeds[env] = -1
        else:
            memory.seeds[env] = seed
        memory.ahead[env] = 1


def note_resets(memory: StepMemory, spec: EnvSpec, env_ids: NDArray[np.intp], resets: Resets | None) -> None:
    """Marks all rows of the envs; an env's seed stands in its first one."""
    memory.resets[:] = 0
    if resets is None:
        return
    assert memory.ask is not None
    assert memory.seeds is not None
    envs = spec.num_envs
    memory.ask.reshape(envs, -1)[env_ids] = ActionBatch.RESET
    memory.resets.reshape(envs, -1)[env_ids] = 1
    if memory.ahead is not None:
        memory.ahead[env_ids] = 0
    seeds = memory.seeds.reshape(envs, -1)
    seeds[env_ids] = -1
    if resets.seeds is not None:
        seeds[env_ids, 0] = [-1 if seed is None else seed for seed in resets.seeds]


def copy_actions(memory: StepMemory, spec: EnvSpec, actions: NDArray[np.float32]) -> None:
    """Those of the rows that take a step; the others may hold anything; raises ActionError: one is NaN or infinite."""
    if memory.words.copy_finite(memory.actions, actions) < 0:
        return
    rows = np.flatnonzero(memory.ask == ActionBatch.STEP)
    finite = np.isfinite(actions[rows])
    if not finite.all():
        at, number = divmod(int(finite.argmin()), spec.act_size)
        raise nonfinite_action(actions, int(rows[at]), number, spec)
    memory.actions[rows] = actions[rows]
