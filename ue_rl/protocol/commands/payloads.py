"""The generated classes of both schemas as one namespace; those of physics.fbs are loaded when one is first used.

Importing this needs the package flatbuffers; ue_rl.protocol.commands.messages() gives it, or says what is missing.
"""

from __future__ import annotations

import importlib
from typing import Any

_base = importlib.import_module("ue_rl.protocol.commands.generated")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if hasattr(_base, name):
        home = _base
    else:
        home = importlib.import_module("ue_rl.protocol.commands.generated_physics")
    found = globals()[name] = getattr(home, name)
    return found
