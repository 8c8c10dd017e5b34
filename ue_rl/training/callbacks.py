"""What happens during a run: episodes written down, checkpoints counted in env-steps, progress reported."""

from __future__ import annotations

import csv
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from stable_baselines3.common.callbacks import BaseCallback

from ue_rl.training.report import Report

_EVERY = 0.2  # seconds between two reports of progress


class EpisodeLog(BaseCallback):
    """Appends every finished episode to a CSV file; knows the mean return of the last 100."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._file: TextIO | None = None
        self.returns: deque[float] = deque(maxlen=100)
        self.episodes = 0

    def _on_training_start(self) -> None:
        new = not self._path.exists()
        self._file = self._path.open("a", newline="")
        self._writer = csv.writer(self._file)
        if new:
            self._writer.writerow(["env_steps", "return", "length", "seconds"])

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            episode = info.get("episode")
            if episode is not None:
                self.episodes += 1
                self.returns.append(episode["r"])
                self._writer.writerow([self.num_timesteps, episode["r"], episode["l"], episode["t"]])
        return True

    def _on_rollout_end(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Closes the file; also after an interrupted run."""
        if self._file is not None:
            self._file.close()

    @property
    def mean_return(self) -> float | None:
        """Of the last 100 episodes, None without any."""
        return sum(self.returns) / len(self.returns) if self.returns else None


class Checkpoints(BaseCallback):
    """Calls `save(name)` every `save_freq` env-steps, whatever num_envs is."""

    def __init__(self, save_freq: int, save: Callable[[str], None]) -> None:
        super().__init__()
        self._save_freq, self._save = save_freq, save
        self._next = 0

    def _on_training_start(self) -> None:
        self._next = (self.num_timesteps // self._save_freq + 1) * self._save_freq

    def _on_step(self) -> bool:
        if self.num_timesteps >= self._next:
            self._save(f"{self.num_timesteps}_steps")
            self._next = (self.num_timesteps // self._save_freq + 1) * self._save_freq
        return True


class ProgressCalls(BaseCallback):
    """Tells the report how far the run is: at the start, now and then, at the end."""

    def __init__(self, report: Report, total: int, episodes: EpisodeLog) -> None:
        super().__init__()
        self._report, self._total, self._episodes = report, total, episodes
        self._told = 0.0

    def _on_training_start(self) -> None:
        self._tell(time.monotonic())

    def _on_step(self) -> bool:
        now = time.monotonic()
        if now - self._told >= _EVERY:
            self._tell(now)
        return True

    def _tell(self, now: float) -> None:
        self._told = now
        self._report.progress(self.num_timesteps, self._total, self._episodes.mean_return)

    def close(self) -> None:
        """Learning is over, also by an exception."""
        if self._told:
            self._tell(time.monotonic())
        self._report.ended()
