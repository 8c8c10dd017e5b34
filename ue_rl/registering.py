"""Registers ue_rl's envs with Gymnasium as soon as there is a Gymnasium: `import ue_rl` alone must not load it.

Older versions of Gymnasium read the entry point `gymnasium.envs` of setup.cfg themselves; version 1.4 reads none.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

_LIBRARY = "gymnasium"


def _register() -> None:
    importlib.import_module("ue_rl.envs.registration")


class _AfterGymnasium(importlib.abc.MetaPathFinder):
    """Waits for the import of Gymnasium, leaves it to the other finders, and registers right after it."""

    _asking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The other finders' spec of Gymnasium; None of everything else."""
        if fullname != _LIBRARY or self._asking:
            return None
        self._asking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asking = False
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_register(module: ModuleType) -> None:
            load(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _register()

        spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Registers now, where Gymnasium is loaded already, and otherwise when it is."""
    if _LIBRARY in sys.modules:
        _register()
    elif not any(isinstance(finder, _AfterGymnasium) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterGymnasium())
