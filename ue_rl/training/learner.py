"""What every run is from its first file to its outcome, whatever learns in it: a backend fills the gaps."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from stable_baselines3.common.logger import Logger

from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.handshake import encode_handshake
from ue_rl.system.durable import write_whole
from ue_rl.system.errors import ConfigurationError, ExportError, SaveFailed, UeRlError
from ue_rl.training.directory import RunDirectory
from ue_rl.training.kinds import log_targets
from ue_rl.training.options import TrainOptions
from ue_rl.training.pictures import draw_curves
from ue_rl.training.report import RunResult, TrainingReport
from ue_rl.training.saving.checkpoints import Checkpoint
from ue_rl.training.saving.stopping import Stopping
from ue_rl.training.tables import open_tables, quiet_tensorboard
from ue_rl.training.targets import targets_of
from ue_rl.training.writing import Episodes, WriteGuard, sentence

if TYPE_CHECKING:
    from ue_rl.inference import ExportReport

_log = logging.getLogger("ue_rl.training.learner")  # `ue-rl train` knows it by this name


class Learner(ABC):
    """One run of one model.

    Attributes:
        begun: True as soon as a step was learnt from.
        begun_at: when the first step was asked for, by time.monotonic(); what comes before it is no learning.
        copied, linked: what of a checkpoint lies in the run's folder itself, too; what may be large is linked.
        closing: the tables and whatever else is closed when learning is over.
    """

    copied: tuple[str, ...] = ("model.onnx",)
    linked: tuple[str, ...] = ()

    def __init__(self, options: TrainOptions, run: RunDirectory, report: TrainingReport) -> None:
        self.options = options
        self.run = run
        self.report = report
        self.begun = False
        self.begun_at = 0.0
        self.closing: list[Any] = []
        self._exported: str | None = None
        self._copies = WriteGuard(run.path, report.warned, Exception)
        # The first weights are those of a QR decomposition, which gives others on more threads: one makes the model.
        torch.set_num_threads(1)

    def learn(self, stopping: Stopping) -> RunResult:
        """Learns, saves, evaluates, exports.

        Args:
            stopping: who takes the signals; nothing is interrupted but learning and the evaluation.

        Raises:
            BaseException: whatever it is, before the first step. What ends learning later is in the outcome.
        """
        o = self.options
        run = self.run
        # Small networks learn no faster on several threads, and the engine needs a core too.
        threads = o.threads
        if not threads:
            threads = max(1, (os.cpu_count() or 2) // 2)
        torch.set_num_threads(threads)
        first = self.env_steps
        self.begun_at = time.monotonic()
        stopped: BaseException | None = None
        try:
            with quiet_tensorboard():
                self._learn(stopping)
        except BaseException as error:
            stopped = error
            if self.env_steps == first:
                raise
        finally:
            self.begun = self.env_steps > first
            for each in self.closing:
                _close(each)
        seconds = time.monotonic() - self.begun_at
        crash = None
        if stopped is not None:
            crash = _note(stopped, run, self.env_steps)
        saved = self._save_rest(stopped)
        if stopped is None and (saved is None or saved.env_steps < self.env_steps):
            stopped = SaveFailed(
                f"the model of {self.env_steps} env-steps could not be saved", cure=f"see {run.log} for the reason"
            )
        if saved is None and run.replaced:
            raise stopped or SaveFailed("nothing could be saved")  # the run that was to be overwritten is kept
        with WriteGuard(run.curves, self.report.warned, Exception):
            draw_curves(run.episodes, run.curves, f"{o.algo.upper()} on {o.task}")
        newest = saved or run.store().last
        total = self.env_steps
        before = self._before(first)
        if newest is not None and newest.env_steps > total:  # stopped among the steps that the run had already
            total = before = newest.env_steps
        evaluation = None
        if stopped is None:
            evaluation = self._evaluate(stopping)
        saved_steps = None
        if newest is not None:
            saved_steps = newest.env_steps
        if run.model.exists():
            model_path = run.model
        elif newest is None:
            model_path = None
        else:
            model_path = newest.path
        return RunResult(
            run,
            total,
            self.episodes.count,
            seconds,
            self.episodes.mean_return,
            before=before,
            stopped_by=stopped,
            crash=crash,
            evaluation=evaluation,
            best=self.best,
            exported=self._exported,
            saved=saved_steps,
            restarts=self.restarts,
            model=model_path,
        )

    # -- what a backend fills

    @property
    @abstractmethod
    def env_steps(self) -> int:
        """That the run has learnt from so far, those of a resumed run included."""

    @property
    @abstractmethod
    def restarts(self) -> int:
        """How often engines were lost and came back."""

    @property
    def best(self) -> tuple[int, float] | None:
        """(env-steps, mean return) of the best evaluation while it learnt; None where there was none."""
        return None

    def _before(self, first: int) -> int:
        """Of the run's env-steps those that no engine was asked for here; learning began after `first`."""
        return first

    @abstractmethod
    def _learn(self, stopping: Stopping) -> None:
        """Learns until the run has its timesteps, and saves what is due meanwhile."""

    @abstractmethod
    def _save_rest(self, stopped: BaseException | None) -> Checkpoint | None:
        """Saves what no checkpoint has yet; the one that this object saved last."""

    @abstractmethod
    def _returns(self, episodes: int) -> Sequence[float]:
        """Of so many episodes without exploration."""

    # -- what it has for that

    def _open(self, env_steps: int, spec: EnvSpec) -> Logger:
        """Writes what the run's folder holds from the beginning on, after `env_steps`: SB3's logger is its tables."""
        o = self.options
        run = self.run
        try:
            tensorboard = "tensorboard" in log_targets(o.log_to)
            others = targets_of(o, run.path)
            tables = open_tables(run.path, self.report.warned, env_steps, o.verbose, tensorboard, others)
            write_whole(run.handshake, lambda path: path.write_bytes(encode_handshake(spec)))
            run.write_config(o)
            self.episodes = Episodes(run.episodes, self.report, o.timesteps)
        except OSError as error:
            what = f"{run.path} cannot be written"
            cure = "free some space, or check the folder's permissions"
            raise ConfigurationError(what, field="log_dir", got=str(error), cure=cure) from error
        self.closing = [self.episodes, tables]
        return tables

    def _saved(self, checkpoint: Checkpoint) -> None:
        """The newest files lie in the run's folder itself, too; the run that this one overwrites has had its time."""
        with self._copies:  # the checkpoint is there, whatever becomes of its copies
            for name in (*self.copied, *self.linked):
                source = checkpoint.file(name)
                if source is not None:
                    copy = _link if name in self.linked else shutil.copyfile
                    write_whole(self.run.path / name, functools.partial(copy, source))
            if checkpoint.env_steps > 0:
                self.run.remove_replaced()

    def _export_by(self, export: Callable[[], ExportReport], newest: bool = True) -> None:
        """Writes an ONNX file; the summary speaks of the `newest` one, that of a checkpoint in the run's folder."""
        try:
            report = export()
            said = f"{self.run.onnx} ({report.verdict()})"
        except Exception as error:  # noqa: BLE001 - torch's own; a checkpoint does not need the file
            if isinstance(error, ExportError):
                exc_info = None
            else:
                exc_info = error
            _log.error("no ONNX file: %s", error, exc_info=exc_info)
            said = f"not exported: {error}"
        if newest:
            self._exported = said

    def _evaluate(self, stopping: Stopping) -> tuple[float, float] | None:
        o = self.options
        if not o.evaluated:
            return None
        try:
            with stopping.interruptible():
                returns = self._returns(o.evaluated)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the model is learnt, whatever this was
            text = f"not evaluated: {sentence(error)}; the model is saved"
            if isinstance(error, (UeRlError, KeyboardInterrupt)):
                exc_info = None
            else:
                exc_info = error
            _log.error("%s", text, exc_info=exc_info)
            self.report.said(text)
            return None
        if returns:
            return (float(np.mean(returns)), float(np.std(returns)))
        return None


def _note(error: BaseException, run: RunDirectory, env_steps: int) -> Path | None:
    """Writes into the log why learning ended; where nobody expected it, the traceback into the file that it gives."""
    if isinstance(error, KeyboardInterrupt):
        _log.warning("%s after %d env-steps; saving the model, wait", sentence(error), env_steps)
        return None
    _log.error("stopped after %d env-steps: %s", env_steps, sentence(error))
    if isinstance(error, UeRlError):
        return None
    path = run.path / time.strftime("crash-%Y%m%d-%H%M%S.txt")
    try:
        path.write_text("".join(traceback.format_exception(error)), "utf-8")
    except OSError as failed:
        _log.error("%s could not be written: %s", path, failed)
        return None
    return path


def _close(shown: Any) -> None:
    """What closing it raises must not keep the model from being saved."""
    try:
        shown.close()
    except Exception as error:  # noqa: BLE001 - anybody's report
        _log.error("%s: %s", type(error).__name__, error)


def _link(source: Path, target: Path) -> None:
    """A second name of the same bytes, where the file system has such; ours are replaced, never written into."""
    with suppress(OSError):
        os.link(source, target)
        return
    shutil.copyfile(source, target)
