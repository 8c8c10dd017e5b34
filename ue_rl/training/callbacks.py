"""What happens during a run: episodes written down, checkpoints counted in env-steps, progress reported."""

from __future__ import annotations

import csv
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from stable_baselines3.common.callbacks import BaseCallback

from ue_rl.training.report import Report

_EVERY = 0.2  # seconds between two reports of progress


class EpisodeLog(BaseCallback):
    """Appends every finished episode to a CSV file, and tells the report how far the run is.

    Attributes:
        episodes: how many ended.
    """

    def __init__(self, path: Path, report: Report, total: int) -> None:
        super().__init__()
        self._file = path.open("a", buffering=1, newline="")  # line by line: a run that is killed keeps its episodes
        self._writer = csv.writer(self._file)
        if not self._file.tell():
            self._writer.writerow(["env_steps", "return", "length", "seconds"])
        self._returns: deque[float] = deque(maxlen=100)
        self.episodes = 0
        self._report, self._total = report, total
        self._told = 0.0

    def _on_training_start(self) -> None:
        self._tell(time.monotonic())

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            episode = info.get("episode")
            if episode is not None:
                self.episodes += 1
                self._returns.append(episode["r"])
                self._writer.writerow([self.num_timesteps, episode["r"], episode["l"], episode["t"]])
        now = time.monotonic()
        if now - self._told >= _EVERY:
            self._tell(now)
        return True

    def _tell(self, now: float) -> None:
        self._told = now
        self._report.progress(self.num_timesteps, self._total, self.mean_return)

    def close(self) -> None:
        """Learning is over, also by an exception."""
        self._file.close()
        if self._told:
            self._tell(time.monotonic())
        self._report.ended()

    @property
    def mean_return(self) -> float | None:
        """Of the last 100 episodes, None without any."""
        return sum(self._returns) / len(self._returns) if self._returns else None


class Checkpoints(BaseCallback):
    """Calls `save(name)` every `save_freq` env-steps, whatever num_envs is."""

    def __init__(self, save_freq: int, save: Callable[[str], None]) -> None:
        super().__init__()
        self._save_freq, self._save = save_freq, save

    def _on_training_start(self) -> None:
        self._saved = self.num_timesteps // self._save_freq

    def _on_step(self) -> bool:
        due = self.num_timesteps // self._save_freq
        if due > self._saved:
            self._save(f"{self.num_timesteps}_steps")
            self._saved = due
        return True
