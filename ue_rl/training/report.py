"""What a run tells its caller: a TrainingReport while it goes on, a RunResult at its end."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ue_rl.connections.engines.lifecycle import Change
from ue_rl.training.directory import RunDirectory
from ue_rl.training.fleet import Fleet
from ue_rl.training.saving.stopping import write_to_stderr

_log = logging.getLogger(__name__)


class TrainingReport:
    """Called by `train`, in its thread. Does nothing: a subclass overrides what it wants to show.

    An Exception that it raises is logged, and ends neither the run nor what comes after it.
    """

    def started(self, run: RunDirectory) -> None:
        """The directory exists; nothing is connected yet."""

    def discarded(self, run: RunDirectory) -> None:
        """It ended before anything was learnt: its directory is gone, and the run that it was to replace is back."""

    def connected(self, num_envs: int, facts: Mapping[str, str]) -> None:
        """The engine answers; `facts` are those of Transport.describe()."""

    def engines(self, fleet: Fleet) -> None:
        """Right after `connected`: `fleet` says at any time, to any thread, what each engine does."""

    def changed(self, change: Change) -> None:
        """An engine goes from one state to another, also before `connected`; often, where `change.of_episodes`."""

    def said(self, text: str) -> None:
        """A sentence worth showing: a lesson of the curriculum begins, or the engine cannot do what was asked for."""

    def warned(self, text: str) -> None:
        """A sentence about something that learning suffers from, see ue_rl.training.watching; it is in the log too."""

    def progress(self, env_steps: int, total: int, mean_return: float | None) -> None:
        """At the first step, about five times a second, and once more at the end of learning.

        Args:
            env_steps: done so far, those of a resumed run included.
            total: at which learning ends.
            mean_return: of the last 100 episodes, None without any.
        """

    def ended(self) -> None:
        """Learning is over, whatever ended it; saving and evaluation follow."""

    def signalled(self, text: str) -> None:
        """A signal (Ctrl-C, SIGTERM) came, and what is done about it. Called in its handler, so it must not wait for a
        lock, or use print; as it is here, it writes to stderr.
        """
        write_to_stderr(text)

    def closed(self) -> None:
        """The run is over, and nothing of it is told any more; called once, if `started` was."""


class CarefulReport(TrainingReport):
    """Tells another TrainingReport; the first Exception that it raises is logged, and none of them goes any further."""

    def __init__(self, report: TrainingReport) -> None:
        self._report = report
        self._told = False

    def _tell(self, name: str, *given: object) -> None:
        try:
            getattr(self._report, name)(*given)
        except Exception as error:  # noqa: BLE001 - anybody's code
            if not self._told:
                self._told = True
                kind = type(self._report).__name__
                _log.warning("%s.%s failed: %s: %s", kind, name, type(error).__name__, error, exc_info=error)

    def started(self, run: RunDirectory) -> None:  # noqa: D102 - see TrainingReport, here and below
        self._tell("started", run)

    def discarded(self, run: RunDirectory) -> None:  # noqa: D102
        self._tell("discarded", run)

    def connected(self, num_envs: int, facts: Mapping[str, str]) -> None:  # noqa: D102
        self._tell("connected", num_envs, facts)

    def engines(self, fleet: Fleet) -> None:  # noqa: D102
        self._tell("engines", fleet)

    def changed(self, change: Change) -> None:  # noqa: D102
        self._tell("changed", change)

    def said(self, text: str) -> None:  # noqa: D102
        self._tell("said", text)

    def warned(self, text: str) -> None:  # noqa: D102
        self._tell("warned", text)

    def progress(self, env_steps: int, total: int, mean_return: float | None) -> None:  # noqa: D102
        self._tell("progress", env_steps, total, mean_return)

    def ended(self) -> None:  # noqa: D102
        self._tell("ended")

    def signalled(self, text: str) -> None:  # noqa: D102
        self._tell("signalled", text)

    def closed(self) -> None:  # noqa: D102
        self._tell("closed")


@dataclass
class RunResult:
    """What a run came to.

    Attributes:
        run: its directory.
        env_steps: of the whole run. before: those that a resumed run had already.
        seconds: of learning, without what was before.
        mean_return: of the last 100 training episodes, None without any.
        evaluation: (mean, standard deviation) of the returns without exploration, None where it was not evaluated.
        best: (env-steps, mean return) of best_model.zip, None where nothing was evaluated while it learnt.
        exported: the ONNX file and its difference from predict(), or why there is none; None where none was wanted.
        stopped_by: None when it ran to its end; KeyboardInterrupt (a RunStopped) or what broke it otherwise.
        saved: env-steps of the newest checkpoint, None without any: fewer than env_steps where saving failed.
        model: what learning goes on from: the model.zip, or the checkpoint's folder; None without any.
        restarts: how often engines were lost and came back.
        crash: the file with the traceback of what broke it, where nobody expected it; None otherwise.
    """

    run: RunDirectory
    env_steps: int
    episodes: int
    seconds: float
    mean_return: float | None
    evaluation: tuple[float, float] | None = None
    best: tuple[int, float] | None = None
    exported: str | None = None
    stopped_by: BaseException | None = None
    before: int = 0
    crash: Path | None = None
    saved: int | None = None
    restarts: int = 0
    model: Path | None = None

    def as_json(self) -> str:
        """What outcome.json holds: those of the attributes that are numbers, `state` and when it was written."""
        reason = self.stopped_by
        if reason is None:
            state = "done"
        elif isinstance(reason, KeyboardInterrupt):
            state = "stopped"
        else:
            state = "failed"
        names = ("env_steps", "episodes", "seconds", "mean_return", "evaluation", "restarts")
        facts = {"state": state, "at": time.time(), **{name: getattr(self, name) for name in names}}
        return f"{json.dumps(facts, indent=1)}\n"
