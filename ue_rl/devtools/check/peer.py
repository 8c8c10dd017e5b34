"""Peer: one session with an engine as the checks see it, whatever carries it; AnsweredStates: what it answered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.buffers import Resets, StepBuffers
from ue_rl.protocol.spec import EnvSpec

# What a trainer sees of an engine that does not answer.
SILENT = ("no-answer", "env-never-answered", "no-newline")


class Wrong(Exception):
    """The engine did something that is not right; it ends the session.

    Args:
        mistake: its name in ue_rl/devtools/check/mistakes.py.
        text: what exactly, in one sentence; "": the mistake's own title says it.
        seen: the bytes or numbers that show it.
        env_id: the env concerned.
    """

    def __init__(self, mistake: str, text: str = "", seen: bytes | str = b"", env_id: int | None = None) -> None:
        super().__init__(mistake, text)
        self.mistake = mistake
        self.text = text
        self.env_id = env_id
        if isinstance(seen, str):
            self.seen = seen
        else:
            self.seen = seen.decode("utf-8", "backslashreplace")


class Skip(Exception):
    """The check says nothing about this engine, or over this carrier; its argument says why."""


@dataclass(frozen=True)
class AnsweredStates:
    """What one exchange brought: copies of the rows of all envs; those of envs that were not asked are as before.

    Args:
        obs: float32 [num_rows, obs_size]. rewards: float32 [num_rows]. dones, truncated: uint8 [num_rows].
        present: uint8 [num_rows], see StepBuffers. masks: uint8 [num_rows, mask_size].
        infos: row -> info. seconds: from the request to the last answer.
    """

    obs: NDArray[np.float32]
    rewards: NDArray[np.float32]
    dones: NDArray[np.uint8]
    truncated: NDArray[np.uint8]
    present: NDArray[np.uint8]
    masks: NDArray[np.uint8]
    infos: dict[int, dict[str, Any]]
    seconds: float

    @classmethod
    def of(cls, buffers: StepBuffers, seconds: float) -> AnsweredStates:
        """A copy of the buffers."""
        arrays: dict[str, Any] = {each.name: getattr(buffers, each.name).copy() for each in fields(cls)[:-2]}
        return cls(**arrays, infos=dict(buffers.infos), seconds=seconds)


class Peer(ABC):
    """One session. Whatever it raises, the session is over then.

    Attributes:
        spec: of the handshake. carrier: what it is, for people.
        partial: some envs can be asked while others are left alone.
    """

    spec: EnvSpec
    carrier: str
    partial: bool

    @property
    def seen(self) -> str:
        """The last exchange, as text for people; "" where a carrier has none."""
        return ""

    def reset(
        self,
        envs: Sequence[int] | None = None,
        seeds: Sequence[int | None] | None = None,
        options: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> AnsweredStates:
        """New episodes of these envs (None: all); raises Wrong: the engine made a mistake."""
        return self._ask(None, (), Resets(envs, seeds, options))

    def step(self, actions: NDArray[np.float32], envs: Sequence[int], resets: Sequence[int] = ()) -> AnsweredStates:
        """One step of these envs, and new episodes of `resets`, in one request.

        Args:
            actions: float32 [num_rows, act_size]; rows that are not asked are ignored.

        Raises:
            Wrong: the engine made a mistake. Skip: the carrier cannot ask so.
        """
        return self._ask(actions, envs, Resets(resets))

    @abstractmethod
    def _ask(self, actions: NDArray[np.float32] | None, steps: Sequence[int], resets: Resets) -> AnsweredStates:
        """One exchange; `actions`: None where there are resets alone."""

    def stray(self, seconds: float) -> bytes:
        """Waits so long for what nobody asked for; b"" for nothing, or where it shows itself at the next request."""
        return b""

    @abstractmethod
    def close(self) -> None:
        """Ends the session; idempotent."""
