"""One directory per run: its paths, and how a run is created, found and written.

config.yaml  model.zip  model.onnx  vecnormalize.pkl  replay_buffer.pkl  curriculum.json  handshake.txt
best_model.zip, .onnx, .json  best_model_vecnormalize.pkl  evaluations.csv  videos/
checkpoints/  engines/  opponents/  self_play.csv  episodes.csv  progress.csv  curves.png  run.log  run.lock
outcome.json  events.out.tfevents.* (TensorBoard)
"""

from __future__ import annotations

import errno
import functools
import itertools
import logging
import os
import re
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.handshake import decode_handshake
from ue_rl.system.durable import HALF, sync_folder, write_whole
from ue_rl.system.errors import ConfigurationError, words_of
from ue_rl.system.files import require_file
from ue_rl.training.config import FORMAT, ORIGIN, read_config, read_whole_config, signed_yaml
from ue_rl.training.options import ROWS, TrainOptions
from ue_rl.training.saving.checkpoints import CheckpointStore
from ue_rl.training.saving.lock import HOLDER, LOCK, RunLock

HANDSHAKE = "handshake.txt"
REPLACES = "run.replaces"  # the name of the folder that `replaced` is
_NO_NAME = re.compile(r'[/\\:*?"<>|]|^\s|^\.|\s$|^$')
_log = logging.getLogger(__name__)


class RunDirectory:
    """The paths of one run.

    Args:
        path: its folder.

    Attributes:
        replaced: where the run stands aside that this one overwrites, until this one has saved a model; otherwise None.
        lock: of the run.
    """

    replaced: Path | None = None

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.model = path / "model.zip"
        self.onnx = path / "model.onnx"
        self.best = path / "best_model.zip"
        self.normalize = path / "vecnormalize.pkl"
        self.replay = path / "replay_buffer.pkl"
        self.curriculum = path / "curriculum.json"
        self.handshake = path / HANDSHAKE
        self.checkpoints = path / "checkpoints"
        self.engines = path / "engines"
        self.episodes = path / "episodes.csv"
        self.curves = path / "curves.png"
        self.log = path / "run.log"
        self.outcome = path / "outcome.json"

    @functools.cached_property
    def lock(self) -> RunLock:  # noqa: D102 - see above
        return RunLock(self.path)

    @classmethod
    def create(
        cls, log_dir: Path, run_id: str | None, name: str, force: bool, options: TrainOptions | None = None
    ) -> RunDirectory:
        """A fresh directory `run_id`, or `name` with the next free number.

        A run that is overwritten is renamed: `remove_replaced` deletes it, `discard` puts it back. However many
        processes do so at the same moment, each has a folder of its own, or is refused. The run's lock is held from the
        moment on when it has its name (on Windows it is not: folders with open files are not renamed there).

        Args:
            options: written into its config.yaml at once: a run that is killed before it saves can be resumed.

        Raises:
            ConfigurationError: the run exists already and `force` is off, another process writes it, `run_id` is no
                name, or the folder cannot be written.
        """
        half = cls(log_dir / f"{HALF}{secrets.token_hex(8)}")
        if run_id is None:
            run = half
        else:
            run = cls(log_dir / checked_id(run_id))
        try:
            half.checkpoints.mkdir(parents=True)
            if options is not None:
                half.write_config(options)
            if os.name != "nt":
                half.lock.__enter__()
            if run_id is not None:
                if run.path.exists():
                    run._make_room(force)
                if run.replaced is not None:
                    (half.path / REPLACES).write_text(run.replaced.name, "utf-8")
                if not cls.takes_name(half.path, run.path):
                    raise run._begun_elsewhere()
            else:
                ends = [path.name.removeprefix(f"{name}-") for path in log_dir.glob(f"{name}-*")]
                first = max((int(end) for end in ends if end.isdigit()), default=0) + 1
                paths = (log_dir / f"{name}-{number}" for number in itertools.count(first))
                run = cls(next(path for path in paths if cls.takes_name(half.path, path)))
        except BaseException as error:
            half.lock.__exit__(None, None, None)
            shutil.rmtree(half.path, ignore_errors=True)
            run._put_back()
            if isinstance(error, OSError):
                if run_id is None:
                    path = log_dir
                else:
                    path = run.path
                reason = words_of(error)
                raise ConfigurationError(f"{path} cannot be written", field="log_dir", got=reason) from error
            raise
        if half.lock.held:
            run.lock = half.lock
            run.lock.folder = run.path
        with suppress(OSError):
            sync_folder(log_dir)
        return run

    def _exists(self) -> ConfigurationError:
        cure = "continue it with --resume, overwrite it with --force, or choose another --run-id"
        return ConfigurationError(f"the run {self.path} exists already", field="run_id", cure=cure)

    def _begun_elsewhere(self) -> ConfigurationError:
        cure = "choose another --run-id"
        return ConfigurationError(f"another process has just begun the run {self.path}", field="run_id", cure=cure)

    def _make_room(self, force: bool) -> None:
        """Renames what has the name of this run; refused where a process writes it."""
        begun = not self.never_begun()
        if begun and not force:
            raise self._exists()
        if begun:
            self.check_is_run("--force only overwrites runs; choose another --run-id")
        with RunLock(self.path) as lock:
            if begun == self.never_begun():  # it has been made anew
                raise self._begun_elsewhere()
            if os.name == "nt":  # renames no folder with open files, so none that another process writes
                lock.__exit__(None, None, None)
            before = self._replaced_before()  # what was to overwrite it was killed before it saved a model
            names = (self.path.with_name(f"{self.path.name}.{number}") for number in itertools.count(1))
            if begun and not before:
                aside = next(path for path in names if not path.exists())
            else:
                aside = self._hidden
            self.path.rename(aside)
            (aside / HOLDER).unlink(missing_ok=True)
        self.replaced = before
        if begun and not before:
            self.replaced = aside
        else:
            shutil.rmtree(aside, ignore_errors=True)

    def _replaced_before(self) -> Path | None:
        """What stands aside for this run since another process, which was killed."""
        try:
            name = checked_id((self.path / REPLACES).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        path = self.path.with_name(name)
        if path in self.set_aside():
            return path
        return None

    @property
    def _hidden(self) -> Path:
        return self.path.with_name(f"{HALF}{self.path.name}-{secrets.token_hex(4)}")

    @classmethod
    def existing(cls, log_dir: Path, run_id: str | None, name: str) -> RunDirectory:
        """A run to continue: `run_id`, or the newest of those that are called `name`-NUMBER.

        Raises:
            ConfigurationError: there is none, or its folder is no run.
        """
        if run_id is None:
            found = [*log_dir.glob(f"{name}-*/config.yaml"), *log_dir.glob(f"{name}-*/checkpoints/*_steps")]
            folders = {log_dir / path.relative_to(log_dir).parts[0]: path.stat().st_mtime for path in reversed(found)}
            folders = {path: at for path, at in folders.items() if path.name.removeprefix(f"{name}-").isdigit()}
            if not folders:
                runs = sorted(log_dir.glob("*/config.yaml"), key=lambda path: path.stat().st_mtime)
                newest = ""
                if runs:
                    newest = f", such as {runs[-1].parent.name}, the newest here"
                cure = f"name one with --run-id{newest}; say which engine, with --port or a URL; or leave out --resume"
                raise ConfigurationError(f"no run of {name} in {log_dir} to resume", field="run_id", cure=cure)
            return cls(max(folders, key=lambda path: folders[path]))
        run = cls(log_dir / checked_id(run_id))
        aside = run.set_aside()
        if not run.path.is_dir():
            raise ConfigurationError(
                f"there is no run {run.path}",
                field="run_id",
                cure=f"--force had renamed it to {aside[0].name}: resume that one with --run-id {aside[0].name}"
                if aside
                else "check --log-dir and --run-id, or start it without --resume",
            )
        if run.never_begun():
            what = f"the run {run.path} was ended before it began: it has no config.yaml to resume with"
            raise ConfigurationError(what, field="run_id", cure="start it again, without --resume")
        run.check_is_run("check --log-dir and --run-id, or start anew with --force")
        run.replaced = run._replaced_before()
        return run

    def set_aside(self) -> list[Path]:
        """Runs of this name that --force renamed and that nobody deleted or put back, the newest first."""
        found = [path for path in self.path.parent.glob("*") if path.name.startswith(f"{self.path.name}.")]
        numbered = [path for path in found if path.name[len(self.path.name) + 1 :].isdigit() and _no_run(path) is None]
        return sorted(numbered, key=lambda path: int(path.name.rpartition(".")[2]), reverse=True)

    @staticmethod
    def takes_name(half: Path, path: Path) -> bool:
        """Renames a complete folder, unless there is one of that name: of several processes one has it."""
        try:
            half.rename(path)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            return False
        return True

    def never_begun(self) -> bool:
        """Is it empty, or left by a run that ended before its config was written?"""
        ours = {"run.log", LOCK, HOLDER, REPLACES, "checkpoints", "engines"}
        if not self.path.is_dir():
            return False
        found = [entry for entry in self.path.iterdir() if not entry.name.startswith(HALF)]
        return all(entry.name in ours and not (entry.is_dir() and any(entry.iterdir())) for entry in found)

    def check_is_run(self, cure: str) -> None:
        """Raises ConfigurationError where the folder is somebody's, but not a run's, or one of a newer version."""
        error = _no_run(self.path)
        if error is not None:
            error.cure = error.cure or cure
            raise error

    def store(self, keep: int = 3) -> CheckpointStore:
        """Its checkpoints."""
        return CheckpointStore(self.checkpoints, keep, newest_only=(self.replay.name,))

    @property
    def saved_anything(self) -> bool:
        """Is there a checkpoint or a model, readable or not? A run without any is resumed from its start."""
        return bool(self.store()) or self.model.exists()

    def sweep(self) -> None:
        """Deletes what a killed process left half written. For who holds the run's lock."""
        self.store().sweep()
        for path in self.path.glob(f"{HALF}*"):
            if path.is_file():
                path.unlink(missing_ok=True)

    def remove_replaced(self) -> None:
        """Deletes the run that this one overwrites: this one has a model of its own now."""
        if self.replaced:
            shutil.rmtree(self.replaced, ignore_errors=True)
            if self.replaced.exists():
                _log.warning("the run that was overwritten could not be deleted: %s", self.replaced)
            self.replaced = None
            (self.path / REPLACES).unlink(missing_ok=True)

    def discard(self) -> None:
        """Deletes this run, unless another process writes it, and puts back the one that it was to overwrite."""
        try:
            self.lock.__enter__()
        except ConfigurationError as error:
            if self.path.exists():
                _log.warning("%s is not deleted: %s", self.path, error.plain())
                return
        if os.name == "nt":
            self.lock.__exit__(None, None, None)
        gone = self._hidden
        try:  # at once: what another process makes in its place is not deleted
            self.path.rename(gone)
        except OSError:
            gone = self.path
        shutil.rmtree(gone, ignore_errors=True)
        self.lock.__exit__(None, None, None)
        self._put_back()

    def _put_back(self) -> None:
        if self.replaced:
            try:
                self.replaced.rename(self.path)
            except OSError as error:
                _log.error("the run before is kept in %s; it could not be renamed back: %s", self.replaced, error)
            self.replaced = None

    def read_config(self) -> dict[str, Any]:
        """The options that the run was started with. Where its config.yaml is cut or missing, a checkpoint's copy.

        Raises:
            ConfigurationError: config.yaml cannot be read, and there is no copy.
        """
        error: ConfigurationError | None = None
        config: dict[str, Any] = {}
        try:
            config = read_whole_config(self.config)
        except ConfigurationError as broken:
            if broken.field == "format":
                raise
            error = broken
        if "format" not in config:  # cut
            for checkpoint in self.store().newest_first():
                copy = checkpoint.file(self.config.name)
                if copy is not None:
                    _log.warning("%s is not whole: the options are those of checkpoint %s", self.config, checkpoint)
                    return read_config(copy)
            if error is not None:
                raise error
        for key in ("format", ORIGIN):
            config.pop(key, None)
        return config

    def write_config(self, options: TrainOptions) -> None:
        """Replaces config.yaml: what is in it is what the run does. Its format is last: one that was cut has none."""
        text = signed_yaml(options) + f"format: {FORMAT}\n"
        write_whole(self.config, lambda path: path.write_text(text, "utf-8"))


def read_handshake(path: Path) -> EnvSpec | None:
    """The engine's handshake that a run keeps as its `handshake`; None where there is none.

    Raises:
        HandshakeError: it is damaged. ConfigurationError: it is no file, or cannot be read.
    """
    try:
        require_file(path)
        return decode_handshake(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        got = words_of(error)
        raise ConfigurationError(
            f"{path} cannot be read",
            field="handshake",
            got=got,
            expected="the engine's handshake, as the run has written it",
            cure="move it away: a run goes on without it",
        ) from error


def checked_id(run_id: str) -> str:
    """`run_id`, where it is a name.

    Raises:
        ConfigurationError: it is a path, or hidden, or no name that every system takes.
    """
    if _NO_NAME.search(run_id) or not run_id.isprintable():
        raise ConfigurationError(
            "a run's id is the name of one folder",
            field="run_id",
            got=run_id,
            expected="letters, digits, spaces, dots and dashes, and no dot or space first",
            cure="say with --log-dir where runs are kept",
        )
    return run_id


def _no_run(path: Path) -> ConfigurationError | None:
    """None for a folder that ue_rl has made, otherwise what it lacks, or that it is of a newer version.

    That is told by its config.yaml, or a checkpoint's copy of it, which names every option that there was: those who
    write one to train with name a few.
    """
    try:
        config = RunDirectory(path).read_config()
    except ConfigurationError as error:
        if error.field == "format":
            return error
        reason = error.plain()
    else:
        missing = sorted(set(ROWS) - set(config))
        reason = "it has no folder checkpoints"
        if len(missing) > len(ROWS) / 2:
            reason = f"its config.yaml was not written by a run (it says nothing of {', '.join(missing[:3])})"
        elif (path / "checkpoints").is_dir():
            return None
    return ConfigurationError(f"{path} is not a run: {reason}", field="run_id")
