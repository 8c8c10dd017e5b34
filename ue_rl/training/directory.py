"""One directory per run: where everything of it lies, and who may write there.

config.yaml  model.zip  model.onnx  vecnormalize.pkl  replay_buffer.pkl  checkpoints/  episodes.csv
progress*.csv  curves.png  run.log  events.out.tfevents.* (TensorBoard)
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from ue_rl.errors import ConfigurationError


class RunDirectory:
    """The paths of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.model = path / "model.zip"
        self.onnx = path / "model.onnx"
        self.normalize = path / "vecnormalize.pkl"
        self.replay = path / "replay_buffer.pkl"
        self.checkpoints = path / "checkpoints"
        self.episodes = path / "episodes.csv"
        self.curves = path / "curves.png"
        self.log = path / "run.log"

    @classmethod
    def create(cls, log_dir: Path, run_id: str | None, task: str, force: bool) -> RunDirectory:
        """A fresh directory; without a run id the next free number.

        Raises:
            ConfigurationError: the run exists already and `force` is off, or the folder cannot be written.
        """
        if run_id is None:
            numbers = [int(p.name.rpartition("-")[2]) for p in log_dir.glob(f"{task}-*") if _numbered(p, task)]
            run_id = f"{task}-{max(numbers, default=0) + 1}"
        run = cls(log_dir / run_id)
        if run.path.exists() and any(run.path.iterdir()):
            if not force:
                raise ConfigurationError(
                    f"the run {run.path} exists already", fault="caller", field="run_id",
                    cure="continue it with --resume, overwrite it with --force, or choose another --run-id",
                )  # fmt: skip
            if not run.config.exists():
                raise ConfigurationError(
                    f"{run.path} is no run: it has no config.yaml", fault="caller", field="run_id",
                    cure="--force only overwrites runs; choose another --run-id",
                )  # fmt: skip
            shutil.rmtree(run.path)
        try:
            run.checkpoints.mkdir(parents=True)
        except OSError as error:
            raise ConfigurationError(
                f"{run.path} cannot be written", fault="caller", field="log_dir", got=str(error)
            ) from error
        return run

    @classmethod
    def existing(cls, log_dir: Path, run_id: str | None, task: str) -> RunDirectory:
        """A run to continue; without a run id the newest of the task.

        Raises:
            ConfigurationError: there is none, or it has no model yet.
        """
        if run_id is None:
            runs = sorted((p for p in log_dir.glob(f"{task}-*") if (p / "config.yaml").exists()), key=_changed)
            if not runs:
                raise ConfigurationError(
                    f"no run of {task} in {log_dir} to resume", fault="caller", field="run_id",
                    cure="name one with --run-id, or start one without --resume",
                )  # fmt: skip
            run = cls(runs[-1])
        else:
            run = cls(log_dir / run_id)
        if not run.config.exists() or not run.model.exists():
            raise ConfigurationError(
                f"{run.path} holds no model to resume", fault="caller", field="run_id",
                cure="check --log-dir and --run-id, or start anew with --force",
            )  # fmt: skip
        return run

    def read_config(self) -> dict[str, Any]:
        """The options that the run was started with."""
        return dict(yaml.safe_load(self.config.read_text("utf-8")))


def _numbered(path: Path, task: str) -> bool:
    return path.name[len(task) + 1 :].isdigit()


def _changed(path: Path) -> float:
    return (path / "config.yaml").stat().st_mtime
