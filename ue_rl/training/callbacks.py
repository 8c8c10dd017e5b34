"""What happens during a run: episodes written down, the game's numbers followed, progress reported."""

from __future__ import annotations

import csv
import math
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback

from ue_rl.errors import printable
from ue_rl.training.report import Report
from ue_rl.training.writing import Guard

_EVERY = 0.2  # seconds between two reports of progress
_MAX_KEYS = 200  # numbers of the game that are followed: what an engine sends must not fill the disk
# What infos hold for SB3 and its wrappers; anything else is the game's own.
_SB3_KEYS = frozenset(
    ("episode", "terminal_observation", "TimeLimit.truncated", "is_success", "action_mask", "action_masks", "engine")
)


class EpisodeLog(BaseCallback):
    """Appends every finished episode to a CSV file, and tells the report how far the run is.

    Attributes:
        episodes: how many ended.
    """

    def __init__(self, path: Path, report: Report, total: int) -> None:
        super().__init__()
        self._file = path.open("a", buffering=1, newline="")  # line by line: a run that is killed keeps its episodes
        self._writer = csv.writer(self._file)
        self._guard = Guard(path, report.warned)
        if not self._file.tell():
            self._write(["env_steps", "return", "length", "seconds"])
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
                self._write([self.num_timesteps, episode["r"], episode["l"], episode["t"]])
        now = time.monotonic()
        if now - self._told >= _EVERY:
            self._tell(now)
        return True

    def _write(self, row: list[object]) -> None:
        with self._guard:
            self._writer.writerow(row)

    def _tell(self, now: float) -> None:
        self._told = now
        self._report.progress(self.num_timesteps, self._total, self.mean_return)

    def close(self) -> None:
        """Learning is over, also by an exception."""
        with self._guard:
            self._file.close()
        if self._told:
            self._tell(time.monotonic())
        self._report.ended()

    @property
    def mean_return(self) -> float | None:
        """Of the last 100 episodes, None without any."""
        return sum(self._returns) / len(self._returns) if self._returns else None


class EngineNumbers(BaseCallback):
    """The numbers of the game's INFO by name in SB3's logger, over a rollout: `engine/KEY` its mean, `engine/KEY_max`.

    Keys that SB3 reads (`episode`, `is_success` and so on) are left to it; where a game uses one of them for something
    else, UnrealVecEnv has it in `info["engine"]`, and it is followed from there. For an algorithm whose rollouts are
    shorter than what its logger shows, the numbers are those since the last time that it showed them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sums: dict[str, tuple[float, int, float]] = {}  # key -> sum, count, maximum
        self._recorded: str | None = None

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if not info or info.get("inactive"):  # of an agent that is away nothing was said
                continue
            for key, value in info.items():
                if key not in _SB3_KEYS:
                    self._add(key, value)
            own = info.get("engine")
            if isinstance(own, Mapping):
                for key, value in own.items():
                    self._add(key, value)
        return True

    def _add(self, key: str, value: object) -> None:
        if not isinstance(value, (int, float, np.number, np.bool_)):
            return
        number = float(value)
        if not math.isfinite(number) or (key not in self._sums and len(self._sums) >= _MAX_KEYS):
            return
        total, count, top = self._sums.get(key, (0.0, 0, -math.inf))
        self._sums[key] = total + number, count + 1, max(top, number)

    def _on_rollout_start(self) -> None:
        # The logger forgets what it has shown: then the next numbers begin anew.
        if self._recorded is not None and self._recorded not in self.logger.name_to_value:
            self._sums.clear()

    def _on_rollout_end(self) -> None:
        for key, (total, count, top) in self._sums.items():
            name = f"engine/{printable(key)[:80]}"
            self.logger.record(name, total / count)
            self.logger.record(f"{name}_max", top)
            self._recorded = name
