"""Evaluation while a policy learns, in an engine of its own: evaluations.csv, TensorBoard, best_model.zip.

Nothing of the run is touched by it: it takes the policy's most probable actions, behind a copy of VecNormalize's
statistics, and puts the random generators back where they were.
"""

from __future__ import annotations

import csv
import json
import logging
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from ue_rl.protocol.calls.parameters import as_ranges, randomize
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.durable import write_whole
from ue_rl.system.errors import ConfigurationError, UeRlError
from ue_rl.training.agents import env_of
from ue_rl.training.comparison import check_evaluated
from ue_rl.training.curriculum import Curriculum
from ue_rl.training.directory import RunDirectory
from ue_rl.training.engine import engines_of, set_game
from ue_rl.training.models import evaluated
from ue_rl.training.named import wrapped
from ue_rl.training.options import TrainOptions
from ue_rl.training.report import TrainingReport
from ue_rl.training.saving.snapshot import kept_random
from ue_rl.training.saving.stopping import RunStopped
from ue_rl.training.writing import EVALUATIONS, Episodes, Evaluated, WriteGuard, evaluations, sentence

HELD_OUT = 1_000_000  # above the run's seed: the first episodes of each evaluation
_log = logging.getLogger(__name__)


class Evaluation(BaseCallback):
    """Every `eval_freq` env-steps, at the start of a rollout, and when learning is over.

    Args:
        options, run: of the run. report: is told. export: writes an ONNX file of (model, path, VecNormalize or None);
            None: none is wanted. learnt_in: of the engine that the policy learns in; None: the spaces are not compared.

    Attributes:
        last: the last evaluation; None before. best: (env-steps, mean return) of best_model.zip; None before.
        curriculum: its present lesson is played, where there is one.
    """

    def __init__(
        self,
        options: TrainOptions,
        run: RunDirectory,
        report: TrainingReport,
        export: Callable[[BaseAlgorithm, Path, Any], object] | None = None,
        learnt_in: EnvSpec | None = None,
    ) -> None:
        super().__init__()
        self.options = options
        self.run = run
        self.report = report
        self.export = export
        self.curriculum: Curriculum | None = None
        self.last: Evaluated | None = None
        self.best: tuple[int, float] | None = None
        self._env: VecEnv | None = None
        self._learnt_in = learnt_in
        own_seed = options.seed
        if not own_seed:
            own_seed = 0
        self._seed = HELD_OUT + own_seed
        self._guard = WriteGuard(run.path / EVALUATIONS, report.warned, Exception)
        self._reached = False

    # -- its engine

    def open(self) -> None:
        """Starts or dials the engine that it plays in.

        Raises:
            UeRlError: that cannot be, the engine has agents, or other spaces than the one that the policy learns in.
        """
        o = self.options
        output = self.run.engines / "evaluation"
        if o.eval_url is None:
            o = replace(o, num_engines=1, num_envs=min(o.num_envs, o.evaluated), seed=self._seed, video_freq=0)
        else:
            o = replace(o, env=None, engine=None, num_engines=1, url=o.eval_url)
        transport = engines_of(o, output)
        try:
            vec_env = env_of(o, transport)
            spec = vec_env.engine_spec
            if spec.groups:
                what = "agents are not evaluated while they learn"
                raise ConfigurationError(what, field="eval_freq", got=spec.groups, cure="leave it out")
            if self._learnt_in is not None:
                check_evaluated(self._learnt_in, spec)
            set_game(transport, spec, {}, None, o.time_scale, lambda _: None)
            self._env = wrapped(o, vec_env)
        except BaseException:
            transport.close()
            raise

    def close(self) -> None:
        """Ends or leaves its engine; nothing is raised."""
        env = self._env
        self._env = None
        if env is not None:
            with suppress(UeRlError, OSError):
                env.close()

    # -- what Stable-Baselines3 calls

    def _on_training_start(self) -> None:
        rows = evaluations(self.run.path)
        if rows:
            self.last = rows[-1]
        else:
            self.last = None
        if not self.model.num_timesteps:  # it begins anew in the folder of one that had saved nothing
            return
        with suppress(OSError, ValueError, KeyError, TypeError):
            best = json.loads(self._best(".json").read_text("utf-8"))
            self.best = int(best["env_steps"]), float(best["mean_return"])

    def _on_rollout_start(self) -> None:
        freq = self.options.eval_freq
        done = 0
        if self.last is not None:
            done = self.last.env_steps
        if self.model.num_timesteps // freq > done // freq:
            self._evaluate()

    def _on_step(self) -> bool:
        return not self._reached

    def _on_training_end(self) -> None:
        if self._reached:  # its policy is the one that was evaluated: no update came after it
            return
        if self.last is None or self.model.num_timesteps > self.last.env_steps:
            try:
                self._evaluate()
            except RunStopped as stopped:  # the model is learnt and saved
                self.report.said(f"not evaluated: {stopped}; the model is saved")

    # -- an evaluation

    def _evaluate(self) -> None:
        try:
            with kept_random(self.model):
                if self._env is None:
                    self.open()
                row = self._played()
                is_best = self.best is None or row.mean_return > self.best[1]
                if is_best:
                    with self._guard:
                        self._write_best(row)
        except Exception as error:  # noqa: BLE001 - whatever it was, learning goes on; the next one tries again
            self.close()
            expected = isinstance(error, (UeRlError, OSError))
            text = f"not evaluated at {self.model.num_timesteps:,} env-steps: {error if expected else sentence(error)}"
            if expected:
                exc_info = None
            else:
                exc_info = error
            _log.warning("%s", text, exc_info=exc_info)
            self.report.warned(text)
            return
        self.last = row
        self._note(row)
        said = f"evaluation at {row.env_steps:,} env-steps: mean return {row.mean_return:.1f} +/- {row.std_return:.1f}"
        if is_best:
            line = f"{said}, the best so far"
        else:
            line = said
        self.report.said(line)
        stop = self.options.stop_at_return
        if stop is not None and row.mean_return >= stop:
            self._reached = True
            self.report.said(f"it reaches {stop:g}: learning ends")

    def _played(self) -> Evaluated:
        model = self.model
        env = self._env
        assert env is not None
        ranges = as_ranges(self.options.params, "params")
        for course in self.curriculum.courses if self.curriculum is not None else ():
            ranges = {**ranges, **course.params}
        randomize(env.unwrapped.transport, ranges, self._seed)  # type: ignore[attr-defined]
        statistics = model.get_vec_normalize_env()
        if statistics is not None:
            copy: VecNormalize = pickle.loads(pickle.dumps(statistics))  # without its env, which stays where it is
            copy.set_venv(env)
            copy.training = copy.norm_reward = False
            env = copy
        env = model._wrap_env(env, monitor_wrapper=False)
        env.seed(self._seed)
        was_training = model.policy.training
        try:
            returns, lengths = evaluated(self.options, model, env, self.options.evaluated)
        finally:
            model.policy.set_training_mode(was_training)
        means = float(np.mean(returns)), float(np.std(returns)), float(np.mean(lengths))
        return Evaluated(model.num_timesteps, *means, len(returns))

    def _best(self, suffix: str) -> Path:
        return self.run.best.with_suffix(suffix)

    def _write_best(self, row: Evaluated) -> None:
        """The JSON file comes last: it says of which env-step the others are."""
        model = self.model
        statistics = self.model.get_vec_normalize_env()
        write_whole(self._best(".zip"), model.save)
        if statistics is not None:
            target = self.run.path / f"{self.run.best.stem}_vecnormalize.pkl"
            write_whole(target, lambda path: statistics.save(str(path)))
        if self.export is not None:
            self.export(model, self._best(".onnx"), statistics)
        write_whole(self._best(".json"), lambda path: path.write_text(json.dumps(row._asdict(), indent=2), "utf-8"))
        self.best = row.env_steps, row.mean_return

    def _note(self, row: Evaluated) -> None:
        """Into the tables, beside what learning writes there: its own rows stay as they are."""
        with self._guard:
            path = self.run.path / EVALUATIONS
            new = not path.exists() or not path.stat().st_size
            with path.open("a", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows([Evaluated._fields, row] if new else [row])
        values = {"eval/mean_reward": row.mean_return, "eval/mean_ep_length": row.mean_length}
        for table in self.logger.output_formats:
            table.write(values, dict.fromkeys(values, ("csv",)), row.env_steps)


class StopAtReturn(BaseCallback):
    """Ends learning when the mean return of the last 100 episodes is `stop`, where no evaluation is made."""

    def __init__(self, episodes: Episodes, stop: float, tell: Callable[[str], object]) -> None:
        super().__init__()
        self._episodes = episodes
        self._stop = stop
        self._tell = tell

    def _on_step(self) -> bool:
        mean = self._episodes.mean_return
        if mean is None or self._episodes.count < 100 or mean < self._stop:
            return True
        self._tell(
            f"the last 100 episodes have a mean return of {mean:.1f}, which reaches {self._stop:g}: learning ends"
        )
        return False
