"""Checkpoints of an RLlib Algorithm in the folder of a run, beside the same manifest as Stable-Baselines3's.

    checkpoints/0007_350000_steps/
        algorithm/          Algorithm.save_to_path: weights, optimizers, counters; Algorithm.from_checkpoint reads it
        replay_buffer.pkl   of SAC and DQN
        model.onnx          where it is exported
        manifest.json       sums, env_steps, episodes, iterations, versions

algorithm/ and the replay buffer are pickles: load only what you trust.
"""

from __future__ import annotations

import logging
import math
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ue_rl.errors import ConfigurationError, UeRlError
from ue_rl.saving.checkpoints import Checkpoint, CheckpointStore

FOLDER, REPLAY = "algorithm", "replay_buffer.pkl"

_log = logging.getLogger(__name__)


class Saves:
    """Saves an Algorithm as it goes on.

    Args:
        store: where to. save_freq: env-steps between two checkpoints. save_minutes: minutes between them.
        export: called with the path of model.onnx, for each checkpoint; None: none is written. after: called with each
            complete Checkpoint. extra: with a checkpoint's folder, for more files. replay_buffer: it is saved, too.

    Attributes:
        last: the Checkpoint that was saved last by this object; None before.
    """

    def __init__(
        self, store: CheckpointStore, save_freq: int, save_minutes: float, export: Callable[[Path], object] | None,
        after: Callable[[Checkpoint], object], extra: Callable[[Path], object], replay_buffer: bool,
    ) -> None:  # fmt: skip
        self.last: Checkpoint | None = None
        self._store, self._freq, self._seconds = store, save_freq, 60 * save_minutes or math.inf
        self._export, self._after, self._extra, self._with_replay_buffer = export, after, extra, replay_buffer
        self.begin(0)

    def begin(self, env_steps: int) -> None:
        """Learning begins at `env_steps`."""
        self._steps, self._at = env_steps, time.monotonic()

    def due(self, env_steps: int) -> bool:
        """Is it time for the next one?"""
        return env_steps - self._steps >= self._freq or time.monotonic() - self._at >= self._seconds

    def save(self, algorithm: Any, env_steps: int, episodes: int, reason: str) -> Checkpoint | None:
        """Saves a checkpoint now; None where it could not be saved, which is logged.

        A policy with weights that are NaN or infinite is not saved: the last good one would have to go for it.
        """
        started = time.monotonic()

        def write(folder: Path) -> dict[str, object]:
            algorithm.save_to_path((folder / FOLDER).absolute())
            buffer = algorithm.local_replay_buffer
            if buffer is not None and self._with_replay_buffer:
                with (folder / REPLAY).open("wb") as file:
                    pickle.dump(buffer.get_state(), file, protocol=5)
            self._extra(folder)
            if self._export is not None:
                self._export(folder / "model.onnx")
            return {
                "backend": "rllib", "algorithm": type(algorithm).__name__, "episodes": episodes,
                "iterations": algorithm.iteration, "reason": reason,
            }  # fmt: skip

        try:
            if not is_finite(algorithm.learner_group.get_weights()):
                kept = "" if self.last is None else f"; checkpoint {self.last} is kept"
                _log.error(
                    "not saved: the policy's weights are not finite any more, learning has diverged%s. Lower the "
                    "learning rate, or clip the rewards",
                    kept,
                )
                return None
            self.last = self._store.save(env_steps, write)
        except Exception as error:  # noqa: BLE001 - a learner's process may be gone; what was saved before is there
            _log.error("not saved: %s", error if isinstance(error, UeRlError) else f"{type(error).__name__}: {error}")
            return None
        finally:
            self.begin(env_steps)
        _log.info("saved checkpoint %s in %.1f s: %s", self.last, time.monotonic() - started, reason)
        self._after(self.last)
        return self.last


def restore(store: CheckpointStore, algorithm: Any) -> Checkpoint | None:
    """Gives `algorithm` what the newest checkpoint that loads holds; None where there is no checkpoint.

    Raises:
        ConfigurationError: it is of another backend or algorithm, or none loads.
    """

    def load(checkpoint: Checkpoint) -> None:
        facts, name = checkpoint.facts, type(algorithm).__name__
        if facts.get("backend") != "rllib" or facts.get("algorithm") != name:
            raise ConfigurationError(
                f"the checkpoint {checkpoint.path} is of another algorithm", field="algo",
                expected=f"{facts.get('algorithm')} of {facts.get('backend', 'sb3')}", got=f"{name} of rllib",
                cure="go on with that one, or begin a new run",
            )  # fmt: skip
        algorithm.restore_from_path((checkpoint.path / FOLDER).absolute())
        replay = checkpoint.file(REPLAY)
        if replay is not None and algorithm.local_replay_buffer is not None:
            algorithm.local_replay_buffer.set_state(pickle.loads(replay.read_bytes()))

    found = store.newest_that_loads(load)
    return None if found is None else found[0]


def is_finite(weights: Any) -> bool:
    """Is every number in nested dicts of arrays finite?"""
    return all(np.isfinite(array).all() for array in _arrays(weights) if array.dtype.kind == "f")


def _arrays(weights: Any) -> Iterator[np.ndarray[Any, Any]]:
    """Every array of nested dicts of them; torch tensors, too."""
    if isinstance(weights, dict):
        for value in weights.values():
            yield from _arrays(value)
    else:
        yield np.asarray(weights.detach().cpu() if hasattr(weights, "detach") else weights)
