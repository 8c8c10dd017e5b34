"""What happens between a connected engine and the files of a run: learning, saving, evaluation, export."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import CallbackList
from stable_baselines3.common.vec_env import VecEnv

from ue_rl.errors import ConfigurationError, ExportError, SaveFailed, UeRlError
from ue_rl.saving.autosave import AutoSave
from ue_rl.saving.checkpoints import Checkpoint
from ue_rl.saving.stop_callback import StopCallback
from ue_rl.saving.stopping import Stopping
from ue_rl.system.durable import write_whole
from ue_rl.training import agents
from ue_rl.training.callbacks import EngineNumbers, EpisodeLog
from ue_rl.training.comparison import check_engine, check_unfinished
from ue_rl.training.curves import draw_curves
from ue_rl.training.directory import RunDirectory
from ue_rl.training.ending import closed, note, said_of, sentence, writable
from ue_rl.training.episodes import Episodes
from ue_rl.training.fleet import Fleet
from ue_rl.training.models import algorithm, evaluation_of, new_model, normalized
from ue_rl.training.options import TrainOptions
from ue_rl.training.preparing import prepared, restore
from ue_rl.training.report import Outcome, Report
from ue_rl.training.tables import columns, open_tables, quiet_tensorboard
from ue_rl.training.watching import Watching
from ue_rl.training.writing import Guard
from ue_rl.wire.handshake import encode_handshake

_log = logging.getLogger(__name__)
_COPIED = ("model.zip", "vecnormalize.pkl", "model.onnx", "curriculum.json")  # from a checkpoint to the run's folder
_LINKED = "replay_buffer.pkl"  # may be large


class Learner:
    """One run of one model.

    Args:
        vec_env: the connected engine; wrapped, but not closed, here.
        load: go on with what the directory holds, if anything was saved there, with these arguments of the
            algorithm's load(); None: a new model.

    Attributes:
        begun: True as soon as a step was learnt from. episodes: what is written of each episode.

    Raises:
        ConfigurationError: the model cannot be made or continued for this engine.
        ExportError: the policy could not be exported later.
    """

    def __init__(
        self, options: TrainOptions, run: RunDirectory, vec_env: VecEnv, *, report: Report,
        load: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.options, self.run, self.report = options, run, report
        self.begun = False
        self._exported: str | None = None
        self._fleet = Fleet(vec_env.unwrapped.transport)  # type: ignore[attr-defined]
        self.curriculum = prepared(options, vec_env, None if load is None else run.curriculum, report)
        self.autosave = AutoSave(
            run.path, save_freq=options.save_freq, save_minutes=options.save_minutes, keep=options.keep,
            replay_buffer=options.save_replay_buffer, after=self._saved,
            export=self._export if options.export else None,
            parts={} if self.curriculum is None else {"curriculum": self.curriculum}, signals=False, lock=False,
            tell=report.said, extra=lambda folder: RunDirectory(folder).write_config(options),
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the engine takes no seeds")
            if load is None:
                self.autosave.resume(algorithm(options.algo, vec_env), vec_env)  # the first episodes are noted, too
            saved = None if load is None else self._resumed(vec_env, load)
            self.model = saved or new_model(options, vec_env, report.said)
        self._is_resumed = saved is not None
        self.env: VecEnv = self.model.get_env() or vec_env
        if options.export:
            self._check_export()
        spec = replace(self.env.unwrapped.engine_spec, shm=None)  # type: ignore[attr-defined]
        with writable(run):
            self.model.set_logger(open_tables(run.path, report.warned, self.model.num_timesteps, options.verbose))
            write_whole(run.handshake, lambda path: path.write_bytes(encode_handshake(spec)))
            run.write_config(options)
            self.episodes = Episodes(run.episodes, report, options.timesteps)

    def _resumed(self, vec_env: VecEnv, load: dict[str, Any]) -> BaseAlgorithm | None:
        """The model to go on with; None where the run has saved nothing yet."""
        o, run = self.options, self.run
        if run.saved_anything:
            for text in check_engine(o, vec_env.unwrapped.engine_spec, run.handshake):  # type: ignore[attr-defined]
                self.report.said(text)
        kind = algorithm(o.algo, vec_env)
        model: BaseAlgorithm | None = self.autosave.resume(kind, normalized(o, vec_env), device=o.device, **load)
        if model is None:
            if run.saved_anything:
                raise ConfigurationError(
                    f"no checkpoint of {run.path} can be read",
                    field="run_id",
                    cure=f"see run.log for the reasons; begin a new run, from its model with --init-from {run.path}, "
                    "or this one anew with --force",
                )
            self.report.said("nothing was saved yet: the run begins anew, with its own options")
            return None
        checkpoint = self.autosave.resumed
        assert checkpoint is not None
        check_unfinished(o, model.num_timesteps)
        lessons = checkpoint.file("curriculum.json")
        if self.curriculum is not None and lessons is not None:
            restore(self.curriculum, lessons)
        return model

    def learn(self, stopping: Stopping) -> Outcome:
        """Learns, saves, evaluates, exports.

        Args:
            stopping: who takes the signals; nothing is interrupted but learning and the evaluation.

        Raises:
            BaseException: whatever it is, before the first step. What ends learning later is in the outcome.
        """
        o, run, model = self.options, self.run, self.model
        episodes = self.episodes
        callbacks = [
            self.autosave, StopCallback(stopping), EpisodeLog(episodes),
            EngineNumbers(columns(run.path / "progress.csv")), Watching(self.report.warned),
        ]  # fmt: skip
        if self.curriculum is not None:
            callbacks.append(self.curriculum)
        self_play = agents.self_play(o, run.path, self.env)
        callbacks += agents.callbacks(self.env) if self_play is None else [*agents.callbacks(self.env), self_play]
        first, begun_at = model.num_timesteps, time.monotonic()
        stopped: BaseException | None = None
        try:
            with quiet_tensorboard(), stopping.interruptible():
                model.learn(
                    o.timesteps - first, callback=CallbackList(callbacks), reset_num_timesteps=not self._is_resumed
                )
        except BaseException as error:  # noqa: BLE001 - whatever it is, what was learnt is saved
            stopped = _explained(error, o, model)
            if model.num_timesteps == first:
                raise stopped from (None if stopped is error else error)
        finally:
            self.begun = model.num_timesteps > first
            for what in (episodes, self_play, model.logger):
                if what is not None:
                    closed(what.close)
        seconds = time.monotonic() - begun_at
        crash = None if stopped is None else note(stopped, run, model.num_timesteps)
        self.autosave.rescue(stopped)
        saved = self.autosave.last
        if stopped is None and (saved is None or saved.env_steps < model.num_timesteps):
            stopped = SaveFailed(
                f"the model of {model.num_timesteps} env-steps could not be saved", cure=f"see {run.log} for the reason"
            )
        if saved is None and run.replaced:
            raise stopped or SaveFailed("nothing could be saved")  # the run that was to be overwritten is kept
        with Guard(run.curves, self.report.warned):
            draw_curves(run.episodes, run.curves, f"{o.algo.upper()} on {o.task}")
        return Outcome(
            run, model.num_timesteps, episodes.count, seconds, episodes.mean_return, before=first,
            stopped_by=stopped, crash=crash, evaluation=self._evaluate(stopping) if stopped is None else None,
            exported=self._exported, saved=None if saved is None else saved.env_steps, restarts=self._fleet.restarts,
            model=run.model if run.model.exists() else None,
        )  # fmt: skip

    def _saved(self, checkpoint: Checkpoint) -> None:
        """The newest model lies in the run's folder itself, too; the run that this one overwrites has had its time."""
        for name in (*_COPIED, _LINKED):
            source = checkpoint.file(name)
            if source is not None:
                copy = _linked if name == _LINKED else shutil.copyfile
                write_whole(self.run.path / name, functools.partial(copy, source))
        if checkpoint.env_steps > 0:
            self.run.remove_replaced()

    def _check_export(self) -> None:
        from ue_rl.inference import check_exportable

        try:
            check_exportable(self.model, self.model.get_vec_normalize_env())
        except ExportError as error:
            error.cure = f"{error.cure}; or train with --no-export" if error.cure else "train with --no-export"
            raise

    def _export(self, model: BaseAlgorithm, path: Path, statistics: Any) -> None:
        """Writes a checkpoint's ONNX file; the summary speaks of the one in the run's folder."""
        from ue_rl.inference import export_onnx

        try:
            report = export_onnx(model, path, statistics)
        except ExportError as error:
            _log.error("no ONNX file: %s", error)
            self._exported = f"not exported: {error}"
            return
        self._exported = f"{self.run.onnx} ({said_of(report, 'predict()')})"

    def _evaluate(self, stopping: Stopping) -> tuple[float, float] | None:
        o = self.options
        count = o.eval_episodes if o.eval_episodes is not None else (20 if o.embedded else 0)
        if count < 1:
            return None
        stats = self.model.get_vec_normalize_env()
        if stats is not None:  # what is exported afterwards must be what was trained and saved
            stats.training = stats.norm_reward = False
        if o.seed is not None:
            self.env.seed(o.seed + 1_000_000)
        try:
            with stopping.interruptible():
                returns, _ = evaluation_of(o.algo)(
                    self.model, self.env, n_eval_episodes=count, deterministic=True, return_episode_rewards=True,
                    warn=False,
                )  # fmt: skip
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the model is learnt, whatever this was
            text = f"not evaluated: {sentence(error)}; the model is saved"
            _log.error("%s", text, exc_info=None if isinstance(error, (UeRlError, KeyboardInterrupt)) else error)
            self.report.said(text)
            return None
        if not returns:
            return None
        return float(np.mean(returns)), float(np.std(returns))


def _linked(source: Path, target: Path) -> None:
    """A second name of the same bytes, where the file system has such; ours are replaced, never written into."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _explained(error: BaseException, options: TrainOptions, model: BaseAlgorithm) -> BaseException:
    """`error`, or what it means in the words of this project."""
    if options.her is None or not isinstance(error, RuntimeError) or "end of the first episode" not in str(error):
        return error
    return ConfigurationError(
        "HER has no finished episode to learn from yet", field="hyperparameters.learning_starts",
        got=f"{model.num_timesteps} env-steps", cure="raise learning_starts above the first episodes' steps",
    )  # fmt: skip
