"""One directory per run: its paths, and how a run is created, found and written.

config.yaml  model.zip  model.onnx  vecnormalize.pkl  replay_buffer.pkl  curriculum.json  handshake.txt
opponents/  self_play.csv  checkpoints/  episodes.csv  progress*.csv  curves.png  run.log
events.out.tfevents.* (TensorBoard)
"""

from __future__ import annotations

import itertools
import logging
import shutil
from pathlib import Path
from typing import Any

import yaml

from ue_rl.errors import ConfigurationError

HANDSHAKE = "handshake.txt"
_log = logging.getLogger(__name__)


class RunDirectory:
    """The paths of one run.

    Args:
        path: its folder.

    Attributes:
        replaced: where the run stands aside that this one overwrites; None where there is none, or no longer.
    """

    replaced: Path | None = None

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.model = path / "model.zip"
        self.onnx = path / "model.onnx"
        self.normalize = path / "vecnormalize.pkl"
        self.replay = path / "replay_buffer.pkl"
        self.curriculum = path / "curriculum.json"
        self.handshake = path / HANDSHAKE
        self.checkpoints = path / "checkpoints"
        self.episodes = path / "episodes.csv"
        self.curves = path / "curves.png"
        self.log = path / "run.log"

    @classmethod
    def create(cls, log_dir: Path, run_id: str | None, name: str, force: bool) -> RunDirectory:
        """A fresh directory `run_id`, or `name` with the next free number.

        A run that is overwritten is renamed: `remove_replaced` deletes it, `discard` puts it back.

        Raises:
            ConfigurationError: the run exists already and `force` is off, or the folder cannot be written.
        """
        if run_id is None:
            ends = [path.name.removeprefix(f"{name}-") for path in log_dir.glob(f"{name}-*")]
            run_id = f"{name}-{max((int(end) for end in ends if end.isdigit()), default=0) + 1}"
        run = cls(log_dir / run_id)
        occupied = run.path.exists() and any(run.path.iterdir())
        if occupied:
            if not force:
                raise ConfigurationError(
                    f"the run {run.path} exists already", field="run_id",
                    cure="continue it with --resume, overwrite it with --force, or choose another --run-id",
                )  # fmt: skip
            if not run.config.exists():
                raise ConfigurationError(
                    f"{run.path} is not a run: it has no config.yaml", field="run_id",
                    cure="--force only overwrites runs; choose another --run-id",
                )  # fmt: skip
        try:
            if occupied:
                names = (run.path.with_name(f"{run_id}.{number}") for number in itertools.count(1))
                run.replaced = run.path.rename(next(path for path in names if not path.exists()))
            run.checkpoints.mkdir(parents=True)
        except OSError as error:
            if run.replaced:
                run.discard()
            raise ConfigurationError(f"{run.path} cannot be written", field="log_dir", got=str(error)) from error
        return run

    @classmethod
    def existing(cls, log_dir: Path, run_id: str | None, name: str) -> RunDirectory:
        """A run to continue: `run_id`, or the newest of those whose folder begins with `name`.

        Raises:
            ConfigurationError: there is none, or it has no model yet.
        """
        if run_id is None:
            configs = list(log_dir.glob(f"{name}-*/config.yaml"))
            if not configs:
                raise ConfigurationError(
                    f"no run of {name} in {log_dir} to resume", field="run_id",
                    cure="name one with --run-id, or start one without --resume",
                )  # fmt: skip
            run = cls(max(configs, key=lambda path: path.stat().st_mtime).parent)
        else:
            run = cls(log_dir / run_id)
        if not run.config.exists() or not run.model.exists():
            raise ConfigurationError(
                f"{run.path} holds no model to resume", field="run_id",
                cure="check --log-dir and --run-id, or start anew with --force",
            )  # fmt: skip
        return run

    def remove_replaced(self) -> None:
        """Deletes the run that this one overwrites: this one has a model of its own now."""
        if self.replaced:
            shutil.rmtree(self.replaced, ignore_errors=True)
            if self.replaced.exists():
                _log.warning("the run that was overwritten could not be deleted: %s", self.replaced)
            self.replaced = None

    def discard(self) -> None:
        """Deletes this run, and puts back the one that it was to overwrite."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self.replaced:
            try:
                self.replaced.rename(self.path)
            except OSError as error:
                _log.error("the run before is kept in %s; it could not be renamed back: %s", self.replaced, error)
            self.replaced = None

    def read_config(self) -> dict[str, Any]:
        """The options that the run was started with."""
        return dict(yaml.safe_load(self.config.read_text("utf-8")))
