"""What may be asked of a session: checked before anything is done, in the thread of who asks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.action_check import ActionCheck
from ue_rl.bridges.base import BaseBridge
from ue_rl.bridges.tools import ToolRegistry
from ue_rl.plugins.sessions.realtime.interrupts import Interrupts, NamesInterrupts
from ue_rl.plugins.sessions.realtime.observation import Action, ToolCall
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import ActionError, ConfigurationError, InferenceError, UnsupportedByEngine
from ue_rl.system.game_clock import GameClock
from ue_rl.system.json_text import json_text

if TYPE_CHECKING:
    from ue_rl.plugins.sessions.realtime.session import Session

MOST_TICKS = 5000  # of one request


class Checks:
    """For sessions of one spec, with the tools and interrupts of `example`."""

    def __init__(self, spec: EnvSpec, tools: ToolRegistry, example: BaseBridge) -> None:
        self._spec = spec
        self._tools = tools
        self._check = ActionCheck(spec)
        if isinstance(example, NamesInterrupts):
            self._interrupts = example.interrupts
        else:
            self._interrupts = Interrupts(())

    def actions(self, actions: Sequence[Action]) -> list[Action]:
        """Actions as they can be applied.

        Raises:
            ActionError, ToolError.
        """
        return [self._checked(action) for action in actions]

    def _checked(self, action: Action) -> Action:
        if isinstance(action, ToolCall):
            self._tools.validate(action.tool, action.arguments)
            return action
        row: NDArray[np.float32] = self.rows(np.asarray(action)[None])[0]
        return row

    def rows(self, rows: Any, sessions: Sequence[Session] = ()) -> NDArray[np.float32]:
        """Actions in numbers as float32 [n, act_size].

        Args:
            sessions: whose they are, for the error; () where there is one, which who asks knows.

        Raises:
            ActionError.
        """
        try:
            return self._check.of_model(rows, range(len(rows)))
        except InferenceError as error:
            place = error.env_id
            if place is None or not sessions:
                whose = ""
            else:
                whose = f" (session {sessions[place].id})"
            facts = error.facts(fault="caller", field="ACT", cure=None, env_id=None)
            raise ActionError(f"{error.message}{whose}", **facts) from error

    def ticks(self, ticks: int) -> int:
        """Raises ConfigurationError where nobody may ask for so many."""
        if not isinstance(ticks, (int, np.integer)) or not 0 <= ticks <= MOST_TICKS:
            raise ConfigurationError("no such number of ticks", field="ticks", expected=f"0 to {MOST_TICKS}", got=ticks)
        return int(ticks)

    def interrupts(self, interrupts: Sequence[str]) -> int:
        """Raises ConfigurationError where the game does not raise them; their bits."""
        if interrupts:
            return self._interrupts.wanted(interrupts)
        return 0

    def seed(self, seed: int | None) -> int | None:
        """Raises ConfigurationError where it is none, UnsupportedByEngine where the game takes none."""
        if seed is None:
            return None
        self._require("SEED")
        if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**63:
            raise ConfigurationError("invalid seed", field="seed", expected="an integer from 0 to 2**63 - 1", got=seed)
        return int(seed)

    def options(self, options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Raises ConfigurationError where JSON cannot carry them, UnsupportedByEngine where the game takes none."""
        if not options:
            return None
        self._require("OPTIONS")
        return dict(json.loads(json_text(options, "OPTIONS", 0)))

    def _require(self, feature: str) -> None:
        if feature not in self._spec.features:
            raise UnsupportedByEngine(
                f"the game does not take {feature} on a reset",
                field=feature,
                got=sorted(self._spec.features),
                cure="leave it out",
            )

    def tick_rate(self, rate: float | None) -> float | None:
        """Raises ConfigurationError where it is no rate."""
        if rate is None:
            return None
        return GameClock(rate).rate
