"""Names of a package that are imported when they are first used, so that importing the package stays cheap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

_EXTRAS = {
    "click": "engine",
    "flatbuffers": "shm",
    "grpc": "grpc",
    "grpc_health": "grpc",
    "grpc_reflection": "grpc",
    "mcp": "mcp",
    "msgpack": "rllink",
    "mujoco": "mujoco",
    "openai": "arena",
    "onnxruntime": "inference",
    "pettingzoo": "agents",
    "psutil": "engine",
    "pydantic": "realtime",
    "ray": "rllib",
    "rich": "engine",
    "starlette": "arena",
    "uvicorn": "arena",
}


_ALL_OF_IT = {
    "AgentArena": "arena",
    "MujocoBridge": "mujoco",
    "PettingZooBridge": "agents",
    "UnrealParallelEnv": "agents",
    "grpc": "grpc",  # ue_rl.bridges.grpc, and its neighbours
    "mcp": "mcp",
    "openenv": "openenv",
}


def install(error: ImportError, what: str = "") -> str:
    """The command that installs the package whose import failed, with the extra of setup.cfg that has it.

    Args:
        what: the name that was asked for; some need more than one package, and one extra has them all.
    """
    package = (error.name or "").partition(".")[0]
    extra = _ALL_OF_IT.get(what.rpartition(".")[2]) or _EXTRAS.get(package, "train")
    return f"pip install 'ue_rl[{extra}]'"


@contextmanager
def named_if_missing(what: str) -> Iterator[None]:
    """Within, a package of other people that is not there is named, with the extra that installs it.

    Raises:
        MissingPackage: one is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        from ue_rl.errors import MissingPackage, UeRlError  # `import ue_rl` alone loads nothing

        package = (error.name or "").partition(".")[0]
        if package in ("", "ue_rl") or isinstance(error, UeRlError):
            raise
        raise MissingPackage(
            f"{what} needs {package}, which is not installed",
            cure=install(error, what),
        ) from error


def lazy(
    package: str, homes: Mapping[str, str], optional: tuple[str, ...] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """What a package's `__getattr__`, `__dir__` and `__all__` are (PEP 562).

    Args:
        package: the package's `__name__`.
        homes: module, relative to the package, to the names that live there, separated by spaces. A module that maps
            to "" is offered itself.
        optional: names that need packages which may be missing: not in `__all__`.
    """
    home = {name: f"{package}.{module}" for module, names in homes.items() for name in names.split()}
    modules = {module for module, names in homes.items() if not names}

    def __getattr__(name: str) -> Any:
        if name in home:
            with named_if_missing(f"{package}.{name}"):
                return getattr(import_module(home[name]), name)
        if name in modules:
            with named_if_missing(f"{package}.{name}"):
                return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*vars(import_module(package)), *home, *modules})

    return __getattr__, __dir__, sorted(set(home) - set(optional))
