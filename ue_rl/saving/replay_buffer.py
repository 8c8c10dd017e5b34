"""A replay buffer as a file of what it holds: Stable-Baselines3 pickles all that it has room for."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# Attributes of SB3's replay buffers with a row for each step, in the order of the steps; zeros, or {}, before.
_ROWS = (
    "observations", "next_observations", "actions", "rewards", "dones", "timeouts", "ep_start", "ep_length", "infos",
)  # fmt: skip


def write_replay_buffer(buffer: Any, path: Path) -> None:
    """Writes a pickle that `model.load_replay_buffer` reads: unpickled it is the whole buffer again."""
    with path.open("wb") as file:
        pickle.dump(_Filled(buffer), file, protocol=pickle.HIGHEST_PROTOCOL)


class _Filled:
    """Pickled in the place of a replay buffer."""

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        buffer = self._buffer
        state = dict(buffer.__getstate__() if hasattr(buffer, "__getstate__") else vars(buffer))  # HER's leaves env out
        size = buffer.buffer_size
        # With optimize_memory_usage the row at `pos` has the last step's next observation.
        rows = size if buffer.full else min(buffer.pos + 1, size)
        own = type(buffer).add.__module__.partition(".")[0] not in ("stable_baselines3", "sb3_contrib", "ue_rl")

        def filled(value: Any) -> Any:
            whole = own and (value.dtype == object or value[rows:].any())  # it may fill them in another order
            return value if whole else value[:rows]

        cut = [name for name in _ROWS if name in state and rows < size]
        state.update({name: _each(state[name], filled) for name in cut})
        return _whole, (type(buffer), state, cut, size)


def _whole(kind: type[Any], state: dict[str, Any], cut: list[str], size: int) -> Any:
    def whole(value: Any) -> Any:
        if len(value) == size:
            return value
        if value.dtype == object:
            rest: list[list[dict[str, Any]]] = [[{} for _ in range(value.shape[1])] for _ in range(size - len(value))]
            return np.concatenate([value, np.array(rest, object)])
        rows = np.zeros((size, *value.shape[1:]), value.dtype)  # what is not touched takes no memory
        rows[: len(value)] = value
        return rows

    state.update({name: _each(state[name], whole) for name in cut})
    buffer = object.__new__(kind)
    buffer.__setstate__(state) if hasattr(buffer, "__setstate__") else vars(buffer).update(state)
    return buffer


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """An array, or a Dict's part by part."""
    return {name: change(part) for name, part in value.items()} if isinstance(value, dict) else change(value)
