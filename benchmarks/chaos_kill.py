"""Kills `ue-rl train` with -9 again and again while it saves: does `--resume` always go on, and never go back?

    python benchmarks/chaos_kill.py --kills 100 [--seed 0]

The run saves a checkpoint at every rollout, so that it does little else. It is killed at a random moment after its
start, or after its first checkpoint of this life; then the newest checkpoint must load, with SB3 too, must not be older
than the one before, and the next `--resume` must go on from it. At last the run is stopped by SIGTERM and resumed until
its end. Prints what was seen; the exit code is 1 where anything failed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.harness.warm_cli import WarmCli, WarmProcess
from ue_rl.devtools.testing import Leftovers, chaos_command

WORDS = [
    "train", "--run-id", "r", "--log-dir", "runs", "--save-freq", "1",
    "--n-steps", "16", "--batch-size", "32", "--set", "n_epochs=1", "--net-arch", "8", "--device", "cpu",
    "--threads", "1", "--no-export", "--eval-episodes", "0",
]  # fmt: skip


class Killer:
    """One run in `folder`, killed and resumed.

    Args:
        port: of a running engine with 2 envs; None: the trainer starts one, each time.

    Attributes:
        seen: how often a kill came before anything was saved, within a save, and between two.
    """

    def __init__(self, cli: WarmCli, folder: Path, seed: int = 0, port: int | None = None) -> None:
        self._cli, self._folder, self._chance = cli, folder, random.Random(seed)
        self._run = folder / "runs" / "r"
        self._number = 0
        self._engine = ["--port", str(port)]
        if port is None:
            self._engine = ["--engine", chaos_command(shm=True), "--num-engines", "1", "--num-envs", "2"]
        self.seen: Counter[str] = Counter()
        self.steps = -1  # of the newest checkpoint, -1 before the first one

    def kill_once(self) -> None:
        """Starts or resumes the run, and kills it.

        Raises:
            AssertionError: it did not begin, or what it has left does not load.
        """
        run = self._start(10_000_000)
        if self._chance.random() < 0.25:
            wait = self._chance.uniform(0.0, 1.5)  # while it loads, or soon after
        else:
            self._wait_for_a_newer_one(run)
            wait = self._chance.uniform(0.0, 0.25)
        ended = run.ended.wait(wait)
        assert not ended, f"it ended by itself, with {run.code}:\n{run.text}"
        run.signal(signal.SIGKILL)
        run.wait()
        assert "Traceback" not in run.text, run.text
        half = any(self._run.rglob(".half-*"))
        self._check()
        self.seen["before a checkpoint" if self.steps < 0 else "in a save" if half else "between two saves"] += 1

    def finish(self) -> None:
        """Stops the run by SIGTERM, and resumes it until its end."""
        run = self._start(10_000_000)
        self._wait_for_a_newer_one(run)
        run.signal(signal.SIGTERM)
        assert run.wait() == 143, run.text
        self._check()
        assert not list(self._run.rglob("*half-*"))
        last = self._start(self.steps + 200)
        assert last.wait() == 0, last.text

    def _start(self, timesteps: int) -> WarmProcess:
        self._number += 1
        how = ["--resume"] if self._run.exists() else []  # whatever was in it when the run was killed
        words = [*WORDS, *self._engine, "--timesteps", str(timesteps), *how]
        return self._cli.start(words, output=self._folder / f"{self._number}.txt", cwd=self._folder)

    def _wait_for_a_newer_one(self, run: WarmProcess) -> None:
        deadline = time.monotonic() + 60
        while self._newest() <= self.steps:
            assert not run.ended.is_set(), f"it ended with {run.code}:\n{run.text}"
            assert time.monotonic() < deadline, f"no checkpoint:\n{run.text}"
            time.sleep(0.005)

    def _newest(self) -> int:
        names = [path.name for path in self._run.glob("checkpoints/[0-9]*_steps")]
        return max((int(name.split("_")[1]) for name in names), default=-1)

    def _check(self) -> None:
        from stable_baselines3 import PPO

        from ue_rl.training.saving.checkpoints import CheckpointStore

        newest = CheckpointStore(self._run / "checkpoints").last
        if newest is None:
            assert self.steps < 0, f"after {self.steps} env-steps no checkpoint loads"
            return
        assert newest.env_steps == self._newest() >= self.steps, (newest.path, self.steps)
        PPO.load(newest.path / "model.zip", device="cpu")
        self.steps = newest.env_steps


def main() -> None:
    """Runs it and prints what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, WarmCli() as cli, Leftovers(Path(folder) / "tmp"):
        killer = Killer(cli, Path(folder), a.seed)
        for number in range(a.kills):
            try:
                killer.kill_once()
            except AssertionError as error:
                sys.exit(f"kill {number + 1} of {a.kills}: {error}")
        killer.finish()
    seconds = time.monotonic() - begun
    when = ", ".join(f"{count} {what}" for what, count in sorted(killer.seen.items()))
    print(
        f"{a.kills} kills in {seconds:.0f} s ({when}): always resumed, {killer.steps:,} env-steps at last; nothing left"
    )


if __name__ == "__main__":
    main()
