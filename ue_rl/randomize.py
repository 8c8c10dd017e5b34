"""Domain randomisation: the game's parameters drawn anew for each episode, within ranges.

    randomize(transport, {"gravity": (8, 12), "friction": (0.5, 1)}, seed=1)

The values travel with each reset, also with those that happen within a step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ue_rl.errors import ConfigurationError, UnsupportedByEngine
from ue_rl.spec import EnvSpec
from ue_rl.transport import Transport

Ranges = Mapping[str, "Sequence[float] | float"]


class Randomizer:
    """Draws values for one env's next episode, uniformly; each env has a generator of its own.

    What an env gets depends on the seed and on how many episodes it has begun, not on the order of the envs' resets.

    Args:
        spec: of the session. ranges: name -> (low, high), both within the parameter's own range, or a fixed value.
        seed: None: another one each time.

    Attributes:
        values: env id -> name -> the value of its present episode; {} before its first reset.

    Raises:
        UnsupportedByEngine: the engine has no parameters, or none of such a name. ConfigurationError: not a range, or
            one that is not within the parameter's.
    """

    def __init__(self, spec: EnvSpec, ranges: Ranges, seed: int | None = None) -> None:
        self.ranges = {name: _checked(spec, name, given) for name, given in ranges.items()}
        self._draws = [np.random.default_rng(None if seed is None else (seed, env)) for env in range(spec.num_envs)]
        self.values: dict[int, dict[str, float]] = {env: {} for env in range(spec.num_envs)}

    def __call__(self, env_id: int) -> dict[str, float]:
        """The values of this env's next episode."""
        draw = self._draws[env_id].uniform
        self.values[env_id] = {name: float(draw(low, high)) for name, (low, high) in self.ranges.items()}
        return self.values[env_id]


def randomize(transport: Transport, ranges: Ranges | None, seed: int | None = None) -> Randomizer | None:
    """From now on every reset over this connection draws its parameters from `ranges`; None or {}: not any more.

    Returns:
        the Randomizer, whose `values` are those of the present episodes.

    Raises:
        see Randomizer.
    """
    drawing: Any = Randomizer(transport.spec, ranges, seed) if ranges else None
    transport.draw_parameters = drawing  # type: ignore[attr-defined]
    return drawing  # type: ignore[no-any-return]


def _checked(spec: EnvSpec, name: str, given: Any) -> tuple[float, float]:
    parameter = {one.name: one for one in spec.parameters}.get(name)
    if parameter is None:
        raise UnsupportedByEngine(
            "this engine has no such parameter", fault="caller", field=name,
            expected=", ".join(one.name for one in spec.parameters) or "PARAMS in the handshake",
            cure="leave it out, or let the game list it (docs/protocol.md, section 8)",
        )  # fmt: skip
    try:
        low, high = (float(end) for end in (given if isinstance(given, Sequence) else (given, given)))
    except (TypeError, ValueError):
        low, high = np.nan, np.nan
    if not parameter.low <= low <= high <= parameter.high or not np.isfinite(high - low):
        raise ConfigurationError(
            "not a range of this parameter", field=name,
            expected=f"(low, high) within {parameter.low:g} to {parameter.high:g}", got=given,
        )  # fmt: skip
    return low, high
