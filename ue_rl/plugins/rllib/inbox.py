"""The training process's side of news.py: messages of the env runners become episodes, changes and progress."""

# pyright: reportMissingImports=false
from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

import ray

from ue_rl.plugins.rllib.news import Connected, EpisodeSummary, Message, NewsActor, RunnerProgress
from ue_rl.training.fleet import EngineStatus, Fleet
from ue_rl.training.report import TrainingReport
from ue_rl.training.writing import Episodes

_EVERY = 0.25  # seconds between two looks
_log = logging.getLogger("ue_rl.plugins.rllib")


class Inbox(Fleet):
    """The engines of all env runners.

    Takes messages while its `with` block runs, in a thread of its own and when `pump` is called.

    Args:
        name: of the actor, unlike any other in the cluster. report: is told of engines and progress.

    Attributes:
        connected: worker index -> what it said of its engines last.
        env_steps: of the whole run; set it before `episodes`. episodes: where they go; None: not learning yet.
        restarts: engines that were lost and came back.
    """

    def __init__(self, name: str, report: TrainingReport) -> None:
        self.name = name
        self.connected: dict[int, Connected] = {}
        self._statuses: dict[int, list[EngineStatus]] = {}  # by worker index
        self.env_steps = 0
        self.episodes: Episodes | None = None
        self._report = report
        self._before = 0  # restarts of runners that ended
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._desk: Any = ray.remote(num_cpus=0)(NewsActor).options(name=name).remote()
        self._thread = threading.Thread(target=self._watch, name="ue_rl news", daemon=True)

    def __enter__(self) -> Inbox:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        with suppress(Exception):  # a cluster that is gone has no actor either
            ray.kill(self._desk)

    @property
    def restarts(self) -> int:
        """See the class."""
        return self._before + sum(status.restarts for statuses in self._statuses.values() for status in statuses)

    @property
    def num_envs(self) -> int:
        """Of all runners."""
        return sum(each.num_envs for each in self.connected.values())

    def pump(self) -> None:
        """Handles what has come."""
        with self._lock:
            messages: list[tuple[int, Message]] = ray.get(self._desk.take.remote(), timeout=30)
            played: dict[int, list[RunnerProgress]] = {}
            for worker, message in messages:
                if isinstance(message, RunnerProgress):
                    self._statuses[worker] = message.engines
                    played.setdefault(worker, []).append(message)
                elif isinstance(message, Connected):
                    if worker in self.connected:  # its process was started again
                        self._before += 1 + sum(status.restarts for status in self._statuses.pop(worker, []))
                    self.connected[worker] = message
                else:
                    self._report.changed(replace(message, engine=self._number(worker, message.engine)))
            if self.episodes is not None:
                for at, episode in in_order(played, self.env_steps):
                    self.episodes.add(at, episode.value, episode.length, episode.seconds)
                self.env_steps += sum(message.env_steps for each in played.values() for message in each)
                self.episodes.at(self.env_steps)

    def try_pump(self) -> bool:
        """As `pump`; False, and a line in the log, where the cluster is gone: whoever learns in it says why."""
        try:
            self.pump()
        except Exception as error:  # noqa: BLE001 - of whatever kind
            _log.warning("no news of the env runners any more: %s", error)
            return False
        return True

    def stop_counting(self) -> None:
        """Learning is over: what is played from here on is no part of the run."""
        with self._lock:
            self.episodes = None

    def statuses(self) -> list[EngineStatus]:
        """See Fleet: numbered through."""
        return [
            replace(status, number=self._number(worker, status.number))
            for worker, statuses in sorted(dict(self._statuses).items())
            for status in statuses
        ]

    def _number(self, worker: int, engine: int) -> int:
        facts = {}
        if worker in self.connected:
            facts = self.connected[worker].facts
        return max(0, worker - 1) * int(facts.get("engines", 1)) + engine

    def _watch(self) -> None:
        while not self._over.wait(_EVERY) and self.try_pump():
            pass


def in_order(played: dict[int, list[RunnerProgress]], env_steps: int) -> list[tuple[int, EpisodeSummary]]:
    """(env-steps of the run, episode) of what runners have played at the same time, in the order of their ends.

    Args:
        env_steps: of the run before.
    """
    steps = {worker: sum(message.env_steps for message in each) for worker, each in played.items()}
    total = sum(steps.values())
    found = []
    for worker, messages in played.items():
        before = 0
        for message in messages:
            for episode in message.episodes:
                found.append((env_steps + (before + episode.at) * total // max(1, steps[worker]), episode))
            before += message.env_steps
    return sorted(found, key=lambda pair: pair[0])
