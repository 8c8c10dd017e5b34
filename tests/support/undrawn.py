"""Training runs without curves.png, whose drawing is a quarter to a half of what the short runs of tests take."""

from __future__ import annotations

import sys
from typing import Any

UNDRAWN = "UE_RL_TESTS_UNDRAWN"  # in the environment of a WarmCli's process: its runs draw none


def take_curves_away(patch: Any) -> None:
    """Nothing where training was not imported yet.

    Args:
        patch: whose `setattr` does it: a pytest.MonkeyPatch, or `builtins` for the rest of a process.
    """
    learner = sys.modules.get("ue_rl.training.learner")
    if learner is not None:
        patch.setattr(learner, "draw_curves", _draw_nothing)


def _draw_nothing(*_: object) -> None:
    pass
