"""Domain randomisation: the game's parameters drawn anew for each episode, within ranges.

    randomize(transport, {"gravity": (8, 12), "friction": (0.5, 1)}, seed=1)

The values travel with each reset, also with those that happen within a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.settings import check_parameter
from ue_rl.protocol.transport import Transport
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.seeds import own_stream

Range: TypeAlias = tuple[float, float]  # lowest and highest value; both the same for a fixed one
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
        self.ranges = as_ranges(ranges)
        check_ranges(spec, self.ranges)
        self._draws = [np.random.default_rng(own_stream(seed, "params", env)) for env in range(spec.num_envs)]
        self.values: dict[int, dict[str, float]] = {env: {} for env in range(spec.num_envs)}

    def __call__(self, env_id: int) -> dict[str, float]:
        """The values of this env's next episode."""
        draw = self._draws[env_id].uniform
        self.values[env_id] = {name: float(draw(low, high)) for name, (low, high) in self.ranges.items()}
        return self.values[env_id]

    def peek(self, env_id: int, certain: bool = False) -> dict[str, float]:
        """What the next call is going to draw for this env; nothing is used up."""
        bits = self._draws[env_id].bit_generator
        state = bits.state
        values = self.values[env_id]
        try:
            return self(env_id)
        finally:
            bits.state = state
            self.values[env_id] = values

    def show_drawn(self, values: Mapping[int, Mapping[str, float]]) -> None:
        """The present episodes of these envs have these values: they were begun by another process."""
        for env, drawn in values.items():
            self.values[env] = {name: drawn[name] for name in self.ranges if name in drawn}

    def generators(self) -> list[Any]:
        """The states of the generators, as JSON values."""
        return [draw.bit_generator.state for draw in self._draws]

    def set_generators(self, states: Sequence[Any]) -> None:
        """Goes on drawing from what `generators()` gave."""
        for draw, state in zip(self._draws, states, strict=False):
            draw.bit_generator.state = state


def randomize(transport: Transport, ranges: Ranges | None, seed: int | None = None) -> Randomizer | None:
    """From now on every reset over this connection draws its parameters from `ranges`; None or {}: not any more.

    The lessons of a Curriculum that is attached stay, over what is drawn here.

    Returns:
        the Randomizer, whose `values` are those of the present episodes.

    Raises:
        see Randomizer.
    """
    drawing: Any
    if ranges:
        drawing = Randomizer(transport.spec, ranges, seed)
    else:
        drawing = None
    lessons = drawer_of(transport)
    above = None
    while hasattr(lessons, "below"):
        above = lessons
        lessons = owner_of(lessons.below)
    if above is None:
        transport.draw_parameters = drawing
    else:
        above.below = drawing
        # set anew: an env class notices by this that other parameters go with the next resets
        transport.draw_parameters = drawer_of(transport).draw
    return drawing  # type: ignore[no-any-return]


def drawer_of(transport: Transport) -> Any:
    """Who draws the parameters of a transport's resets, see Transport.draw_parameters; None where nobody does."""
    return owner_of(transport.draw_parameters)


def owner_of(draw: Any) -> Any:
    """The object that a method belongs to, or what draws itself."""
    return getattr(draw, "__self__", draw)


def as_ranges(params: Any, field: str = "params") -> dict[str, Range]:
    """Name -> (low, high) of what a YAML file or a script gives as `params`.

    Raises:
        ConfigurationError: not a mapping of names to numbers or `[low, high]`.
    """
    if not isinstance(params, Mapping):
        raise ConfigurationError(
            "parameters are a mapping", field=field, expected="{gravity: 3, wind: [0, 2]}", got=params
        )
    return {str(name): _as_range(value, f"{field}.{name}") for name, value in params.items()}


def _as_range(value: Any, field: str) -> Range:
    if isinstance(value, (list, tuple)):
        given = value
    else:
        given = [value, value]
    numbers = [float(v) for v in given if isinstance(v, (int, float, np.number)) and not isinstance(v, bool)]
    numbers = [number for number in numbers if math.isfinite(number)]
    if len(numbers) != 2 or len(given) != 2 or numbers[0] > numbers[1]:
        raise ConfigurationError(
            "not a value of a parameter", field=field, expected="a number, or [low, high] with low <= high", got=value
        )
    return numbers[0], numbers[1]


def check_ranges(spec: EnvSpec, ranges: Mapping[str, Range], field: str = "params") -> None:
    """Refuses what this engine cannot set: learning would go on with another game than the one that was asked for.

    Raises:
        UnsupportedByEngine: the engine has no parameters, or none of such a name.
        ConfigurationError: a value out of its range.
    """
    known = {parameter.name: parameter for parameter in spec.parameters}
    for name, span in ranges.items():
        check_parameter(known, name, span, f"{field}.{name}")


def shown(low: float, high: float) -> str:
    """A value or range as `--param` takes it."""
    if low == high:
        return f"{low:g}"
    return f"{low:g}..{high:g}"
