"""A run of `ue-rl train --backend rllib`, where ue_rl/training/run.py hands over."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ue_rl.plugins.rllib.cluster import ray_log
from ue_rl.training.directory import RunDirectory
from ue_rl.training.options import TrainOptions
from ue_rl.training.report import TrainingReport

if TYPE_CHECKING:
    from ue_rl.plugins.rllib.learner import RllibLearner


def begin(
    options: TrainOptions, run: RunDirectory, load: dict[str, Any] | None, report: TrainingReport, stack: ExitStack
) -> RllibLearner:
    """The learner; `load` is None for a new run, `stack` ends what it starts."""
    stack.enter_context(ray_log())
    from ue_rl.plugins.rllib.learner import RllibLearner  # imports Ray, whose log lines are caught by now

    return RllibLearner(options, run, resume=load is not None, report=report, stack=stack)
