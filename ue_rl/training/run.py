"""One training run: its directory, its log file, its engine. The learning itself is learner.py."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ue_rl.protocol.transport import Transport
from ue_rl.system.durable import write_whole
from ue_rl.system.errors import ConfigurationError, UeRlError, printable
from ue_rl.system.plugins import load_plugin
from ue_rl.system.trust.files import refuse_links
from ue_rl.training.checks import without_use
from ue_rl.training.comparison import ResumePlan, check_unfinished, compare
from ue_rl.training.directory import RunDirectory
from ue_rl.training.fleet import Fleet
from ue_rl.training.hyperparameters import known_algorithm, tuned_for
from ue_rl.training.kinds import log_targets
from ue_rl.training.options import TrainOptions
from ue_rl.training.report import CarefulReport, RunResult, TrainingReport
from ue_rl.training.saving.stopping import Stopping
from ue_rl.training.writing import LogFile, WriteGuard

if TYPE_CHECKING:
    from ue_rl.training.learner import Learner

_log = logging.getLogger(__name__)


def train(
    options: TrainOptions,
    *,
    resume: RunDirectory | None = None,
    force: bool = False,
    report: TrainingReport | None = None,
) -> RunResult:
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
        KeyboardInterrupt: as well before the first step; of SIGINT, SIGTERM and SIGHUP it is a RunStopped.
    """
    followed = report or TrainingReport()
    report = CarefulReport(followed)
    if options.backend == "rllib" and find_spec("ray") is None:
        cure = "pip install 'ue_rl[train,rllib]' -c constraints.txt"
        raise ConfigurationError("the backend rllib needs Ray, which is not installed", field="backend", cure=cure)
    for name in log_targets(options.log_to):
        if find_spec(name) is None:
            cure = f"pip install 'ue_rl[{name if name != 'tensorboard' else 'train'}]' -c constraints.txt"
            raise ConfigurationError(f"{name} is not installed", field="log_to", got=options.log_to, cure=cure)
    with Stopping(report.signalled) as stopping:
        run = resume or RunDirectory.create(Path(options.log_dir), options.run_id, options.run_name, force, options)
        if resume:
            refuse_links(run.path, run.engines, run.engines / "evaluation", run.path / "videos")
        with run.lock:
            report.started(run)
            try:
                return _in_directory(options, run, resume is not None, report, stopping)
            finally:
                report.closed()


def _in_directory(
    options: TrainOptions, run: RunDirectory, resume: bool, report: TrainingReport, stopping: Stopping
) -> RunResult:
    learner: Learner | None = None
    try:
        with _log_file(run.log, report), ExitStack() as stack:
            run.sweep()
            for text in without_use(options):
                _log.warning("%s", text)
                report.warned(text)
            load: dict[str, Any] | None = None
            if resume:
                options, said, load = _compared(options, run)
                for text in said:
                    report.said(text)
                    _log.info("%s", text)
            with stopping.interruptible():
                begin: Callable[..., Learner] = _prepared
                if options.backend != "sb3":
                    begin = load_plugin("ue_rl.backends", options.backend)
                learner = begin(options, run, load, report, stack)
            run.outcome.unlink(missing_ok=True)  # not before: what is refused, or finds no engine, changes nothing
            outcome = learner.learn(stopping)
            with WriteGuard(run.outcome, report.warned, Exception):
                write_whole(run.outcome, lambda path: path.write_text(outcome.as_json(), "utf-8"))
            return outcome
    except BaseException as error:
        learnt = run.store().env_steps  # whatever fails after the first checkpoint, it is kept
        if not resume and not learnt and (run.replaced or not (learner and learner.begun)):
            run.discard()
            report.discarded(run)
            if isinstance(error, UeRlError) and error.cure:  # an engine's last lines are in it; their file has gone
                error.cure = re.sub(rf" \({re.escape(str(run.engines))}[^)]*\)", "", error.cure)
        raise


def _compared(options: TrainOptions, run: RunDirectory) -> ResumePlan:
    """What may change in a run that has saved something; one that has not begins anew, with any options."""
    found = ResumePlan(options, [], {})
    if run.saved_anything:
        found = compare(run.read_config(), options, run.path)
        store = run.store()
        if store.env_steps >= options.timesteps and (last := store.last) is not None:  # before an engine is started
            check_unfinished(options, last.facts.get("rollout_start", last.env_steps))
    aside = [f"{path} is a run of this name that --force had set aside" for path in run.set_aside()]
    return found._replace(said=[*aside, *found.said])


def _prepared(
    options: TrainOptions, run: RunDirectory, load: dict[str, Any] | None, report: TrainingReport, stack: ExitStack
) -> Learner:
    """Starts or dials the engines, which `stack` ends, and makes the model; `load` as Learner takes it."""
    from ue_rl.training.engine import engines_of

    o = options
    goes_on = load is not None and run.saved_anything
    if o.init_from and not goes_on:
        from ue_rl.training.loading import find_start

        find_start(o)  # a wrong path is said before an engine is started
    teaching = None
    if o.bc or o.prefill or o.gail or o.rnd:
        from ue_rl.training.teaching import Teaching

        teaching = Teaching(o, goes_on)
    transport: Transport = engines_of(o, run.engines, report.changed)
    stack.callback(transport.close)
    if o.trace is not None:
        from ue_rl.devtools.recording import RecordingTransport
        from ue_rl.protocol.traces.writing import keep_before

        if goes_on and (kept := keep_before(Path(o.trace))) is not None:
            report.said(f"trace: {o.trace}; what was recorded before is {kept}")
        transport = RecordingTransport(transport, o.trace, o.trace_size * 1_000_000)
        stack.callback(transport.close)
    # Imports torch, which takes seconds: after everything cheap was checked, before an engine waits.
    from ue_rl.training.agents import env_of
    from ue_rl.training.evaluation import Evaluation
    from ue_rl.training.loading import check_arguments, init_arguments
    from ue_rl.training.named import callbacks_of, wrapped
    from ue_rl.training.sb3 import Sb3Learner

    if goes_on:
        arguments = load
    elif o.init_from:
        arguments = init_arguments(o)
    else:
        arguments = tuned_for(o)
    if not arguments:
        arguments = {}
    check_arguments(known_algorithm(o.algo), arguments)
    callbacks = callbacks_of(o)
    engine = env_of(o, transport)
    facts = {key: printable(value) for key, value in engine.transport.describe().items()}
    report.connected(engine.num_envs, facts)
    report.engines(Fleet(engine.transport))
    evaluation = None
    if o.eval_freq:
        evaluation = Evaluation(o, run, report, learnt_in=engine.engine_spec)
        stack.callback(evaluation.close)
        evaluation.open()
    vec_env = wrapped(o, engine)
    learner = Sb3Learner(
        options, run, vec_env, load=load, report=report, callbacks=callbacks, evaluation=evaluation, teaching=teaching
    )
    if o.metrics is not None:
        from ue_rl.devtools.metrics.serving import serve_metrics

        report.said(f"metrics: {stack.enter_context(serve_metrics(o.metrics, learner.numbers.metrics))}")
    return learner


@contextmanager
def _log_file(path: Path, report: TrainingReport) -> Iterator[None]:
    """Writes what ue_rl logs, from INFO on, into the file too; also the error that ends the block."""
    handler = LogFile(path, report.warned)
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
