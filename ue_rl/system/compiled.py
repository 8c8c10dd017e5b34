"""load(name): the compiled modules of this package, or what stands in for them.

    load("kernels")     ue_rl/protocol/text/_kernels.c: text to arrays and back. Without it
    ue_rl/protocol/text/kernels_pure.py gives
                        the same results, more slowly, and one warning says so.
    load("sync")        ue_rl/protocol/memory/_sync.c: atomics and waits on shared memory. Nothing in Python could stand
    in:
                        without it shared memory is refused, and transport="auto" goes on over TCP.

The environment variable UE_RL_PURE=1 turns both off.
"""

from __future__ import annotations

import importlib
import logging
import os
from types import ModuleType

from ue_rl.system.errors import ConfigurationError

_log = logging.getLogger("ue_rl.system.compiled")

_MODULES = {"kernels": "ue_rl.protocol.text._kernels", "sync": "ue_rl.protocol.memory._sync"}
_TWINS = {"kernels": "ue_rl.protocol.text.kernels_pure"}
_COSTS = {
    "kernels": "text is read and written by Python, which takes about 50 times as long",
    "sync": "there is no shared memory",
}
_CURE = "reinstall ue_rl where a C compiler is present (`pip install --force-reinstall --no-deps .`)"
_told: set[str] = set()  # one warning per process, not one per connection


def load(name: str, compiled: bool | None = None, told: set[str] = _told) -> ModuleType:
    """The module to use.

    Args:
        name: "kernels" or "sync".
        compiled: None takes the compiled module where there is one, True insists on it, False takes the pure twin.
        told: names of modules of which it was already said that they are missing; those of this process.

    Raises:
        ConfigurationError: the compiled module is missing, and True was given or it has no twin.
    """
    twin = _TWINS.get(name)
    disabled = compiled is None and os.environ.get("UE_RL_PURE", "0") not in ("", "0")
    problem = "UE_RL_PURE is set"
    if not disabled and compiled is not False:
        try:
            return importlib.import_module(_MODULES[name])
        except ImportError as error:
            problem = str(error)
    if twin is None or compiled:
        if disabled:
            cure = "unset UE_RL_PURE"
        else:
            other_way = ", or connect with transport='tcp'"
            if twin:
                other_way = ""
            cure = _CURE + other_way
        raise ConfigurationError(
            "this installation has no compiled kernels" if twin else "shared memory needs ue_rl's compiled module",
            expected=_MODULES[name],
            got=problem,
            cure=cure,
        )
    if not disabled and compiled is not False and name not in told:
        told.add(name)
        _log.warning("no compiled kernels (%s): text is parsed in pure Python, which is slower; %s", problem, _CURE)
    return importlib.import_module(twin)


def lacking() -> list[str]:
    """Names of the modules that were not built here, or are turned off."""
    return [name for name in _MODULES if not _is_compiled(name)]


def what_is_lacking() -> str:
    """The same as one line for people, with what that costs; "" where all are there."""
    names = lacking()
    if not names:
        return ""
    return f"not compiled: {', '.join(names)}; {'; '.join(_COSTS[name] for name in names)}"


def is_built(name: str) -> bool:
    """Is it there, though UE_RL_PURE may turn it off?"""
    try:
        load(name, True)
    except ConfigurationError:
        return False
    return True


def _is_compiled(name: str) -> bool:
    try:
        return name_of(load(name)) == "compiled"
    except ConfigurationError:
        return False


def name_of(module: ModuleType) -> str:
    """ "compiled" or "pure"."""
    if module.__name__ in _TWINS.values():
        return "pure"
    return "compiled"
