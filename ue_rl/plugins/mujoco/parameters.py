"""Parameters of the physics that a trainer may set, in each env for itself (PARAMS of docs/protocol.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.plugins.mujoco.library import batch as library
from ue_rl.protocol.spec import Parameter
from ue_rl.system.errors import ConfigurationError

# Scales of what the model file says: the fields of MjModel that they multiply, and their usual ranges.
_SCALES: dict[str, tuple[tuple[str, ...], tuple[float, float]]] = {
    "friction": (("geom_friction",), (0.2, 2.0)),
    "mass": (("body_mass", "body_inertia"), (0.5, 2.0)),
    "damping": (("dof_damping",), (0.2, 5.0)),
}
_INDEPENDENT = frozenset({"geom_friction", "dof_damping"})  # mj_setConst derives nothing from them
_EARTH = 9.81


class PhysicsParameters:
    """`gravity` in m/s2 along the model's own direction, and scales: friction, mass, damping, any field of MjModel.

    Args:
        batch: whose simulations they belong to. ranges: name -> (low, high); None: the four with their usual ranges.

    Raises:
        ConfigurationError: no such parameter, or a range that excludes the model's own value.
    """

    def __init__(self, batch: Any, ranges: Mapping[str, tuple[float, float]] | None) -> None:
        self._batch = batch
        model = batch.model
        own = np.array(model.opt.gravity, np.float64)
        size = float(np.linalg.norm(own))
        if size:
            self._down = own / size
        else:
            self._down = np.array([0.0, 0.0, -1.0])
        usual = {name: span for name, (_, span) in _SCALES.items()}
        if ranges is None:
            ranges = {"gravity": (0.0, 2 * max(size, _EARTH)), **usual}
        for name in ranges:
            if name != "gravity" and name not in _SCALES and not _can_be_scaled(model, name):
                raise ConfigurationError(
                    "MuJoCo's physics has no such parameter",
                    field="parameters",
                    got=name,
                    expected=f"gravity, {', '.join(_SCALES)}, or a field of mujoco.MjModel with real numbers",
                )
        self.known = {
            name: Parameter(name, size if name == "gravity" else 1.0, *map(float, span))
            for name, span in ranges.items()
        }
        self._values: dict[str, NDArray[np.float64]] = {
            name: np.full(batch.nsim, parameter.value) for name, parameter in self.known.items()
        }
        self._original: dict[str, NDArray[Any]] = {}

    def list(self) -> dict[str, tuple[float, float, float]]:
        """Name -> (value at the start, low, high)."""
        return {name: (p.value, p.low, p.high) for name, p in self.known.items()}

    def get(self, name: str, env_id: int) -> float:
        """The value in one env."""
        return float(self._values[name][env_id])

    def set(self, name: str, value: float, env_id: int) -> None:
        """In one env; -1: in all. Holds from the next step on."""
        if env_id < 0:
            rows = slice(None)
        else:
            rows = slice(env_id, env_id + 1)
        if (self._values[name][rows] == value).all():
            return
        self._values[name][rows] = value
        if name == "gravity":
            self._batch.expand("opt.gravity")[rows] = value * self._down
            return
        if name in _SCALES:
            fields = _SCALES[name][0]
        else:
            fields = (name,)
        for field in fields:
            self._scale(field, rows)
        if not _INDEPENDENT.issuperset(fields):
            if env_id < 0:
                envs = None
            else:
                envs = np.array([env_id])
            self._batch.set_const(envs)

    def _scale(self, field: str, rows: slice) -> None:
        """Two parameters may scale the same field."""
        if field not in self._original:
            self._original[field] = np.array(getattr(self._batch.model, field))
        original = self._original[field]
        scale: Any = 1.0
        for name, values in self._values.items():
            if field in _SCALES.get(name, ((name,),))[0]:
                scale = scale * values[rows]
        self._batch.expand(field)[rows] = original * np.reshape(scale, (-1, *[1] * original.ndim))


def _can_be_scaled(model: Any, name: str) -> bool:
    return name in library.MODEL_FIELDS and "." not in name and np.asarray(getattr(model, name)).dtype.kind == "f"
