"""The stage of the chaos suite: a real `ue-rl train` process, engines as processes, and what must hold afterwards."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.warm_cli import WarmCli, WarmProcess
from ue_rl.devtools.testing import ChaosEngine, Leftovers, Record, chaos_command

NUM_ENVS = 2
# A rollout is 32 vec-steps: a run of 512 env-steps with 2 engines of 2 envs has four of them.
LIGHT = ["--n-steps", "32", "--batch-size", "64", "--set", "n_epochs=1", "--net-arch", "8", "--device", "cpu"]
LIGHT += ["--threads", "1", "--no-export", "--eval-episodes", "0"]
RUN = "r"

if sys.platform == "win32":
    collect_ignore_glob = ["*"]


class Stage:
    """One case's folder, its trainer and its engines.

    Args:
        carrier: "tcp" or "shm".

    Attributes:
        runs: the folder of runs. run: that of the run. trainer: the process that was started last.
    """

    def __init__(self, cli: WarmCli, folder: Path, carrier: str) -> None:
        self.cli, self.folder, self.carrier = cli, folder, carrier
        self.runs = folder / "runs"
        self.run = self.runs / RUN
        self.trainer: WarmProcess | None = None
        self._outputs = 0

    # -- trainers

    def start(self, *words: Any, **options: Any) -> WarmProcess:
        """`ue-rl train` with a light algorithm; a later word wins."""
        self._outputs += 1
        output = self.folder / f"trainer-{self._outputs}.txt"
        common = ["--log-dir", "runs", "--run-id", RUN, "--transport", self.carrier, "--timesteps", "512"]
        everything = ["train", *LIGHT, *common, *words]
        self.trainer = self.cli.start(everything, output=output, cwd=self.folder, **options)
        return self.trainer

    def launch(self, *words: Any, engines: int = 2, num_envs: int = NUM_ENVS, **engine: Any) -> WarmProcess:
        """The same with engines that it starts itself; `engine` are the options of each."""
        options = {"record": self.folder / "record-{engine}", "shm": self.carrier == "shm", **engine}
        command = chaos_command(**options)
        return self.start("--engine", command, "--num-engines", engines, "--num-envs", num_envs, *words)

    def dial(self, url: str, *words: Any) -> WarmProcess:
        """The same with an engine that runs already."""
        return self.start("--port", url.rpartition(":")[2], *words)

    # -- engines

    def engine(self, **options: Any) -> ChaosEngine:
        """One that the test starts; close it."""
        return ChaosEngine(shm=self.carrier == "shm", **{"record": self.folder / "record-0", **options})

    def record(self, engine: int = 0, num_envs: int = NUM_ENVS) -> Record:
        """What engine number `engine` has done; waits until it was started for the first time."""
        path = self.folder / f"record-{engine}"
        _until(lambda: path.exists() and path.stat().st_size > 0, f"{path.name} never began", self.trainer)
        return Record(path, num_envs)

    def wait_for_steps(self, steps: int, engine: int = 0, num_envs: int = NUM_ENVS) -> Record:
        """Waits until that engine has made so many env-steps in all its lives."""
        record = self.record(engine, num_envs)
        _until(lambda: record.total >= steps, f"fewer than {steps} steps", self.trainer)
        return record

    def signal_engine(self, number: int, engine: int = 0, num_envs: int = NUM_ENVS) -> int:
        """Sends it a signal; its process id."""
        pid = int(self.record(engine, num_envs).pid[0])
        os.kill(pid, number)
        return pid

    # -- afterwards

    def newest_checkpoint(self, running: bool = False) -> Any:
        """The newest that loads, with SB3 too.

        Args:
            running: the trainer runs or was killed, and may have begun another one.

        Raises:
            AssertionError: there is none, or something half written lies about.
        """
        from stable_baselines3 import PPO

        from ue_rl.training.saving.checkpoints import CheckpointStore

        halves = [path for path in self.run.rglob("*half-*")]
        assert running or halves == []
        newest = CheckpointStore(self.run / "checkpoints").last
        assert newest is not None
        model = PPO.load(newest.path / "model.zip", device="cpu")
        assert model.policy is not None
        return newest

    def saved_steps(self) -> int:
        """env-steps of the model that the run ended with, or was stopped with."""
        from stable_baselines3 import PPO

        return int(PPO.load(self.run / "model.zip", device="cpu").num_timesteps)

    def resume(self, *words: Any, timesteps: int = 1024, **engine: Any) -> WarmProcess:
        """Goes on with healthy engines until the end, with exit code 0."""
        run = self.launch("--resume", "--timesteps", timesteps, *words, **engine)
        assert run.wait(60) == 0, run.text
        assert self.saved_steps() >= timesteps
        return run


def _until(condition: Callable[[], bool], what: str, trainer: WarmProcess | None, timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        over = trainer is not None and trainer.ended.is_set()
        if time.monotonic() > deadline or (over and not condition()):
            raise AssertionError(f"{what}:\n{trainer.text if trainer else ''}")
        time.sleep(0.002)


# For what does not depend on how observations travel: starting, the run's folder, and what a signal leaves of it.
over_tcp = pytest.mark.parametrize("stage", ["tcp"], indirect=True)
over_shm = pytest.mark.parametrize("stage", ["shm"], indirect=True)
# For what a carrier's own tests show too: over the other one it is exhaustive.
_other = pytest.mark.exhaustive
shm_in_each_run = pytest.mark.parametrize("stage", ["shm", pytest.param("tcp", marks=_other)], indirect=True)


@pytest.fixture(params=["tcp", "shm"])
def stage(
    warm_cli: WarmCli, ue_rl_leftovers: Leftovers, tmp_path: Path, request: pytest.FixtureRequest, slack: float
) -> Iterator[Stage]:
    """Over both carriers; at the end nothing may be left of what was started."""
    ue_rl_leftovers.within *= slack  # an engine that ignores SIGTERM takes three seconds of it
    made = Stage(warm_cli, tmp_path, request.param)
    yield made
    if made.trainer is not None and not made.trainer.ended.is_set():
        made.trainer.signal(signal.SIGKILL)
        pytest.fail(f"the trainer still ran:\n{made.trainer.text}")
