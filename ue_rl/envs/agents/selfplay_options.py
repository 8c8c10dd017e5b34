"""SelfPlayOptions: the section `self_play` of a run, with the names that ML-Agents has for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ue_rl.system.errors import ConfigurationError
from ue_rl.system.known import require_known


@dataclass(frozen=True)
class SelfPlayOptions:
    """The section `self_play` of a run. Steps are the model's: rows times steps.

    Args:
        save_steps: the policy goes into the pool every so many.
        team_change: the learner changes sides every so many; None: 5 * save_steps.
        swap_steps: another opponent is drawn every so many.
        window: so many of the newest policies of the pool are drawn from.
        play_against_latest_model_ratio: how often the learner's present policy is the opponent, 0 to 1.
        initial_elo: the learner's rating at the start.
        sides: two groups' names; None: see SidesTransport.

    Raises:
        ConfigurationError: a value out of range.
    """

    save_steps: int = 20_000
    team_change: int | None = None
    swap_steps: int = 10_000
    window: int = 10
    play_against_latest_model_ratio: float = 0.5
    initial_elo: float = 1200.0
    sides: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        for name in ("save_steps", "swap_steps", "window", *(("team_change",) if self.team_change is not None else ())):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigurationError("must be a positive integer", field=f"self_play.{name}", got=value)
        ratio = self.play_against_latest_model_ratio
        elo = self.initial_elo
        if not isinstance(ratio, (int, float)) or not 0 <= ratio <= 1:
            raise ConfigurationError(
                "must be a number from 0 to 1", field="self_play.play_against_latest_model_ratio", got=ratio
            )
        if not isinstance(elo, (int, float)) or not math.isfinite(elo):
            raise ConfigurationError("must be a number", field="self_play.initial_elo", got=elo)
        sides = self.sides
        if sides is not None and not (
            isinstance(sides, (tuple, list)) and len(sides) == 2 and all(isinstance(side, str) for side in sides)
        ):
            raise ConfigurationError("must be the names of two groups", field="self_play.sides", got=self.sides)

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> SelfPlayOptions:
        """Those of a YAML section.

        Raises:
            ConfigurationError: an unknown key, or a value out of range.
        """
        known = [option.name for option in fields(cls)]
        require_known(section, known, "self_play has an unknown key", "self_play")
        sides = section.get("sides")
        return cls(**{**section, "sides": tuple(sides) if isinstance(sides, list) else sides})
