"""What the transports check of their callers' arguments, in the same words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ue_rl.errors import ActionError, ConfigurationError, UnsupportedByEngine
from ue_rl.spec import EnvSpec

_SEEDS = range(2**63)


def check_deadlines(timeout: float, connect_timeout: float | None) -> None:
    """Raises ConfigurationError where one of them, in seconds, is not positive and finite; None is left alone."""
    for name, seconds in (("timeout", timeout), ("connect_timeout", connect_timeout)):
        if seconds is not None and not 0 < seconds < float("inf"):
            raise ConfigurationError("a deadline must be positive and finite", fault="caller", field=name, got=seconds)


def check_offered(spec: EnvSpec, feature: str, values: Sequence[object] | None) -> None:
    """Raises UnsupportedByEngine where `values` of a reset are given and the engine does not offer to take them."""
    if values and feature not in spec.features and any(v is not None for v in values):
        raise UnsupportedByEngine(
            f"the engine does not take {feature} on a reset", fault="caller", field=feature,
            expected=f"FEATURES={feature} in the handshake", got=sorted(spec.features),
            cure="leave it out, or teach the engine to read it",
        )  # fmt: skip


def check_reset(spec: EnvSpec, env_ids: Sequence[int] | None, seeds: Sequence[int | None] | None) -> None:
    """Raises ConfigurationError where an env does not exist or is named twice, or a seed is not one."""
    if env_ids is not None:
        ids = list(env_ids)
        wrong = [env for env in ids if not isinstance(env, (int, np.integer)) or not 0 <= env < spec.num_envs]
        if wrong or not ids or len(set(ids)) != len(ids):
            raise ConfigurationError(
                "these envs cannot be reset", fault="caller", field="env_ids",
                expected=f"env ids from 0 to {spec.num_envs - 1}, each once", got=wrong or ids,
            )  # fmt: skip
    for seed in seeds or ():
        if seed is not None and (not isinstance(seed, (int, np.integer)) or int(seed) not in _SEEDS):
            raise ConfigurationError(
                "not a seed", fault="caller", field="seed", expected="an integer from 0 to 2**63 - 1", got=seed
            )


def check_actions(spec: EnvSpec, actions: Any) -> None:
    """Raises ActionError where `actions` is not what a transport takes: its bits would be read as other numbers."""
    shape = (spec.num_envs, spec.act_size)
    if not isinstance(actions, np.ndarray) or actions.dtype != np.float32 or actions.shape != shape:
        got = f"{actions.dtype} {actions.shape}" if isinstance(actions, np.ndarray) else type(actions).__name__
        raise ActionError(
            "a transport takes actions as one array", fault="caller", field="ACT", expected=f"float32 {shape}",
            got=got, cure="ue_rl.envs.spaces.ActionWriter makes it, as UnrealVecEnv does",
        )  # fmt: skip
    if not actions.flags.c_contiguous:
        raise ActionError("the actions are not contiguous", fault="caller", field="ACT", cure="np.ascontiguousarray")
