"""Names of a package that are imported when they are first used, so that importing the package stays cheap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


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
            return getattr(import_module(home[name]), name)
        if name in modules:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*vars(import_module(package)), *home, *modules})

    return __getattr__, __dir__, sorted(set(home) - set(optional))
