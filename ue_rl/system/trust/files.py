"""Models and pickles from files: with all that they can run where they are trusted, otherwise as data alone.

    with trusting():    the files are mine, or of somebody whom I would let run programs here

A file is trusted, too, where a checkpoint's signed manifest says that it was made here (ue_rl/system/trust/origin.py).
"""

from __future__ import annotations

import base64
import inspect
import io
import json
import logging
import pickle
import shutil
import tempfile
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from ue_rl.system.errors import UntrustedFile
from ue_rl.system.files import require_file
from ue_rl.system.trust import pickles
from ue_rl.system.trust.archives import check_zip
from ue_rl.system.trust.origin import MANIFEST, made_here
from ue_rl.system.trust.pickles import TRUST, load_data, of_another_version, refuse_attack, wants_code
from ue_rl.system.trust.schedules import known_schedule

_SCHEDULES = ("learning_rate", "lr_schedule", "exploration_schedule", "clip_range", "clip_range_vf")
_LOG = "tensorboard_log"  # a folder that learn() would write into
_trusted: ContextVar[bool] = ContextVar("trusted", default=False)
_log = logging.getLogger(__name__)


@contextmanager
def trusting(trust: bool = True) -> Iterator[None]:
    """Within it files may run what they hold, as `--trust` says; with False nothing changes."""
    trusted = trust
    if not trusted:
        trusted = _trusted.get()
    before = _trusted.set(trusted)
    try:
        yield
    finally:
        _trusted.reset(before)


def trusts_all() -> bool:
    """Are we within `trusting`? A process that is started to go on with the work is to be told."""
    return _trusted.get()


def read(path: Path) -> tuple[bytes, bool]:
    """The bytes of a file, and whether they may run what they hold.

    It is read once: what is judged is what the caller loads, whatever takes the file's place meanwhile.

    Raises:
        OSError: it cannot be read, or is no ordinary file.
    """
    require_file(path)
    content = path.read_bytes()
    return content, _trusted.get() or made_here(path, content)


def require_trust(what: str, made: bool = False) -> None:
    """To be called before something is read that is a program, whatever it holds.

    Args:
        made: it is known that it was made here.

    Raises:
        UntrustedFile: nobody said that it is trusted.
    """
    if not (made or _trusted.get()):
        raise wants_code(what)


@contextmanager
def judged(folder: Path, what: str) -> Iterator[Path]:
    """A folder of programs, such as pickles, that may run: of one that was made here a copy that nobody else can reach.

    What is compared with the signed manifest is what is read, whatever takes the files' places meanwhile.

    Args:
        what: is named where it is refused.

    Raises:
        UntrustedFile: it was not made here, and nobody said that it is trusted.
    """
    if _trusted.get():
        yield folder
        return
    require_trust(what, made_here(folder))
    with tempfile.TemporaryDirectory(prefix="ue_rl-") as private:
        copied = Path(private, folder.name)
        shutil.copytree(folder, copied, symlinks=True)
        shutil.copyfile(folder.with_name(MANIFEST), copied.with_name(MANIFEST))
        require_trust(what, made_here(copied))
        yield copied


def refuse_links(*folders: Path) -> None:
    """To be called before files in these folders, which may be a stranger's, are written: a link leads elsewhere.

    Raises:
        UntrustedFile: there is one, and nobody said that it is trusted.
    """
    for each in (path for folder in folders if folder.is_dir() for path in folder.iterdir()):
        if each.is_symlink() and not _trusted.get():
            what = f"what would be written to {each} would go elsewhere"
            cure = f"delete the link, or {TRUST}"
            raise UntrustedFile(what, expected="no links", got=str(each.readlink()), cure=cure)


def load_pickle(path: Path) -> Any:
    """What a pickle holds; of unknown origin: if it is data. Raises UntrustedFile, and whatever a broken one raises."""
    content, trusted = read(path)
    if trusted:
        with _of_this_version():
            return pickle.loads(content)
    with _named(path):
        return load_data(content)


def load_model(kind: Any, path: Path, **load: Any) -> Any:
    """`kind.load(path, **load)` of Stable-Baselines3, to learn on; of unknown origin: without running anything.

    A policy that only acts is loaded by ue_rl.inference.export.models.load_sb3_model. SB3's own parameter
    custom_objects takes the place of what it would unpickle.

    Raises:
        UntrustedFile: it holds more than data. Also what `load` and a broken file raise.
    """
    content, trusted = read(path)
    if trusted:
        with _of_this_version():
            return kind.load(io.BytesIO(content), **load)
    with _named(path):
        check_zip(io.BytesIO(content), path.name)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            data = json.loads(archive.read("data"))
        objects: dict[str, Any] = {}
        for name, value in data.items():
            if not _is_pickle(value):
                continue
            with _named(path, name):
                if name in load or name == _LOG:
                    refuse_attack(_pickled(value))
                    objects[name] = load.get(name)  # what the caller gives takes its place
                else:
                    objects[name] = _held(kind, name, _pickled(value))
        if data.get(_LOG) is not None:
            objects[_LOG] = None
        objects |= load.pop("custom_objects", None) or {}
        return kind.load(io.BytesIO(content), custom_objects=objects, **load)


class SavedModel:
    """A model.zip of Stable-Baselines3 that is read, once, for its policy.

    Args:
        path: the file.

    Attributes:
        data: its attributes as JSON has them; of those that are pickled the pickle and a description.

    Raises:
        UntrustedFile: nobody trusts it, and it is an archive that attacks. Also what a broken file raises.
    """

    def __init__(self, path: Path) -> None:
        content, self._trusted = read(path)
        self._path = path
        with _named(path):
            if not self._trusted:
                check_zip(io.BytesIO(content), path.name)
        self._archive = zipfile.ZipFile(io.BytesIO(content))
        self.data: dict[str, Any] = json.loads(self._archive.read("data"))

    def attributes(self, wanted: Collection[str]) -> dict[str, Any]:
        """Those of these names that it has. What else is pickled, such as a schedule or a buffer's class, is left.

        Raises:
            UntrustedFile: nobody trusts the file, and one of them is no data, or another attacks.
        """
        found: dict[str, Any] = {}
        for name, value in self.data.items():
            if not _is_pickle(value):
                if name in wanted:
                    found[name] = value
            elif self._trusted:
                if name in wanted:
                    with _of_this_version():
                        found[name] = pickle.loads(_pickled(value))
            else:
                with _named(self._path, name):
                    if name in wanted:
                        found[name] = load_data(_pickled(value))
                    else:
                        refuse_attack(_pickled(value))
        return found

    def weights(self) -> dict[str, Any]:
        """Of its policy: name to tensor, on the CPU."""
        import torch

        file = io.BytesIO(self._archive.read("policy.pth"))
        return torch.load(file, map_location="cpu", weights_only=True)  # type: ignore[no-any-return]


def _held(kind: Any, name: str, data: bytes) -> Any:
    """An attribute of a model that learns on; of a schedule that is code, what it stands for or the default.

    SB3's documentation has schedules that are functions, SB3 before 2.7 saved its own so, and RL Zoo has a class.
    """
    try:
        return load_data(data)
    except UntrustedFile:
        if name not in _SCHEDULES:
            raise
    refuse_attack(data)
    known = known_schedule(data)
    if known is not None:
        return known
    default = inspect.signature(kind.__init__).parameters.get(name)  # load() makes the others anew
    if default is not None:
        _log.warning("the model's %s is a function, which is not run: it is %s, the default", name, default.default)
    if default is None:
        return None
    return default.default


def load_policy(kind: Any, path: Path) -> Any:
    """`kind.load(path, device="cpu")` of a policy that was saved alone; as `load_model`.

    torch's random numbers are left as they are: a run that meets an opponent goes on as if it knew it already.
    """
    content, trusted = read(path)
    import torch

    with torch.random.fork_rng(devices=[]):
        if trusted:
            with _of_this_version():
                return kind.load(io.BytesIO(content), device="cpu")
        with _named(path):
            check_zip(io.BytesIO(content), path.name)
            saved = torch.load(io.BytesIO(content), map_location="cpu", weights_only=False, pickle_module=pickles)
        policy = kind(**saved["data"])
        policy.load_state_dict(saved["state_dict"])
        return policy


@contextmanager
def _of_this_version() -> Iterator[None]:
    """Within, a pickle that names a module of ue_rl which is not there is refused as one of another version."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("ue_rl."):
            raise
        raise of_another_version(str(error.name)) from error


def _is_pickle(value: Any) -> bool:
    return isinstance(value, dict) and ":serialized:" in value


def _pickled(value: dict[str, Any]) -> bytes:
    return base64.b64decode(value[":serialized:"])


@contextmanager
def _named(path: Path, attribute: str | None = None) -> Iterator[None]:
    """An UntrustedFile says which file it is, and which attribute of the model in it."""
    try:
        yield
    except UntrustedFile as error:
        if attribute is None:
            place = str(path)
        else:
            place = f"{attribute} in {path}"
        error.field = error.field or place
        raise
