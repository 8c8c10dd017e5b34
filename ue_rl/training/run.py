"""One training run: its directory, its log file, its engine. The learning itself is learner.py."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ue_rl.errors import UeRlError, printable
from ue_rl.training.directory import RunDirectory
from ue_rl.training.options import DEFAULT_ENV, TrainOptions
from ue_rl.training.report import Outcome, Report

_log = logging.getLogger(__name__)


def train(
    options: TrainOptions, *, resume: RunDirectory | None = None, force: bool = False, report: Report | None = None
) -> Outcome:
    """Trains as `options` say, in a directory of its own.

    Args:
        options: resolved options.
        resume: continue this run instead of starting a new one; see RunDirectory.existing.
        force: overwrite the run `options.run_id` if there is one. It is deleted when the new run has saved its first
            model, and is back in its place if the new run fails before.
        report: is told what happens.

    Raises:
        UeRlError: nothing was learnt, and no new directory is left behind. What breaks a run that has learnt is in the
            outcome instead, and the model is saved.
        KeyboardInterrupt: as well before the first step.
    """
    o, report = options, report or Report()
    run = resume or RunDirectory.create(Path(o.log_dir), o.run_id, o.run_name, force)
    learner = None
    try:
        report.started(run)
        with _log_file(run.log):
            # Imports torch, which takes seconds: after everything cheap was checked, before an engine waits.
            import torch

            from ue_rl.training.agents import env_maker
            from ue_rl.training.engine import open_engine
            from ue_rl.training.learner import Learner

            # Small networks learn no faster on several threads, and the engine needs a core too.
            torch.set_num_threads(o.threads or max(1, (os.cpu_count() or 2) // 2))
            with open_engine(
                env=(o.env or DEFAULT_ENV) if o.embedded else None, num_envs=o.num_envs, env_kwargs=o.env_kwargs,
                host=o.hosts[0] if o.hosts else None, port=o.port, make=env_maker(o), transport=o.transport,
                channel=o.channel, timeout=o.timeout, wait=o.wait,
            ) as vec_env:  # fmt: skip
                facts = {key: printable(value) for key, value in vec_env.transport.describe().items()}
                report.connected(vec_env.num_envs, facts)
                _log.info("engine: %s", ", ".join(f"{key} {value}" for key, value in facts.items()))
                learner = Learner(options, run, vec_env, resume=resume is not None, report=report)
                return learner.learn()
    except BaseException:
        if resume is None and (run.replaced or not (learner and learner.begun)):
            run.discard()
        raise


@contextmanager
def _log_file(path: Path) -> Iterator[None]:
    """Writes what ue_rl logs, from INFO on, into the file too; also the error that ends the block."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("ue_rl")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)  # not by its attribute: loggers remember whether a level is enabled
    try:
        yield
    except UeRlError as error:
        # Into the file alone: whoever called shows it.
        text = f"{type(error).__name__}: {error}"
        handler.handle(_log.makeRecord(_log.name, logging.ERROR, __file__, 0, text, (), None))
        raise
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        handler.close()
