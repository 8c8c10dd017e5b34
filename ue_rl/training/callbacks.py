"""What happens during a run: episodes written down, checkpoints counted in env-steps, the progress bar."""

from __future__ import annotations

import csv
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from stable_baselines3.common.callbacks import BaseCallback

from ue_rl.training.directory import RunDirectory

_log = logging.getLogger("ue_rl.cli.train")


class EpisodeLog(BaseCallback):
    """Appends every finished episode to episodes.csv; knows the mean of the last 100."""

    def __init__(self, run: RunDirectory) -> None:
        super().__init__()
        self._path = run.episodes
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
        self._file.flush()

    def close(self) -> None:
        """Closes the file; also after an interrupted run."""
        if hasattr(self, "_file"):
            self._file.close()

    @property
    def mean_return(self) -> float | None:
        """Of the last 100 episodes."""
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


class ProgressBar(BaseCallback):
    """env-steps done, speed, mean return; on a terminal as a bar, otherwise a line every ten seconds."""

    def __init__(self, console: Console, total: int, episodes: EpisodeLog) -> None:
        super().__init__()
        self._console, self._total, self._episodes = console, total, episodes
        self._progress: Progress | None = None

    def _on_training_start(self) -> None:
        self._begun = self._shown = time.monotonic()
        self._first = self.num_timesteps
        if self._console.is_terminal:
            self._progress = Progress(
                TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("env-steps"),
                TextColumn("{task.fields[fps]:>7} fps"), TextColumn("return {task.fields[mean]:>8}"),
                TimeElapsedColumn(), TimeRemainingColumn(), console=self._console,
            )  # fmt: skip
            self._task = self._progress.add_task("", total=self._total, completed=self._first, fps="", mean="-")
            self._progress.start()

    def _on_step(self) -> bool:
        now = time.monotonic()
        if now - self._shown >= (0.2 if self._progress else 10.0):
            self._shown = now
            self._show(now)
        return True

    def _show(self, now: float) -> None:
        mean = self._episodes.mean_return
        fields: dict[str, Any] = {
            "fps": f"{(self.num_timesteps - self._first) / max(now - self._begun, 1e-9):,.0f}",
            "mean": "-" if mean is None else f"{mean:.1f}",
        }
        if self._progress:
            self._progress.update(self._task, completed=min(self.num_timesteps, self._total), **fields)
        else:
            self._console.print(
                f"{self.num_timesteps:,} of {self._total:,} env-steps, {fields['fps']} fps, return {fields['mean']}"
            )

    def close(self) -> None:
        """Ends the bar; also after an interrupted run."""
        if hasattr(self, "_begun"):
            self._show(time.monotonic())
        if self._progress:
            self._progress.stop()
            self._progress = None
