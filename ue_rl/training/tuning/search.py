"""A search: a folder with an Optuna study, whose trials are runs of their own, a few at a time.

    runs/NAME/  run.yaml  study.db  best.yaml  history.png  importance.png
        trials/0007.yaml  0007.log  0007/ ..   what a trial is told, what its process says, and its run

Each trial is a process, `ue-rl train`, under a keeper: none outlives this one. Only this process writes the study. A
trial that is cut short, because it or this process is killed or stopped, is failed, and waits once more in the queue.
"""

from __future__ import annotations

import functools
import json
import math
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from ue_rl.connections.launching.process import EngineProcess, Output, exit_words
from ue_rl.system.durable import write_whole
from ue_rl.system.errors import ConfigurationError, UeRlError
from ue_rl.system.trust.files import refuse_links, trusts_all
from ue_rl.training.config import read_config, require_origin, resolve, signed_yaml
from ue_rl.training.directory import RunDirectory, checked_id
from ue_rl.training.options import ROWS, TrainOptions, plain
from ue_rl.training.reading import EpisodeTable
from ue_rl.training.rows import CONNECTION, SHOWN, STARTED
from ue_rl.training.saving.lock import RunLock
from ue_rl.training.saving.stopping import Stopping, write_to_stderr
from ue_rl.training.tuning.pictures import draw
from ue_rl.training.tuning.spaces import SPACES, suggest
from ue_rl.training.writing import Guard

CONFIG, STUDY, BEST = "run.yaml", "study.db", "best.yaml"
RUNGS = 20  # how often the running return of a trial is compared with that of the others
_UNCHANGED, _AGAIN = "unchanged", "again"  # attributes of a trial: the options as they are; the number of one cut short
_MOST_AGAIN = 3  # how often a trial that is killed by somebody else is begun again
_STOPPED = (129, 130, 143)  # exit codes of a trial that got a signal
_NOT_SEARCHED = ("seeds", "init_from", "trace", "metrics")  # also where a YAML file has them
_PLACES = ("engine", "url", "run_id", "log_dir", "threads", "device")  # may change when a search goes on
_SAVING = 30.0  # seconds that trials have to end when the search is stopped
_BEGUN: dict[str, Any] = {"jobs": 1, "sampler": "tpe", "pruner": "median"}


class Search:
    """Trials until there are enough. One process at a time may have a folder; a Search is used once.

    Args:
        options: of the runs; hyperparameters that they have are not searched.
        folder: its folder, which exists; `created` and `existing` give one.
        jobs: trials side by side, each with engines of its own.
        sampler: "tpe" or "random". pruner: "median", "halving" or "none".
            None, of these three: as the search was begun, or 1, tpe, median.
        tell: shows a sentence.

    Attributes:
        study: Optuna's. stopped: the signal that ended `run`, None without one.

    Raises:
        ConfigurationError: the backend has no search spaces, or the engines are too few for the jobs.
    """

    def __init__(
        self,
        options: TrainOptions,
        folder: Path,
        *,
        jobs: int | None = None,
        sampler: str | None = None,
        pruner: str | None = None,
        tell: Callable[[str], object] = print,
    ) -> None:
        check(options, jobs or 1)
        self.options, self.folder, self._tell = options, folder, tell
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.study = optuna.create_study(
            storage=f"sqlite:///{(folder / STUDY).absolute()}",
            study_name=folder.name,
            direction="maximize",
            load_if_exists=True,
        )
        given = {"jobs": jobs, "sampler": sampler, "pruner": pruner}
        how = _BEGUN | self.study.user_attrs | {name: value for name, value in given.items() if value is not None}
        self._jobs = int(how["jobs"])
        check(options, self._jobs)
        for name in _BEGUN:
            self.study.set_user_attr(name, how[name])
        self.study.pruner = _pruner(how["pruner"], options.timesteps)
        # Another seed each time that it goes on: the same one would draw again what was drawn before.
        self.study.sampler = _sampler(how["sampler"], (options.seed or 0) + len(self.study.trials))
        self._running: dict[int, _Running] = {}
        self.stopped: KeyboardInterrupt | None = None

    def run(self, n_trials: int, signalled: Callable[[str], object] = write_to_stderr) -> None:
        """Until the study has `n_trials` that have ended by themselves, or a signal comes; then draws the pictures.

        Raises:
            UeRlError: the run does not work as the options say it, before anything was changed.
        """
        with RunLock(self.folder), Stopping(signalled) as stopping:
            write_whole(self.folder / CONFIG, lambda path: path.write_text(signed_yaml(self.options), "utf-8"))
            for trial in self.study.get_trials(states=(TrialState.RUNNING,)):
                self._again(trial, "was cut short when the search ended")
            if not self.study.trials:
                self.study.enqueue_trial({}, user_attrs={_UNCHANGED: True})
            try:
                with stopping.interruptible():
                    while self.done < n_trials or self._running:
                        while len(self._running) < min(self._jobs, n_trials - self.done):
                            self._start(self.study.ask())
                        time.sleep(0.2)
                        for running in [*self._running.values()]:
                            self._look_at(running)
            except KeyboardInterrupt as error:
                self.stopped = error
            finally:
                self._end()
            with Guard("the pictures of the search", self._tell, Exception):
                draw(self.study, self.folder, f"{self.options.algo.upper()} on {self.options.task}", self.unchanged)

    @property
    def done(self) -> int:
        """How many trials have ended by themselves: with a value, pruned, or failed."""
        cut = {trial.user_attrs.get(_AGAIN) for trial in self.study.get_trials(deepcopy=False)}
        trials = self.study.get_trials(deepcopy=False)
        return sum(trial.state.is_finished() and trial.number not in cut for trial in trials)

    @property
    def best(self) -> FrozenTrial | None:
        """The trial with the greatest value; None where none has one."""
        trials = self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return max(trials, key=lambda trial: (trial.value or 0.0, -trial.number), default=None)

    @property
    def unchanged(self) -> float | None:
        """The value of the options as they are; None while there is none."""
        trials = self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return next((trial.value for trial in trials if _UNCHANGED in trial.user_attrs), None)

    def _start(self, trial: Trial) -> None:
        o = self.options
        hyper = o.hyperparameters if _UNCHANGED in trial.user_attrs else suggest(trial, o)
        trial.set_user_attr("hyperparameters", hyper)
        one = replace(o, hyperparameters=hyper, seed=o.seed or 0, export=False, save_replay_buffer=False, keep=1)
        one.eval_episodes = o.eval_episodes or 0
        one.threads = o.threads or (1 if self._jobs > 1 else None)
        one.log_dir, one.run_id = str(self.folder / "trials"), f"{trial.number:04d}"
        path = Path(one.log_dir) / f"{one.run_id}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(one.as_yaml(), "utf-8")
        self._running[trial.number] = _Running(trial, one, path)

    def _look_at(self, running: _Running) -> None:
        """Reports its running return; tells what became of it, where it has ended or falls behind."""
        trial, over = running.trial, running.process.ended.is_set()
        for step, mean in running.rungs():
            trial.report(mean, step)
            if not over and _UNCHANGED not in trial.user_attrs and trial.should_prune():
                running.end()
                self._told(running, TrialState.PRUNED, f"pruned at env-step {step:,}, return {mean:.1f}")
                return
        if not over:
            return
        code = running.process.exit_code
        running.end()
        value = running.value() if code == 0 else None
        if value is not None:
            self.study.tell(trial, value)
            best = self.best
            assert best is not None
            self._told(running, None, f"return {value:.1f}, best {best.value:.1f} (trial {best.number})")
            self._write_best(best)
            return
        why = "it has finished no episode: give it more --timesteps" if code == 0 else exit_words(code)
        frozen = self.study.trials[trial.number]
        if (code is None or code < 0 or code in _STOPPED) and self._times(frozen) < _MOST_AGAIN:
            del self._running[trial.number]
            self._again(frozen, why)
            return
        self._told(running, TrialState.FAIL, f"failed: {why}; see {running.output.path}")
        if _UNCHANGED in trial.user_attrs:
            raise UeRlError("the run fails as its options are, before any is changed", cure=running.last_lines)

    def _told(self, running: _Running, state: TrialState | None, text: str) -> None:
        """It is over, with `state`, where its value does not say it."""
        del self._running[running.trial.number]
        if state is not None:
            self.study.tell(running.trial, state=state)
        what = " (options unchanged)" if _UNCHANGED in running.trial.user_attrs else ""
        self._tell(f"trial {running.trial.number}{what}: {text}")

    def _again(self, trial: FrozenTrial, why: str) -> None:
        """Fails a trial that was cut short, with the same one in the queue: first that, lest it is lost in between."""
        if trial.number not in {each.user_attrs.get(_AGAIN) for each in self.study.trials}:
            same = {name: value for name, value in trial.user_attrs.items() if name == _UNCHANGED}
            self.study.enqueue_trial(trial.params, user_attrs={**same, _AGAIN: trial.number})
        self.study.tell(trial.number, state=TrialState.FAIL)
        self._tell(f"trial {trial.number}: {why}; it is begun again")

    def _times(self, trial: FrozenTrial) -> int:
        """How often it was begun before."""
        before = trial.user_attrs.get(_AGAIN)
        return 0 if before is None else 1 + self._times(self.study.trials[before])

    def _end(self) -> None:
        """Ends the trials that run; they wait for the next time."""
        for running in self._running.values():
            running.process.ask_to_end(_SAVING)
        for number, running in [*self._running.items()]:
            running.end(_SAVING)
            del self._running[number]
            self._again(self.study.trials[number], "stopped")

    def _write_best(self, best: FrozenTrial) -> None:
        found = replace(self.options, hyperparameters=best.user_attrs["hyperparameters"], run_id=None)
        text = f"# trial {best.number} of {self.folder.name}, return {best.value:.2f}\n{signed_yaml(found)}"
        write_whole(self.folder / BEST, lambda path: path.write_text(text, "utf-8"))


class _Running:
    """The process of one trial."""

    def __init__(self, trial: Trial, options: TrainOptions, config: Path) -> None:
        self.trial, self.options, self.last_lines = trial, options, ""
        self.run = RunDirectory(Path(options.log_dir) / (options.run_id or ""))
        self.output = Output(config.with_suffix(".log"))
        words = trial_command(config)
        self.output.begin(" ".join(words))
        try:
            self.process = EngineProcess(words, self.output.file, None)
        except BaseException:
            self.output.close()
            raise
        self._episodes = EpisodeTable(self.run.episodes)
        self._rung = 0

    def rungs(self) -> list[tuple[int, float]]:
        """(env-steps, running return) of those that it has passed since the last call."""
        table, found = self._episodes.follow(), []
        for rung in range(self._rung + 1, RUNGS):
            step = self.options.timesteps * rung // RUNGS
            if not table.steps or table.steps[-1] < step:
                break
            self._rung, mean = rung, table.mean(step)
            if mean is not None:
                found.append((step, mean))
        return found

    def value(self) -> float | None:
        """Of a run that is done: its evaluation's, where there was one, or that of its last 100 episodes; None without
        any, and where it is no number.
        """
        outcome = json.loads(self.run.outcome.read_text("utf-8"))
        evaluation, mean = outcome["evaluation"], outcome["mean_return"]
        value = mean if evaluation is None else evaluation[0]
        return None if value is None or not math.isfinite(value) else float(value)

    def end(self, grace: float = _SAVING) -> None:
        """Ends it, and its engines, if they have not ended."""
        self.process.end(grace)
        if not self.output.file.closed:
            self.last_lines = self.output.last_lines()
            self.output.close()


def trial_command(config: Path) -> list[str]:
    """What runs one trial."""
    trust = ["--trust"] if trusts_all() else []
    return [sys.executable, "-m", "ue_rl", "train", "--config", str(config), "--written-here", "--force", *trust]


def check(options: TrainOptions, jobs: int) -> None:
    """Raises ConfigurationError where such runs cannot be searched by so many jobs."""
    if options.backend != "sb3" or options.algo not in SPACES:
        cure = "train with --backend sb3, or see samples/recipes/tune.py for Ray Tune"
        raise ConfigurationError("there is no search space for it", field="backend", got=options.backend, cure=cure)
    for name in _NOT_SEARCHED:
        if getattr(options, name) is not None:
            what, cure = "a search has no use for it: every trial would have the same", "leave it out"
            raise ConfigurationError(what, field=name, got=getattr(options, name), cure=cure)
    if options.eval_url is not None and jobs > 1:
        what, cure = "trials side by side need engines of their own for evaluations", "leave --eval-url out"
        raise ConfigurationError(what, field="eval_url", got=options.eval_url, cure=cure)
    if options.urls and jobs > 1:
        what = "trials side by side need engines of their own"
        cure = "give --engine COMMAND, which starts them, or --jobs 1"
        raise ConfigurationError(what, field="jobs", got=jobs, cure=cure)


def created(options: TrainOptions, force: bool) -> Path:
    """A new folder for a search, called `options.run_id`, or tune-ALGO-TASK-NUMBER.

    Raises:
        ConfigurationError: there is one of this name, and no `force`; or what is there is no search.
    """
    log_dir = Path(options.log_dir)
    if options.run_id is None:
        numbers = [path.name.rpartition("-")[2] for path in log_dir.glob(f"tune-{options.run_name}-*")]
        number = 1 + max((int(each) for each in numbers if each.isdigit()), default=0)
        folder = log_dir / f"tune-{options.run_name}-{number}"
    else:
        folder = log_dir / checked_id(options.run_id)
    if folder.exists():
        is_search = (folder / STUDY).is_file()
        if not (force and is_search):
            cure = "go on with --resume, begin anew with --force, or choose another --run-id"
            cure = cure if is_search else "it holds something else: choose another --run-id"
            raise ConfigurationError(f"{folder} exists already", field="run_id", cure=cure)
        with RunLock(folder):  # refused where a process has it
            shutil.rmtree(folder)
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be made", field="log_dir", got=str(error)) from error
    return folder


def existing(log_dir: Path, run_id: str | None) -> Path:
    """The folder of a search to go on with: `run_id`, or the newest.

    Raises:
        ConfigurationError: there is none.
    """
    found = [log_dir / checked_id(run_id) / STUDY] if run_id else [*log_dir.glob(f"*/{STUDY}")]
    found = [path for path in found if path.is_file()]
    if not found:
        where = log_dir / (run_id or "")
        cure = "check --log-dir and --run-id, or begin one without --resume"
        raise ConfigurationError(f"there is no search in {where}", field="run_id", cure=cure)
    return max(found, key=lambda path: path.stat().st_mtime).parent


def resumed(given: dict[str, Any], folder: Path) -> TrainOptions:
    """The options of the search in `folder`; `given` ones may say otherwise where its engines are, nothing else.

    Raises:
        ConfigurationError: another one differs: its trials could not be compared. UntrustedFile: it was not begun here,
            and starts a program.
    """
    before = read_config(folder / CONFIG)
    options, was = resolve(given, None, base=before), resolve({}, None, base=before)
    for name, row in ROWS.items():
        same = plain(getattr(was, name)) == plain(getattr(options, name))
        may = row.group in (STARTED, CONNECTION, SHOWN) or name in _PLACES
        if not same and not may:
            what = "a search that goes on cannot change it: its trials would not compare"
            old, now = getattr(was, name), getattr(options, name)
            cure = "leave it out, or begin another search"
            raise ConfigurationError(what, field=name, expected=old, got=now, cure=cure)
    refuse_links(folder, folder / "trials")
    require_origin(folder, before, options, {name for name, value in given.items() if value is not None})
    return options


def _sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    if name == "random":
        return optuna.samplers.RandomSampler(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # of constant_liar, before Optuna 5
        return optuna.samplers.TPESampler(seed=seed, constant_liar=True, n_startup_trials=8)


def _pruner(name: str, timesteps: int) -> optuna.pruners.BasePruner:
    """After a quarter of a run, and, by the median, once there are five to compare with."""
    first = timesteps // 4
    make: dict[str, Callable[[], optuna.pruners.BasePruner]] = {
        "median": functools.partial(optuna.pruners.MedianPruner, n_startup_trials=5, n_warmup_steps=first),
        "halving": functools.partial(optuna.pruners.SuccessiveHalvingPruner, min_resource=max(1, first)),
        "none": optuna.pruners.NopPruner,
    }
    return make[name]()
