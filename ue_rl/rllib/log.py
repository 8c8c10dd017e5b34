"""Ray's own log during a run."""

# pyright: reportMissingImports=false
from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import ray.rllib  # noqa: F401  # sets up its loggers

from ue_rl.training.writing import LogFile

_NAMES = ("ray", "ray.rllib", "ray.tune", "ray.train", "ray.data")


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
