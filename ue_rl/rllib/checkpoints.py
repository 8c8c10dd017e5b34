"""Checkpoints of an RLlib Algorithm in the folder of a run, beside the same manifest as Stable-Baselines3's.

    checkpoints/0007_350000_steps/
        algorithm/          Algorithm.save_to_path: weights, optimizers, counters; Algorithm.from_checkpoint reads it
        replay_buffer.pkl   of SAC and DQN
        model.onnx          where it is exported
        manifest.json       sums, env_steps, episodes, iterations, versions

algorithm/ and the replay buffer are pickles: load only what you trust.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np

from ue_rl.errors import ConfigurationError
from ue_rl.saving.checkpoints import Checkpoint, CheckpointStore

FOLDER, REPLAY = "algorithm", "replay_buffer.pkl"


def restore(store: CheckpointStore, algorithm: Any) -> Checkpoint | None:
    """Gives `algorithm` what the newest checkpoint that loads holds; None where there is no checkpoint.

    Raises:
        ConfigurationError: it is of another backend or algorithm, or none loads.
    """

    def load(checkpoint: Checkpoint) -> None:
        facts, name = checkpoint.facts, type(algorithm).__name__
        if facts.get("backend") != "rllib" or facts.get("algorithm") != name:
            raise ConfigurationError(
                f"the checkpoint {checkpoint.path} is of another algorithm",
                field="algo",
                expected=f"{facts.get('algorithm')} of {facts.get('backend', 'sb3')}",
                got=f"{name} of rllib",
                cure="go on with that one, or begin a new run",
            )
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
