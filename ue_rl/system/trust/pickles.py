"""Pickles of unknown origin: what Stable-Baselines3 and this library write is loaded, anything else is refused by name.

A pickle is a program: it names functions and classes, and calls them. Here it may name what the table says, none of
which runs what it is given, opens a file or starts a process. A class of one's own, or a function that was pickled with
its code, is in no table: it needs `--trust`, or `with ue_rl.system.trust.files.trusting():`.
"""

from __future__ import annotations

import enum
import io
import pickle
import re
import sys
import types
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import PureWindowsPath
from typing import Any, ClassVar

from ue_rl.system.errors import ConfigurationError, UntrustedFile, shorten

TRUST = "give --trust, in Python: with ue_rl.system.trust.files.trusting():"  # the cure of a command and of a script
_MULTIARRAY = {"_reconstruct", "scalar"}
_PATHS = {"PosixPath", "PurePosixPath", "PureWindowsPath"}  # names of files, which open none
_EXACT: dict[str, set[str]] = {
    "builtins": {"object", "set", "frozenset", "complex", "slice"},
    "collections": {"OrderedDict", "deque"},
    "copyreg": {"_reconstructor"},
    "numpy": {"dtype", "ndarray"},
    "numpy._core.multiarray": _MULTIARRAY,
    "numpy.core.multiarray": _MULTIARRAY,
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.core.numeric": {"_frombuffer"},
    "numpy.random._pickle": {"__bit_generator_ctor", "__generator_ctor", "__randomstate_ctor"},
    "numpy.random._pcg64": {"PCG64"},
    "numpy.random._mt19937": {"MT19937"},
    "numpy.random.bit_generator": {"SeedSequence", "__pyx_unpickle_SeedSequence"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "pathlib": _PATHS,
    "pathlib._local": _PATHS,  # CPython 3.13
    "torch": {"device", "Size"},
    "torch._utils": {"_rebuild_tensor_v2", "_rebuild_parameter"},
    "ue_rl.training.saving.resuming": {"_whole"},
    "ue_rl.envs.hybrid_box": {"HybridPart"},
    "ue_rl.system.trust.schedules": {"LinearSchedule"},
    "ue_rl.training.hyperparameters": {"LinearSchedule"},  # its place before
    "ue_rl.protocol.spaces.tree": {"Branch", "Leaf", "LeafKind"},
    "ue_rl.protocol.spaces.forms": {"LeafKind"},
    "ue_rl.protocol.spaces.actions": {"ActionKind", "ActionSpec"},
}
_SB3 = (
    "policies.BaseModel", "torch_layers.BaseFeaturesExtractor", "buffers.BaseBuffer", "noise.ActionNoise",
    "running_mean_std.RunningMeanStd", "vec_env.vec_normalize.VecNormalize", "utils.ConstantSchedule",
    "utils.FloatSchedule", "utils.LinearSchedule", "type_aliases.TrainFreq", "type_aliases.TrainFrequencyUnit",
)  # fmt: skip
_OF_SB3 = {f"stable_baselines3.common.{name}" for name in _SB3} | {
    "stable_baselines3.her.goal_selection_strategy.GoalSelectionStrategy",
    "sb3_contrib.common.recurrent.type_aliases.RNNStates",
}
_SPACE = {"gymnasium.spaces.space.Space"}
_OPTIMIZER = {"torch.optim.optimizer.Optimizer"}
# Modules, and the classes of which one must be a base: importing these modules does nothing else.
_CLASSES: tuple[tuple[str, set[str]], ...] = (
    (r"gymnasium\.spaces\.\w+", _SPACE),
    (r"stable_baselines3\.[\w.]+", _OF_SB3 | _OPTIMIZER),
    (r"sb3_contrib\.[\w.]+", _OF_SB3 | _OPTIMIZER),
    (r"ue_rl\.envs\.[\w.]+", _OF_SB3 | _SPACE),
    (r"numpy", {"numpy.generic"}),
    (r"torch", {"torch.storage._LegacyStorage"}),
    (r"torch\.nn\.modules\.activation", {"torch.nn.modules.module.Module"}),
    (r"torch\.optim\.\w+", _OPTIMIZER),
)
_PYTHON_2 = {"__builtin__": "builtins", "copy_reg": "copyreg"}  # as torch writes them


class DataUnpickler(pickle._Unpickler):
    """Python's own, in Python: the compiled one takes as much memory as an index in the pickle says.

    Raises:
        UntrustedFile: from `load`: the pickle names what is in no table. ConfigurationError: it names a part of this
            library that is not there.
    """

    def find_class(self, module: str, name: str) -> Any:
        """What the pickle may name."""
        module = _PYTHON_2.get(module, module)
        if (module, name) in _INSTEAD:
            return _INSTEAD[module, name]
        if name in _EXACT.get(module, ()):
            return super().find_class(module, name)
        for pattern, bases in _CLASSES:
            if "." not in name and re.fullmatch(pattern, module):
                found = super().find_class(module, name)
                if isinstance(found, type):
                    kinds = found.__mro__
                else:
                    kinds = (type(found),)
                if bases & {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds}:
                    return found
                if module == "torch" and kinds[0].__qualname__ == "dtype":
                    return found
        if module.startswith("ue_rl.") and not _exists(module):
            raise of_another_version(f"{module}.{name}")
        raise wants_code(f"{module}.{name}")

    def load_build(self) -> None:
        """Gives an object its state; a class would be changed for everybody."""
        stack: list[Any] = self.stack  # type: ignore[attr-defined]
        if isinstance(stack[-2], (type, types.FunctionType, types.ModuleType)):
            raise wants_code(f"a change of {shorten(stack[-2])}")
        super().load_build()  # type: ignore[misc]

    def load_bytearray8(self) -> None:
        """The pickle's size is believed no further than there are bytes."""
        size = int.from_bytes(self.read(8), "little")  # type: ignore[attr-defined]
        data = bytearray(self.read(size))  # type: ignore[attr-defined]
        if len(data) != size:
            raise EOFError("the pickle is cut off")
        self.append(data)  # type: ignore[attr-defined]

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        pickle.BUILD[0]: load_build,
        pickle.BYTEARRAY8[0]: load_bytearray8,
    }


class Unmade:
    """Stands for what a pickle would make, and takes whatever that would be given."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Of what it would be made."""

    def __setstate__(self, _: Any) -> None:
        """Its state."""


class _Unwanted(DataUnpickler):
    """Of what nobody uses: a function with some of its arguments may stand there, whose function is looked at."""

    def find_class(self, module: str, name: str) -> Any:
        """What the pickle may name."""
        if (module, name) == ("functools", "partial"):
            return Unmade
        return super().find_class(module, name)


Unpickler = DataUnpickler  # torch.load(pickle_module=..) looks for this name


def load_data(data: bytes) -> Any:
    """What a pickle of unknown origin holds.

    Raises:
        UntrustedFile: it names what is in no table. Also whatever a damaged pickle raises.
    """
    return DataUnpickler(io.BytesIO(data)).load()


def refuse_attack(data: bytes) -> None:
    """To be called with a pickle that nobody loads: it may need classes and functions of anybody's, none of Python's.

    Raises:
        UntrustedFile: it names something of Python's own library that is no value.
    """
    try:
        _Unwanted(io.BytesIO(data)).load()
    except UntrustedFile as error:
        module = str(error.got).partition(".")[0]
        if module in sys.stdlib_module_names or not module.isidentifier():
            raise
    except Exception:  # noqa: BLE001 - of another version, or damaged: nobody misses it
        return


def wants_code(what: str) -> UntrustedFile:
    """The error for a file that would run `what`."""
    return UntrustedFile(
        "the file was not made here, and holds more than numbers and the classes of Stable-Baselines3",
        expected="names that run nothing",
        got=what,
        cure=f"if you know who made it, and trust them as you trust a program of theirs, {TRUST}",
    )


def of_another_version(what: str) -> ConfigurationError:
    """The error for a file that names a part of this library which stands elsewhere, or no more."""
    return ConfigurationError(
        "the file was written by another version of ue_rl",
        expected="names of this version",
        got=what,
        cure="go on with the version that wrote it, or begin a new run",
    )


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its package is not there either
        return False


def _member(owner: Any, name: str) -> Any:
    """For getattr: the one method that policies are saved with, and members of enums.

    `owner` is a class that `find_class` has let through, so an enum is one of the tables. CPython 3.11 to 3.11.3 (the
    one of Debian 12 among them) pickles the member of an enum as a getattr.
    """
    if isinstance(owner, enum.EnumMeta) and isinstance(name, str) and name in owner.__members__:
        return owner.__members__[name]
    if name != "_dummy_schedule" or not isinstance(owner, type):
        raise wants_code(f"getattr({shorten(owner)}, {shorten(name)})")
    return getattr(owner, name)


def _latin1(text: str, encoding: str) -> bytes:
    """For _codecs.encode: as pickles of Python 2 hold bytes."""
    if encoding != "latin1":
        raise wants_code(f"the codec {shorten(encoding)}")
    return text.encode(encoding)


_INSTEAD: dict[tuple[str, str], Callable[..., Any]] = {
    ("pathlib", "WindowsPath"): PureWindowsPath,  # which is none where this is not Windows
    ("pathlib._local", "WindowsPath"): PureWindowsPath,
    ("builtins", "getattr"): _member,
    ("_codecs", "encode"): _latin1,
}
