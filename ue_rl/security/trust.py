"""Models and pickles from files: with all that they can run where they are trusted, otherwise as data alone.

    with trusting():    the files are mine, or of somebody whom I would let run programs here

A file is trusted, too, where a checkpoint's signed manifest says that it was made here (ue_rl/security/origin.py).
"""

from __future__ import annotations

import base64
import inspect
import json
import logging
import pickle
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from ue_rl.errors import UntrustedFile
from ue_rl.security import pickles
from ue_rl.security.archives import check_zip
from ue_rl.security.origin import made_here
from ue_rl.security.pickles import load_data, wants_code

_SCHEDULES = ("lr_schedule", "exploration_schedule", "clip_range", "clip_range_vf")
_trusted: ContextVar[bool] = ContextVar("trusted", default=False)
_log = logging.getLogger(__name__)


@contextmanager
def trusting(trust: bool = True) -> Iterator[None]:
    """Within it files may run what they hold, as `--trust` says; with False nothing changes."""
    before = _trusted.set(trust or _trusted.get())
    try:
        yield
    finally:
        _trusted.reset(before)


def trusts_all() -> bool:
    """Are we within `trusting`? A process that is started to go on with the work is to be told."""
    return _trusted.get()


def is_trusted(path: Path) -> bool:
    """May this file run what it holds?"""
    return _trusted.get() or made_here(path)


def require_trust(what: str, made: bool = False) -> None:
    """To be called before something is read that is a program, whatever it holds.

    Args:
        made: it is known that it was made here.

    Raises:
        UntrustedFile: nobody said that it is trusted.
    """
    if not (made or _trusted.get()):
        raise wants_code(what)


def refuse_links(*folders: Path) -> None:
    """To be called before files in these folders, which may be a stranger's, are written: a link leads elsewhere.

    Raises:
        UntrustedFile: there is one, and nobody said that it is trusted.
    """
    for each in (path for folder in folders if folder.is_dir() for path in folder.iterdir()):
        if each.is_symlink() and not _trusted.get():
            what, cure = f"what would be written to {each} would go elsewhere", "delete the link, or give --trust"
            raise UntrustedFile(what, expected="no links", got=str(each.readlink()), cure=cure)


def load_pickle(path: Path) -> Any:
    """What a pickle holds; of unknown origin: if it is data. Raises UntrustedFile, and whatever a broken one raises."""
    data = path.read_bytes()
    if is_trusted(path):
        return pickle.loads(data)
    with _named(path):
        return load_data(data)


def load_model(kind: Any, path: Path, **load: Any) -> Any:
    """`kind.load(path, **load)` of Stable-Baselines3; of unknown origin: without running anything.

    Its own parameter custom_objects takes the place of what it would unpickle.

    Raises:
        UntrustedFile: it holds more than data. Also what `load` and a broken file raise.
    """
    if is_trusted(path):
        return kind.load(path, **load)
    with _named(path), path.open("rb") as file:
        check_zip(file, path.name)
        with zipfile.ZipFile(file) as archive:
            data = json.loads(archive.read("data"))
        held = {name: value[":serialized:"] for name, value in data.items() if _is_pickle(value)}
        objects = {name: _held(kind, name, base64.b64decode(text)) for name, text in held.items()}
        if data.get("tensorboard_log") is not None:
            objects["tensorboard_log"] = None  # a folder that learn() would write into
        objects |= load.pop("custom_objects", None) or {}
        file.seek(0)
        return kind.load(file, custom_objects=objects, **load)


def _held(kind: Any, name: str, data: bytes) -> Any:
    """An attribute of a model; of a schedule that was saved as a function (by SB3 before 2.7), the default."""
    try:
        return load_data(data)
    except UntrustedFile as error:
        if name not in _SCHEDULES or not str(error.got).startswith("cloudpickle."):
            raise
    default = inspect.signature(kind.__init__).parameters.get(name)  # load() makes the others anew
    if default is not None:
        _log.warning("the model's %s is a function, which is not run: it is %s, the default", name, default.default)
    return None if default is None else default.default


def load_policy(kind: Any, path: Path) -> Any:
    """`kind.load(path, device="cpu")` of a policy that was saved alone; as `load_model`."""
    if is_trusted(path):
        return kind.load(str(path), device="cpu")
    import torch

    with _named(path), path.open("rb") as file:
        check_zip(file, path.name)
        saved = torch.load(file, map_location="cpu", weights_only=False, pickle_module=pickles)
    policy = kind(**saved["data"])
    policy.load_state_dict(saved["state_dict"])
    return policy


def _is_pickle(value: Any) -> bool:
    return isinstance(value, dict) and ":serialized:" in value


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """An UntrustedFile says which file it is."""
    try:
        yield
    except UntrustedFile as error:
        error.field = error.field or str(path)
        raise
