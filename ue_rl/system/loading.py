"""Modules and module:Class, as command lines name them."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from types import ModuleType
from typing import Any

from ue_rl.system.errors import ConfigurationError


def loaded(name: str, field: str) -> Any:
    """What `name` says; a module may stand in the folder where the command runs.

    Raises:
        ConfigurationError: it cannot be imported; it names `field`.
    """
    _look_here()
    try:
        if not name.partition(":")[2]:
            raise ValueError("no class")
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"{name!r} cannot be loaded", field=field, expected="module:Class", got=str(error)
        ) from error


def imported(name: str, field: str) -> ModuleType:
    """The module of that name; it may stand in the folder where the command runs.

    Raises:
        ConfigurationError: there is none, or it fails while it is imported; it names `field`.
    """
    _look_here()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(name, field, error) from error  # it is there, and lacks another one
        raise ConfigurationError(
            f"there is no module {name!r}",
            field=field,
            got=str(error),
            cure="install its package into the environment of this command, or run the command in the folder where "
            f"{name.partition('.')[0]}.py stands",
        ) from error
    except Exception as error:  # whatever somebody's module raises
        raise _failed(name, field, error) from error


def _failed(name: str, field: str, error: Exception) -> ConfigurationError:
    got = f"{type(error).__name__}: {error}"
    cure = f"python -c 'import {name}' shows where it fails"
    return ConfigurationError(f"the module {name!r} fails while it is imported", field=field, got=got, cure=cure)


def _look_here() -> None:
    """Lets imports find what stands in the working directory; a console script, unlike python -m, does not look."""
    if "" not in sys.path:
        sys.path.insert(0, "")
