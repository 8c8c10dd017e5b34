"""Ray's own log during a run. Imported before RLlib, which begins to warn as it is imported."""

# pyright: reportMissingImports=false
from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import ray  # noqa: F401  # sets up its loggers

from ue_rl.training.writing import LogFile

_NAMES = ("ray", "ray.rllib", "ray.tune", "ray.train", "ray.data")


@contextmanager
def ray_log() -> Iterator[None]:
    """In the block Ray's warnings go into the file of the run's log alone: what ends a run is told in our words."""
    files = [handler for handler in logging.getLogger("ue_rl").handlers if isinstance(handler, LogFile)]
    loggers = [logging.getLogger(name) for name in _NAMES]
    before = [(logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [*files], False
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
