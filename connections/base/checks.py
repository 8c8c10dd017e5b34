"""What a caller may give a transport: actions of a step; envs, seeds and options of a reset. And who is to answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.buffers import Resets, StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.refusals import nonfinite_action
from ue_rl.protocol.transport import Options, Seeds
from ue_rl.system.errors import ActionError, ConfigurationError, UnsupportedByEngine, shorten
from ue_rl.system.json_text import json_text

_SEEDS = range(2**63)


def listed(field: str, values: Any) -> list[Any] | None:
    """Seeds or options as a list, whatever sequence they came in (an array, a tuple); None where there are none."""
    if values is None:
        return None
    try:
        if isinstance(values, Mapping):  # a list of it would be its keys
            raise TypeError
        return list(values) or None
    except TypeError:
        raise ConfigurationError(
            f"{field} is not a sequence",
            field=field,
            expected="one entry for each env that is reset",
            got=values,
            cure=f"pass a list, such as [{shorten(values)}]",
        ) from None


def check_reset(spec: EnvSpec, env_ids: Sequence[int] | None, seeds: Seeds, options: Options) -> None:
    """Checks the arguments of a reset.

    Raises:
        ConfigurationError: an env does not exist or is named twice, a seed is not one, an option is no JSON, or seeds
            or options do not align with the envs. UnsupportedByEngine: seeds or options that the engine does not offer
            to take.
    """
    count = spec.num_envs
    if env_ids is not None:
        ids = list(env_ids)
        wrong = [env for env in ids if not isinstance(env, (int, np.integer)) or not 0 <= env < spec.num_envs]
        if wrong or not ids or len(set(ids)) != len(ids):
            wrong_ids = wrong
            if not wrong_ids:
                wrong_ids = ids
            raise ConfigurationError(
                "these envs cannot be reset",
                field="env_ids",
                expected=f"env ids from 0 to {spec.num_envs - 1}, each once",
                got=wrong_ids,
            )
        count = len(ids)
    given: tuple[tuple[str, Sequence[object] | None], ...] = (("SEED", seeds), ("OPTIONS", options))
    for feature, values in given:
        if values is None:
            continue
        if len(values) != count:
            what = f"{feature} needs one value for each env that is reset"
            cure = "use None for an env without a value"
            raise ConfigurationError(what, field=feature, expected=count, got=len(values), cure=cure)
        if feature not in spec.features and any(value is not None for value in values):
            raise UnsupportedByEngine(
                f"the engine does not take {feature} on a reset",
                field=feature,
                expected=f"FEATURES={feature} in the handshake",
                got=sorted(spec.features),
                cure="leave it out, or teach the engine to read it",
            )
    for seed in seeds or ():
        if seed is not None and (not isinstance(seed, (int, np.integer)) or int(seed) not in _SEEDS):
            raise ConfigurationError("invalid seed", field="seed", expected="an integer from 0 to 2**63 - 1", got=seed)
    for place, given_options in enumerate(options or ()):
        if given_options is not None:
            json_text(given_options, "OPTIONS", place if env_ids is None else int(env_ids[place]))


def check_actions(spec: EnvSpec, actions: Any) -> None:
    """Raises ActionError where `actions` is not the array that a transport takes; no other dtype is converted."""
    shape = (spec.num_rows, spec.act_size)
    if not isinstance(actions, np.ndarray) or actions.dtype != np.float32 or actions.shape != shape:
        if isinstance(actions, np.ndarray):
            got = f"{actions.dtype} {actions.shape}"
        else:
            got = type(actions).__name__
        raise ActionError(
            "the actions have a wrong dtype or shape",
            fault="caller",
            field="ACT",
            expected=f"float32 {shape}",
            got=got,
            cure="ue_rl.envs.actions.ActionWriter makes it, as UnrealVecEnv does",
        )
    if not actions.flags.c_contiguous:
        raise ActionError(
            "the actions are not contiguous", fault="caller", field="ACT", cure="pass np.ascontiguousarray(actions)"
        )


def check_finite(
    spec: EnvSpec, actions: NDArray[np.float32], begin: Sequence[int] = (), live: NDArray[np.bool_] | None = None
) -> None:
    """Raises ActionError where a row that takes a step holds a number that is not finite.

    Args:
        actions: float32 [num_rows, act_size]. begin: envs that are reset instead. live: bool [num_rows], agents that
            can act; None where envs have none.
    """
    wrong = ~np.isfinite(actions).all(axis=1).reshape(spec.num_envs, -1)
    wrong[np.asarray(begin, np.intp)] = False
    if live is None:
        marked = wrong.reshape(-1)
    else:
        marked = wrong.reshape(-1) & live
    rows = np.flatnonzero(marked)
    if len(rows):
        row = int(rows[0])
        raise nonfinite_action(actions, row, int(np.isfinite(actions[row]).argmin()), spec)


def expect(buffers: StepBuffers, per_env: int, resets: Resets | None, steps: bool) -> int:
    """Notes in `buffers.pending` whose answers are awaited; of how many envs.

    Args:
        per_env: agents of each env. steps: all envs but those that `resets` names take a step.

    Raises:
        ConfigurationError: an env with agents is to take a step, but none of them can act any more.
    """
    pending = buffers.pending
    env_ids = None
    if resets is not None:
        env_ids = resets.env_ids
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
    present = buffers.present.tobytes()
    dones = buffers.dones.tobytes()
    if steps and not resets and 0 not in present and 1 not in dones:  # the usual case; much faster than by NumPy
        pending[:] = 1
        return len(pending)
    reset, rest = np.zeros((2, len(pending)), np.bool_)
    if resets is not None:
        reset[slice(None) if resets.env_ids is None else np.asarray(resets.env_ids, np.intp)] = True
        rest[np.asarray(resets.resting, np.intp)] = True
    asked = reset | (steps & ~rest)
    act = None
    if steps:
        act = acting(buffers, reset | rest)
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
