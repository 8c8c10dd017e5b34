"""module:Class, as command lines name it."""

from __future__ import annotations

import pkgutil
import sys
from typing import Any

from ue_rl.errors import ConfigurationError


def loaded(name: str, field: str) -> Any:
    """What `name` says; a module may stand in the folder where the command runs.

    Raises:
        ConfigurationError: it cannot be imported; it names `field`.
    """
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        if not name.partition(":")[2]:
            raise ValueError("no class")
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"{name!r} cannot be loaded", field=field, expected="module:Class", got=str(error)
        ) from error
