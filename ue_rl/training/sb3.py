"""Stable-Baselines3 learns: a model on a connected engine, from the files of a run or a new one."""

from __future__ import annotations

import functools
import json
import logging
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.vec_env import VecEnv

from ue_rl.envs.agents.selfplay import SelfPlay
from ue_rl.system.errors import ConfigurationError, ExportError
from ue_rl.training import agents
from ue_rl.training.callbacks import EngineNumbers, EpisodeLog, LookingOn, RunNumbers
from ue_rl.training.comparison import check_engine, check_unfinished
from ue_rl.training.curriculum import Curriculum
from ue_rl.training.directory import RunDirectory
from ue_rl.training.ends import EpisodeEnds
from ue_rl.training.engine import set_game
from ue_rl.training.evaluation import HELD_OUT, Evaluation, StopAtReturn
from ue_rl.training.fleet import Fleet
from ue_rl.training.learner import Learner
from ue_rl.training.models import (
    algorithm,
    device,
    evaluated,
    longer_than_asked,
    new_model,
    normalized,
    without_effect,
)
from ue_rl.training.numpy_learner.choice import choose_learner
from ue_rl.training.options import TrainOptions
from ue_rl.training.report import TrainingReport
from ue_rl.training.saving.autosave import AutoSave
from ue_rl.training.saving.callbacks import StopCallback
from ue_rl.training.saving.checkpoints import Checkpoint
from ue_rl.training.saving.stopping import Stopping
from ue_rl.training.tables import columns
from ue_rl.training.teaching import Teaching
from ue_rl.training.videos import Films, check_films
from ue_rl.training.watching import Watching

_log = logging.getLogger(__name__)


class Sb3Learner(Learner):
    """One run of one model.

    Args:
        vec_env: the connected engine; wrapped, but not closed, here.
        callbacks: the user's. evaluation: in an engine that is ready; None: none while it learns.
        load: go on with what the directory holds, if anything was saved there, with these arguments of the
            algorithm's load(); None: a new model.
        teaching: demonstrations and learnt rewards; None: it learns from the game alone.

    Raises:
        ConfigurationError: the model cannot be made or continued for this engine.
        ExportError: the policy could not be exported later.
    """

    copied = ("model.zip", "vecnormalize.pkl", "model.onnx", "curriculum.json")
    linked = ("replay_buffer.pkl",)

    def __init__(
        self,
        options: TrainOptions,
        run: RunDirectory,
        vec_env: VecEnv,
        *,
        report: TrainingReport,
        load: dict[str, Any] | None = None,
        callbacks: Sequence[BaseCallback] = (),
        evaluation: Evaluation | None = None,
        teaching: Teaching | None = None,
    ) -> None:
        super().__init__(options, run, report)
        self._callbacks = callbacks
        self._evaluation = evaluation
        self._teaching = teaching
        if teaching is None:
            self._rewards = {}
        else:
            self._rewards = teaching.fit(vec_env)
        self._fleet = Fleet(vec_env.unwrapped.transport)  # type: ignore[attr-defined]
        if options.video_freq:
            check_films(vec_env.unwrapped.engine_spec, "video_freq")  # type: ignore[attr-defined]
        curriculum = None
        if load is not None:
            curriculum = run.curriculum
        self.curriculum = self._prepared(vec_env, curriculum)
        if evaluation is not None:
            evaluation.curriculum = self.curriculum
            if options.export:
                evaluation.export = functools.partial(self._export, newest=False)
            else:
                evaluation.export = None
        export = None
        if options.export:
            export = self._export
        parts = {}
        if self.curriculum is not None:
            parts = {"curriculum": self.curriculum}
        self.autosave = AutoSave(
            run.path,
            save_freq=options.save_freq,
            save_interval=options.save_interval,
            keep=options.keep,
            replay_buffer=options.save_replay_buffer,
            after=self._saved,
            export=export,
            parts={**parts, **self._rewards},
            signals=False,
            lock=False,
            tell=report.said,
            extra=lambda folder: RunDirectory(folder).write_config(options),
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="the engine takes no seeds")
            if load is None:
                self.autosave.resume(algorithm(options, vec_env), vec_env)  # the first episodes are noted, too
            saved = None
            if load is not None:
                saved = self._resumed(vec_env, load)
            self.model = saved or new_model(options, vec_env, report.said)
        self._is_resumed = saved is not None
        self.env: VecEnv = self.model.get_env() or vec_env
        choose_learner(options, self.model, report.said)  # before the options are written into the run's folder
        _log.info("learner: %s", options.learner)
        for text in without_effect(options, self.model):
            _log.warning("%s", text)
            report.warned(text)
        for text in longer_than_asked(options, self.model):
            _log.info("%s", text)
            report.said(text)
        if options.export:
            self._check_export()
        spec = replace(self.env.unwrapped.engine_spec, shm=None)  # type: ignore[attr-defined]
        self.model.set_logger(self._open(self.model.num_timesteps, spec))
        self.numbers = RunNumbers(self.episodes, self._fleet)

    def _prepared(self, vec_env: VecEnv, lessons: Path | None) -> Curriculum | None:
        """Sets what the options say of the game itself, before its first episode; the curriculum, if there is one.

        Args:
            lessons: the file that says in which lesson the run is; None, or where it does not exist: in the first.
        """
        o = self.options
        engine = vec_env.unwrapped
        spec, transport = engine.engine_spec, engine.transport  # type: ignore[attr-defined]
        set_game(transport, spec, o.params, o.seed, o.time_scale, self.report.said)
        if o.curriculum is None:
            return None
        curriculum = Curriculum(o.curriculum, seed=o.seed, timesteps=o.timesteps, tell=self.report.said)
        if lessons is not None and lessons.exists():
            _restore(curriculum, lessons)
        curriculum.attach(vec_env)
        return curriculum

    def _resumed(self, vec_env: VecEnv, load: dict[str, Any]) -> BaseAlgorithm | None:
        """The model to go on with; None where the run has saved nothing yet."""
        o = self.options
        run = self.run
        if run.saved_anything:
            for text in check_engine(o, vec_env.unwrapped.engine_spec, run.handshake):  # type: ignore[attr-defined]
                self.report.said(text)
        kind = algorithm(o, vec_env)
        model: BaseAlgorithm | None = self.autosave.resume(
            kind, normalized(o, vec_env), device=device(o, vec_env), **load
        )
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
            _restore(self.curriculum, lessons)
        return model

    @property
    def env_steps(self) -> int:
        """See Learner."""
        return self.model.num_timesteps

    @property
    def restarts(self) -> int:
        """See Learner."""
        return self._fleet.restarts

    def _before(self, first: int) -> int:
        """See Learner; a rollout that was under way is collected again from what was recorded."""
        return max(first, self.numbers.first)

    def _learn(self, stopping: Stopping) -> None:
        o = self.options
        run = self.run
        model = self.model
        of_agents = agents.callbacks(o, run.path, self.env)
        self.closing += [each for each in of_agents if isinstance(each, SelfPlay)]
        callbacks: list[BaseCallback] = [
            self.autosave,
            StopCallback(stopping),
            *(LookingOn(each, self.report.warned) for each in self._onlookers()),
            *([] if self.curriculum is None else [self.curriculum]),
            *of_agents,
            *self._rewards.values(),
            *self._callbacks,
        ]
        if self._evaluation is not None:
            callbacks.append(self._evaluation)
        elif o.stop_at_return is not None:
            callbacks.append(StopAtReturn(self.episodes, o.stop_at_return, self.report.said))
        left = o.timesteps - model.num_timesteps
        try:
            with stopping.interruptible():
                if self._teaching is not None and not self._is_resumed:
                    self._teaching.teach(model, run.path, self.report.said)
                self.begun_at = time.monotonic()
                model.learn(left, callback=CallbackList(callbacks), reset_num_timesteps=not self._is_resumed)
        except RuntimeError as error:
            if o.her is None or "end of the first episode" not in str(error):
                raise
            what = "HER has no finished episode to learn from yet"
            cure = "raise learning_starts above the first episodes' steps"
            raise ConfigurationError(
                what, field="hyperparameters.learning_starts", got=f"{model.num_timesteps} env-steps", cure=cure
            ) from error

    def _onlookers(self) -> list[BaseCallback]:
        """Callbacks that change nothing."""
        o = self.options
        run = self.run
        found: list[BaseCallback] = [
            EpisodeLog(self.episodes),
            self.numbers,
            EngineNumbers(columns(run.path / "progress.csv")),
            Watching(self.report.warned),
            EpisodeEnds(self.report.warned),
        ]
        if o.video_freq:
            found.append(Films(run.path / "videos", o.video_freq, self.report.warned))
        return found

    def _save_rest(self, stopped: BaseException | None) -> Checkpoint | None:
        self.autosave.rescue(stopped)
        return self.autosave.last

    def _check_export(self) -> None:
        from ue_rl.inference import check_exportable

        try:
            check_exportable(self.model, self.model.get_vec_normalize_env())
        except ExportError as error:
            if error.cure:
                error.cure = f"{error.cure}; or train with --no-export"
            else:
                error.cure = "train with --no-export"
            raise

    def _export(self, model: BaseAlgorithm, path: Path, statistics: Any, newest: bool = True) -> None:
        from ue_rl.inference import export_onnx

        self._export_by(lambda: export_onnx(model, path, statistics), newest)

    @property
    def best(self) -> tuple[int, float] | None:
        """See Learner."""
        if self._evaluation is None:
            return None
        return self._evaluation.best

    def _evaluate(self, stopping: Stopping) -> tuple[float, float] | None:
        if self._evaluation is None:
            return super()._evaluate(stopping)
        last = self._evaluation.last
        if last is None:
            return None
        return (last.mean_return, last.std_return)

    def _returns(self, episodes: int) -> Sequence[float]:
        stats = self.model.get_vec_normalize_env()
        if stats is not None:  # what is exported afterwards must be what was trained and saved
            stats.training = stats.norm_reward = False
        if self.options.seed is not None:
            self.env.seed(self.options.seed + HELD_OUT)
        return evaluated(self.options, self.model, self.env, episodes)[0]


def _restore(curriculum: Curriculum, lessons: Path) -> None:
    """Goes on in the lessons of a saved run."""
    try:
        curriculum.restore(json.loads(lessons.read_text("utf-8")))
    except (OSError, ValueError, AttributeError, TypeError) as error:
        cure = "delete it to begin with the first lesson"
        raise ConfigurationError(f"{lessons} cannot be read", got=str(error), cure=cure) from error
