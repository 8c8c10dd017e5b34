"""Checkpoints of a run: written whole or not at all, checked before they are believed, the newest few kept.

    FOLDER/
        0007_350000_steps/   model.zip ... and manifest.json: every file's size and SHA-256, env_steps, when, versions
        last                 the name of the newest one, for people and scripts
        .half-*              half written or half deleted: what a killed process leaves is swept before the next save

A folder without a leading dot is complete: it got its name after every byte of it was on the disk.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from ue_rl.system.durable import HALF, amount, free_space, rename, sync_file, sync_folder, write_whole
from ue_rl.system.errors import ConfigurationError, SaveFailed, UeRlError, printable, shorten
from ue_rl.system.files import require_file, sha256
from ue_rl.system.trust.origin import MANIFEST, MOST_BYTES, SIGNATURE, is_ours, signed
from ue_rl.system.versions import installed

LAST = "last"
OVER = "learning is over"  # the reason of a run's last checkpoint, where nothing has stopped it
_NAME = re.compile(r"(\d{4,})_(\d+)_steps")
_LIBRARIES = ("ue_rl", "numpy", "torch", "stable_baselines3", "sb3_contrib", "gymnasium")

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint on the disk.

    Attributes:
        path: its folder.
        number: counts the checkpoints of the run from 1; a greater one is newer.
        env_steps: of the run when it was taken.
        facts: what its writer returned, and `saved_at`, `versions`.
        ours: it was written by this user on this machine.
    """

    path: Path
    number: int
    env_steps: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    ours: bool = False

    def file(self, name: str) -> Path | None:
        """The path of the file `name` in it ("model.zip"); None where it has none of that name."""
        path = self.path / name
        if path.is_file():
            return path
        return None

    def __str__(self) -> str:
        return self.path.name


class CheckpointStore:
    """The checkpoints in one folder, which need not exist yet. One process at a time may save (see RunLock).

    Args:
        folder: where they are.
        keep: how many are kept; older ones are deleted when a newer one is safe.
        newest_only: files that the newest one alone keeps, because they are large.
        free_space: the bytes that can still be written at a path; None where nobody knows.
    """

    def __init__(
        self,
        folder: Path,
        keep: int = 3,
        newest_only: tuple[str, ...] = (),
        free_space: Callable[[Path], int | None] = free_space,
    ) -> None:
        self.folder = folder
        self._newest_only = newest_only
        self.keep = max(1, keep)
        self._free_space = free_space
        self._little_room = False
        self._broken: set[Path] = set()  # of which it was said

    def save(self, env_steps: int, write: Callable[[Path], Mapping[str, object]]) -> Checkpoint:
        """Writes one checkpoint, and deletes those beyond `keep`.

        Args:
            env_steps: of the run now.
            write: fills the empty folder that it is given, and returns facts for the manifest (what JSON can hold).

        Raises:
            SaveFailed: it could not be written: nothing of it is left, the ones before are untouched. Errors of ue_rl
                that `write` raises, and what is no Exception (KeyboardInterrupt), pass as they are, as clean.
        """
        at: Path | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.sweep()
            number = 1 + max((number for number, _, _ in self._entries()), default=0)
            path = self.folder / f"{number:04d}_{env_steps}_steps"
            at = self.folder / f"{HALF}{path.name}"
            at.mkdir()
            facts = write(at)
            files = _synced(at)
            for name in self._newest_only:
                if name in files:
                    files[name]["newest_only"] = True
            manifest = signed({**facts, **_header(number, env_steps), "files": files})
            (at / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True), "utf-8")
            sync_file(at / MANIFEST)
            sync_folder(at)
            rename(at, path)
            at = path
            sync_folder(self.folder)
        except BaseException as error:
            needed = 0
            if at:
                needed = _size(at)
            self._delete(at)
            if isinstance(error, UeRlError) or not isinstance(error, Exception):
                raise
            raise self._failure(env_steps, error, needed) from error
        self._point_at(path)
        self._prune()
        self._look_for_room(path)
        return Checkpoint(path, number, env_steps, _facts(manifest), SIGNATURE in manifest)

    def newest_first(self) -> Iterator[Checkpoint]:
        """Those whose every file has the size and SHA-256 of its manifest; a broken one is logged, once, and left out.

        Each is checked when it is asked for: the first costs one reading of the newest one.
        """
        for number, env_steps, path in sorted(self._entries(), reverse=True):
            try:
                manifest = _manifest(path, env_steps)
                _verify(path, manifest)
            except (OSError, ValueError) as error:
                if path not in self._broken:
                    self._broken.add(path)
                    _log.warning("checkpoint %s is broken and passed over: %s", path, error)
                continue
            yield Checkpoint(path, number, env_steps, _facts(manifest), is_ours(manifest))

    def newest_that_loads(self, load: Callable[[Checkpoint], T]) -> tuple[Checkpoint, T] | None:
        """The newest checkpoint that `load` does not fail for, and what it returned; None where there is none at all.

        Raises:
            ConfigurationError: none loads. Also what `load` raises as such.
        """
        broken: Exception | None = None
        others = ""
        for checkpoint in self.newest_first():
            try:
                return checkpoint, load(checkpoint)
            except ConfigurationError:
                raise
            except Exception as error:  # noqa: BLE001 - pickles raise anything
                found = _other_versions(checkpoint)
                if broken is None:  # the newest one is that which is wanted
                    broken = error
                    others = found
                remark = ""
                if found:
                    remark = f"; {found}"
                why = f"{type(error).__name__}: {error}" + remark
                _log.warning("checkpoint %s does not load (%s)", checkpoint, why)
        if not self:
            return None
        cure = "move them away to begin anew, or go back to the versions that they were saved with"
        if others:
            cure += f": {others}"
        raise ConfigurationError(f"none of the checkpoints in {self.folder} loads", got=broken, cure=cure) from broken

    @property
    def last(self) -> Checkpoint | None:
        """The newest good one; None where there is none."""
        return next(self.newest_first(), None)

    @property
    def env_steps(self) -> int:
        """Of the newest one, good or not; 0 without any. Its files are not read."""
        return max(self._entries(), default=(0, 0))[1]

    def __bool__(self) -> bool:
        """Is there any complete checkpoint? Its files are not read."""
        return bool(self._entries())

    def sweep(self) -> None:
        """Deletes what a killed process left half written or half deleted. For the process that saves alone."""
        for path in self.folder.glob(f"{HALF}*"):
            self._delete(path)

    def _look_for_room(self, path: Path) -> None:
        """Warns, once for each time that it begins, where the disk has no room for two more checkpoints like `path`."""
        free = self._free_space(self.folder)
        size = _size(path)
        little = free is not None and free < 2 * size
        if free is not None and little and not self._little_room:
            _log.warning(
                "only %s are free at %s, and a checkpoint takes %s: free some space, or keep fewer (--keep %d now), "
                "before saving fails",
                amount(free),
                self.folder,
                amount(size),
                self.keep,
            )
        self._little_room = little

    def _entries(self) -> list[tuple[int, int, Path]]:
        """(number, env_steps, path) of every complete one, good or not."""
        try:
            paths = list(self.folder.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = ((_NAME.fullmatch(path.name), path) for path in paths)
        return [(int(match[1]), int(match[2]), path) for match, path in found if match and path.is_dir()]

    def _point_at(self, path: Path) -> None:
        """`last` is a convenience: without it the newest is found by its number."""
        try:
            write_whole(self.folder / LAST, lambda half: half.write_text(f"{path.name}\n", "utf-8"))
        except OSError as error:
            _log.warning("%s could not be written: %s", self.folder / LAST, error)

    def _prune(self) -> None:
        """Deletes those older than the newest `keep` whole ones, and of all but the newest what it alone keeps."""
        kept = 0
        for _, env_steps, path in sorted(self._entries(), reverse=True):
            if kept >= self.keep:
                self._delete(path)
            elif _looks_whole(path, env_steps):
                if kept:
                    names = self._newest_only
                else:
                    names = ()
                for name in names:
                    self._delete(path / name)
                kept += 1

    def _delete(self, path: Path | None) -> None:
        """Renamed first: what is deleted in part never looks like a checkpoint."""
        if path is None or not path.exists():
            return
        try:
            if not path.name.startswith(HALF):
                half = path.with_name(f"{HALF}{path.name}")
                rename(path, half)
                path = half
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        except OSError as error:
            _log.warning("%s could not be deleted: %s", path, error)

    def _failure(self, env_steps: int, error: Exception, written: int) -> SaveFailed:
        newest = max(self._entries(), default=None)
        last_size = 0
        if newest:
            last_size = _size(newest[2])
        needed = max(written, last_size)
        if self.folder.exists():
            place = self.folder
        else:
            place = self.folder.parent
        free = self._free_space(place)
        room = ""
        if free is not None:
            room = f"; {amount(free)} are free at {self.folder}"
        if room and needed:
            room += f", a checkpoint takes {amount(needed)} or more"
        kept = ""
        if newest:
            kept = f"; {newest[2].name} is kept"
        reason = f"{type(error).__name__}: {error}"
        what = f"the checkpoint at {env_steps} env-steps could not be written: {reason}{room}{kept}"
        return SaveFailed(what, cure="free some space, or check the folder's permissions")


def _header(number: int, env_steps: int) -> dict[str, object]:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return {
        "number": number,
        "env_steps": env_steps,
        "saved_at": now,
        "versions": _versions(),
    }


def _other_versions(checkpoint: Checkpoint) -> str:
    """`it was saved with numpy 2.4.0 and is read with numpy 1.26.4`; "" where nothing differs, or nobody knows."""
    saved = checkpoint.facts.get("versions")
    if not isinstance(saved, Mapping):
        return ""
    here = _versions()
    differ = [name for name, version in saved.items() if here.get(name) != version]
    if not differ:
        return ""
    then = ", ".join(f"{name} {saved[name]}" for name in differ)
    now = ", ".join(f"{name} {here[name]}" if name in here else f"no {name}" for name in differ)
    return printable(f"it was saved with {then}, and is read with {now}")


def _versions() -> dict[str, str]:
    return {"python": platform.python_version()} | installed(*_LIBRARIES)


def _facts(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in manifest.items() if key not in ("files", "number", "env_steps", SIGNATURE)}


def _synced(folder: Path) -> dict[str, dict[str, object]]:
    """Brings every file and folder in `folder` to the disk; {"model.zip": {"bytes": .., "sha256": ..}}."""
    files: dict[str, dict[str, object]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            sync_folder(path)
            continue
        sync_file(path)
        files[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": sha256(path)}
    return files


def _manifest(path: Path, env_steps: int) -> dict[str, Any]:
    """Raises OSError or ValueError where it cannot be read or is not this folder's."""
    try:
        require_file(path / MANIFEST)
        if (path / MANIFEST).stat().st_size > MOST_BYTES:
            raise ValueError("its manifest is too large to be one")
        manifest = json.loads((path / MANIFEST).read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError("it has no manifest") from None
    except RecursionError:
        raise ValueError("its manifest is nested too deeply to be one") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise ValueError("its manifest lists no files")
    if manifest.get("env_steps") != env_steps:
        raise ValueError(f"its manifest says {manifest.get('env_steps')} env-steps")
    for name, facts in manifest["files"].items():
        if not isinstance(facts, dict):
            raise ValueError(f"its manifest says nothing of {name}")
        try:
            _require_inside(path, name)
            require_file(path / name)
            size = (path / name).stat().st_size
        except FileNotFoundError:
            if facts.get("newest_only"):
                continue
            raise ValueError(f"{name} is missing") from None
        if size != facts.get("bytes"):
            raise ValueError(f"{name} has {size} bytes instead of {facts.get('bytes')}")
    return manifest


def _require_inside(folder: Path, name: str) -> None:
    """Raises ValueError where the file that a manifest names is, or may be, somewhere else."""
    parts = PurePosixPath(name).parts
    if not parts or PurePosixPath(name).is_absolute() or ".." in parts or "\\" in name or ":" in parts[0]:
        raise ValueError(f"its manifest names a file outside of it, {shorten(name)}")
    at = folder
    for part in parts:
        at /= part
        if at.is_symlink():
            raise ValueError(f"{name} is a link")


def _looks_whole(path: Path, env_steps: int) -> bool:
    """Has every file its size? Quick, without reading them."""
    try:
        _manifest(path, env_steps)
    except (OSError, ValueError):
        return False
    return True


def _verify(path: Path, manifest: Mapping[str, Any]) -> None:
    """Raises OSError or ValueError where a file is not what it was."""
    for name, facts in manifest["files"].items():
        if facts.get("newest_only") and not (path / name).exists():
            continue
        if sha256(path / name) != facts.get("sha256"):
            raise ValueError(f"{name} has changed since it was saved: its SHA-256 differs")


def _size(path: Path) -> int:
    """Bytes of all files in `path`; 0 where it is gone."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total
