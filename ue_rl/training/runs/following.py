"""A run as another process sees it while it goes on: from the files that it writes, which are only read."""

from __future__ import annotations

import re
from contextlib import suppress

from ue_rl.connections.engines.lifecycle import LifeState
from ue_rl.system.errors import HandshakeError
from ue_rl.training.directory import RunDirectory, read_handshake
from ue_rl.training.fleet import EngineStatus
from ue_rl.training.options import TrainOptions
from ue_rl.training.reading import PROGRESS_STEPS, EpisodeTable, Tail
from ue_rl.training.report import Report

_CHANGE = re.compile(r"engine (\d+): ([a-z ]+) -> ([a-z ]+?)(:|$)")
_RECORD = re.compile(r"\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d),\d+ (\w+) \S+: (.*)")
_AGAIN = (LifeState.LAUNCHING, LifeState.CONNECTING)


class Following:
    """Tells a Report what a run of another process does; is itself what `Report.engines` gets.

    Args:
        run: its folder. options: of the run.
    """

    def __init__(self, run: RunDirectory, options: TrainOptions) -> None:
        self._run, self._options = run, options
        self._log, self._progress = Tail(run.log), Tail(run.path / "progress.csv")
        self.episodes = EpisodeTable(run.episodes)
        self._states: dict[int, LifeState] = {}
        self._restarts: dict[int, int] = {}
        self._logged = 0

    def follow(self, report: Report) -> None:
        """Tells what is new since the last call."""
        for line in self._log.read()[1]:
            record = _RECORD.match(line)
            if record is not None:
                self._changed(record[3])
                report.said(
                    f"{record[1]} {record[3]}" if record[2] == "INFO" else f"{record[1]} {record[2]} {record[3]}"
                )
        self.episodes.follow()
        last = self.episodes.steps[-1] if self.episodes.steps else 0
        report.progress(max(last, self._logged_steps()), self._options.timesteps, self.episodes.mean())

    def curve(self, points: int = 200) -> list[float]:
        """The running return so far, at so many moments at most."""
        steps = self.episodes.follow().steps
        chosen = steps[:: max(1, len(steps) // points)]
        return [mean for step in chosen if (mean := self.episodes.mean(step)) is not None]

    def statuses(self) -> list[EngineStatus]:
        """See Fleet; how long their steps take is not in the files."""
        with suppress(HandshakeError):
            spec = read_handshake(self._run.handshake)
            envs = 0 if spec is None else spec.num_envs // max(1, len(self._states))
            return [
                EngineStatus(number, state, envs, self._restarts.get(number, 0), None)
                for number, state in sorted(self._states.items())
            ]
        return []

    def _changed(self, text: str) -> None:
        found = _CHANGE.match(text)
        if found is None:
            return
        with suppress(ValueError):  # a state that another version has
            engine, before, after = int(found[1]), LifeState(found[2]), LifeState(found[3])
            self._states[engine] = after
            if before is LifeState.IDLE:
                self._restarts[engine] = 0
            elif before is LifeState.CLEANUP and after in _AGAIN:
                self._restarts[engine] = self._restarts.get(engine, 0) + 1

    def _logged_steps(self) -> int:
        """As progress.csv has them: ahead of the episodes, where these are long."""
        _, lines = self._progress.read()
        with suppress(OSError, ValueError, IndexError, OverflowError):
            if lines:
                with (self._run.path / "progress.csv").open(encoding="utf-8") as file:
                    at = file.readline().rstrip().split(",").index(PROGRESS_STEPS)
                self._logged = int(float(lines[-1].split(",")[at]))
        return self._logged
