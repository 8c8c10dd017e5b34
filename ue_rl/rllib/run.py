"""A run of `ue-rl train --backend rllib`, where ue_rl/training/run.py hands over; and Ray's own log during it."""

# pyright: reportMissingImports=false

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import ray.rllib  # noqa: F401  # sets up its loggers

from ue_rl.training.directory import RunDirectory
from ue_rl.training.options import TrainOptions
from ue_rl.training.report import Report
from ue_rl.training.writing import LogFile

if TYPE_CHECKING:
    from ue_rl.rllib.learner import RllibLearner

_NAMES = ("ray", "ray.rllib", "ray.tune", "ray.train", "ray.data")


def begin(
    options: TrainOptions, run: RunDirectory, load: dict[str, Any] | None, report: Report, stack: ExitStack
) -> RllibLearner:
    """The learner; `load` is None for a new run, `stack` ends what it starts."""
    stack.enter_context(ray_log())
    from ue_rl.rllib.learner import RllibLearner  # imports Ray, whose log lines are caught by now

    return RllibLearner(options, run, resume=load is not None, report=report, stack=stack)


def into_run_log() -> None:
    """From here on Ray's warnings go into the run's log file alone; again after ray.init(), which clears handlers."""
    files = [handler for handler in logging.getLogger("ue_rl").handlers if isinstance(handler, LogFile)]
    for name in _NAMES:
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [*files] or [logging.NullHandler()], False
        logger.setLevel(logging.WARNING)


@contextmanager
def ray_log() -> Iterator[None]:
    """`into_run_log`, until the block ends: what ends a run is told in our words."""
    loggers = [logging.getLogger(name) for name in _NAMES]
    before = [(logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    into_run_log()
    try:
        yield
    finally:
        for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
