"""Modules that are not there."""

from __future__ import annotations

import sys

import pytest

COMPILED = ("ue_rl.protocol.text._kernels", "ue_rl.protocol.memory._sync")


def take_away_compiled(patch: pytest.MonkeyPatch) -> None:
    """The compiled modules cannot be imported, as where no C compiler has built them."""
    for name in COMPILED:
        patch.setitem(sys.modules, name, None)
