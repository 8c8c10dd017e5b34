"""What goes in and out of a session: ToolCall, SessionObservation, SessionState."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class ToolCall(NamedTuple):
    """An action by name.

    Attributes:
        tool: its name. arguments: as the tool's schema has them.
    """

    tool: str
    arguments: Mapping[str, Any] = {}


Action = NDArray[np.float32] | Sequence[float] | ToolCall  # numbers: act_size of them


class SessionObservation(NamedTuple):
    """What an agent is told.

    Attributes:
        session_id: whose it is. tick: of the episode, 0 after a reset.
        observation: float32 [obs_size], a copy.
        reward: the sum over `ticks_advanced`, the ticks since the observation that was given out before.
        terminated, truncated: has the episode ended, by what happened or by a limit?
        result: "win", "lose", "draw" or "", once it has ended.
        info: what JSON can carry; under "tools" the answers of tool calls, {"tool", "result"} or {"tool", "error",
            "code"} each.
        dropped_observations, dropped_actions, late_ticks: of the session so far.
        interrupt: the event that has ended the advance, or came in the last tick; "" for none.
        mask: uint8 [mask_size], 1 = this choice is legal; None where the game has no masks.
    """

    session_id: str
    tick: int
    observation: NDArray[np.float32]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    result: str = ""
    info: Mapping[str, Any] = {}
    ticks_advanced: int = 0
    dropped_observations: int = 0
    dropped_actions: int = 0
    late_ticks: int = 0
    interrupt: str = ""
    mask: NDArray[np.uint8] | None = None

    @property
    def done(self) -> bool:
        """Has the episode ended?"""
        return self.terminated or self.truncated

    @property
    def timing(self) -> dict[str, int]:
        """What a client in real time wants to know of the ticks that it did not see."""
        names = ("tick", "ticks_advanced", "late_ticks", "dropped_observations", "dropped_actions")
        return {name: getattr(self, name) for name in names}

    def as_dict(self) -> dict[str, Any]:
        """For JSON: arrays are lists, no mask is null."""
        plain = self._asdict()
        plain["observation"] = self.observation.tolist()
        if self.mask is None:
            plain["mask"] = None
        else:
            plain["mask"] = self.mask.tolist()
        return plain


class ObservationColumns(Sequence[SessionObservation]):
    """What several sessions are told, in columns: `[n]` makes the SessionObservation of one.

    Attributes:
        columns: each field of a SessionObservation as a sequence; of numbers also an array with a row for each.
    """

    def __init__(self, *columns: Any) -> None:
        self.columns: Any = SessionObservation(*columns)

    @classmethod
    def of(cls, observations: Iterable[SessionObservation]) -> ObservationColumns:
        """Those, one or more, as columns."""
        if isinstance(observations, ObservationColumns):
            return observations
        return cls(*zip(*observations, strict=True))

    def __len__(self) -> int:
        return len(self.columns.tick)

    def __getitem__(self, number: Any) -> Any:
        return SessionObservation(*[column[number] for column in self.columns])

    def __iter__(self) -> Iterator[SessionObservation]:
        return iter([*map(SessionObservation, *self.columns)])


class SessionState(NamedTuple):
    """Where a session stands.

    Attributes:
        phase: a name of Phase. tick: of the episode. result: of the episode, as in SessionObservation.
        text: what the game says of it in words; "" where it says nothing.
        idle_seconds: since an agent last did anything with it.
    """

    session_id: str
    phase: str
    tick: int
    result: str
    text: str
    idle_seconds: float
