"""The package mujoco, which has no types of its own; imported here alone."""

from __future__ import annotations

from importlib import import_module
from typing import Any

try:
    mj: Any = import_module("mujoco")
    batch: Any = import_module("mujoco.batch")  # since 4.0
except ImportError as error:
    raise ImportError(
        f"MujocoBridge needs the package mujoco, 4.0 or later: pip install 'ue_rl[mujoco]' ({error})"
    ) from error
