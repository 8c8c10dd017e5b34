"""Which learner a run has: what `--learner` asks for, and what the model allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ue_rl.system.errors import ConfigurationError
from ue_rl.training.numpy_learner.eligibility import base_of, why_slower
from ue_rl.training.numpy_learner.learner import NumpyLearning, numpy_learner
from ue_rl.training.options import TrainOptions


def class_to_learn(options: TrainOptions, kind: type[Any]) -> type[Any]:
    """The class of a run's model: `kind`, or the one that learns in NumPy where that may be chosen."""
    if options.learner == "torch" or base_of(kind) is None:
        return kind
    return numpy_learner(kind)


def choose_learner(options: TrainOptions, model: Any, tell: Callable[[str], object]) -> None:
    """Writes into `options.learner` who learns the model that was just made, which a resumed run keeps.

    The rule knows kinds and sizes alone, so that the same options are always learnt by the same one.

    Args:
        tell: is given a sentence where `auto` means torch.

    Raises:
        ConfigurationError: `numpy` was asked for, and cannot learn this model.
    """
    asked = options.learner
    if not isinstance(model, NumpyLearning):
        options.learner = "torch"
        return
    reason = model.torch_learns
    if asked == "numpy" and reason is not None:
        raise ConfigurationError(
            "NumPy cannot learn this model",
            field="learner",
            got=reason,
            cure="leave it out: torch learns what NumPy cannot",
        )
    options.learner = "numpy"
    if asked == "auto":
        reason = reason or why_slower(model)
        if reason is not None:
            model.leave_to_torch()
            options.learner = "torch"
            tell(f"learnt with torch, not in NumPy: {reason}")
