"""StatefulInference: what carries the state of a recurrent policy from call to call. NumPy only."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.errors import ConfigurationError, ModelMismatch
from ue_rl.inference.interface import InferenceInterface, Observations

Floats = NDArray[np.float32]
State = dict[str, Floats]  # by name, the rows first; empty where the policy is not recurrent


class StatefulInference(InferenceInterface):
    """Keeps one state per row (run_inference) or per agent (run_inference_for); a subclass does the step."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._starts: NDArray[np.bool_] | None = None  # [rows], True where an episode begins; None: everywhere
        self._agents: dict[Hashable, State] = {}

    @abstractmethod
    def _step(self, observations: Any, state: State | None, starts: NDArray[np.bool_]) -> tuple[Floats, State]:
        """Actions and new states; `state` is None where all rows begin, and void where `starts` [N] is True."""

    def _step_rows(self, observations: Any, n: int) -> Floats:
        """One step of `n` rows, with the states that the rows have."""
        if self._starts is None:
            self._starts = np.ones(n, np.bool_)
        elif len(self._starts) != n:
            raise ModelMismatch(
                "a recurrent policy keeps a state per row, and the number of rows changed",
                field="observations",
                expected=f"{len(self._starts)} rows",
                got=f"{n} rows",
                cure="call reset() before a batch of another size",
            )
        actions, state = self._step(observations, self._state, self._starts)
        self._state, self._starts = (state, np.zeros(n, np.bool_)) if state else (None, None)
        return actions

    def run_inference_for(
        self, agents: Sequence[Hashable], observations: Observations, *, action_masks: NDArray[Any] | None = None
    ) -> Floats:
        """As run_inference, with a state per agent number; see InferenceInterface.run_inference_for."""
        known = [self._agents.get(agent) for agent in agents]
        like = next((state for state in known if state is not None), None)
        joined: State | None = None
        if like is not None:
            blank = {name: np.zeros_like(array) for name, array in like.items()}
            parts = [blank if state is None else state for state in known]
            joined = {name: np.concatenate([part[name] for part in parts]) for name in blank}
        actions, after = self._step(observations, joined, np.array([state is None for state in known], np.bool_))
        if after:
            for row, agent in enumerate(agents):
                # copies: a view would keep the whole batch alive
                self._agents[agent] = {name: array[row : row + 1].copy() for name, array in after.items()}
        return actions

    def reset(self, rows: Sequence[Any] | None = None) -> None:
        """A new episode begins in `rows`, or of these agents (None: everywhere, with any number of rows)."""
        if rows is None:
            self._agents.clear()
            self._state = self._starts = None
        elif self._agents:
            for agent in rows:
                self._agents.pop(agent, None)
        elif self._starts is not None:
            for row in rows:
                if not 0 <= row < len(self._starts):
                    raise ConfigurationError(
                        "no such row", field="rows", expected=f"0 to {len(self._starts) - 1}", got=row
                    )
                self._starts[row] = True
