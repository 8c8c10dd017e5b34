"""Names of a package that are imported when they are first used, so that importing the package stays cheap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

# The extras of setup.cfg that have a package, first the one to install for its sake alone; of all others it is `train`.
EXTRAS = {
    "PIL": ("train", "rllib"),
    "anyio": ("sessions",),
    "click": ("engine",),
    "flatbuffers": ("engine",),
    "google": ("sessions",),
    "grpc": ("sessions",),
    "grpc_health": ("sessions",),
    "grpc_reflection": ("sessions",),
    "gymnasium": ("train", "agents", "mujoco", "rllib", "sessions"),
    "h5py": ("demos",),
    "mcp": ("sessions",),
    "minari": ("demos",),
    "msgpack": ("engine",),
    "mujoco": ("mujoco",),
    "onnxruntime": ("inference", "train"),
    "openai": ("arena",),
    "pettingzoo": ("agents",),
    "prometheus_client": ("engine",),
    "psutil": ("engine",),
    "pydantic": ("sessions", "arena"),
    "ray": ("rllib",),
    "rich": ("engine",),
    "starlette": ("arena", "sessions"),
    "torch": ("train", "rllib"),
    "uvicorn": ("arena", "sessions"),
    "websockets": ("web", "sessions"),
    "yaml": ("train", "arena"),
    "zstandard": ("engine",),
}
_OWN = {
    "faiss": "faiss-cpu",
    "llama_cpp": "llama-cpp-python",
    "matplotlib": "matplotlib",
    "tokenizers": "tokenizers",
}
_ALL_OF_IT = {
    "PettingZooBridge": "agents",
    "UnrealParallelEnv": "agents",
    "arena": "arena",  # commands
    "demos": "demos",
    "sessions": "sessions",
}


def install(error: ImportError, what: str = "") -> str:
    """The command that installs the package whose import failed, with the extra of setup.cfg that has it, if one has.

    Args:
        what: the name that was asked for; some need more than one package, and one extra has them all. Where it lacks
            this one the extra that has it is named: what is installed already helps nobody.
    """
    package = _missing_package(error)
    if package in _OWN:
        return f"pip install {_OWN[package]}"
    extras = EXTRAS.get(package, ("train",))
    extra = extras[0]
    whole = _extra_of(what)
    if whole is not None and (package == "" or _has(whole, extras)):
        extra = whole
    return f"pip install 'ue_rl[{extra}]'"


def _extra_of(what: str) -> str | None:
    """The extra that has all that `what` needs; a plug-in's is named as its folder. None: it is not known."""
    parts = what.split(".")
    if len(parts) > 2 and parts[1] == "plugins":
        return parts[2]
    return _ALL_OF_IT.get(parts[-1])


def _has(whole: str, extras: tuple[str, ...]) -> bool:
    """Whether the extra `whole` is one of these, or brings one."""
    return whole in extras or (whole == "demos" and "train" in extras)


def _missing_package(error: ImportError) -> str:
    """The package that was not found; "" where the error does not say."""
    if error.name is None:
        return ""
    return error.name.partition(".")[0]


@contextmanager
def named_if_missing(what: str) -> Iterator[None]:
    """Within, a package of other people that is not there is named, with the extra that installs it.

    Raises:
        MissingPackage: one is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        from ue_rl.system.errors import MissingPackage, UeRlError  # `import ue_rl` alone loads nothing

        package = _missing_package(error)
        if package in ("", "ue_rl") or isinstance(error, UeRlError):
            raise
        raise MissingPackage(
            f"{what} needs {package}, which is not installed",
            cure=install(error, what),
        ) from error


def lazy(package: str, optional: tuple[str, ...] = ()) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package whose names are imported when they are first used (PEP 562).

    Which names and from where says its `__init__.pyi`, which type checkers read, too: `from HOME import NAME as NAME`.

    Args:
        package: its `__name__`. optional: names that need packages which may be missing: not in `__all__`.
    """

    @cache
    def homes() -> dict[str, str]:
        import ast  # only where a name is asked for

        module: Any = sys.modules[package]
        stub = ast.parse(module.__loader__.get_data(f"{module.__file__}i"))
        return {
            alias.name: node.module or ""
            for node in stub.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    def __getattr__(name: str) -> Any:
        if name == "__all__":
            return sorted(set(homes()) - set(optional))
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with named_if_missing(f"{package}.{name}"):
            home = homes()[name]
            if home == package:
                return import_module(f"{package}.{name}")
            return getattr(import_module(home), name)

    def __dir__() -> list[str]:
        return sorted({*vars(import_module(package)), *homes()})

    return __getattr__, __dir__
