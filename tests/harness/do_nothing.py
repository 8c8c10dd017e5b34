"""A model that does nothing, for a policy server of which only the server counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from ue_rl.cli.do_nothing import ACT, OBS


def do_nothing_model(obs_size: int = OBS, act_size: int = ACT) -> Any:
    """What a PolicyServer asks of a model, of one that answers float32 [n, act_size] zeros."""
    return SimpleNamespace(
        obs_size=obs_size,
        act_size=act_size,
        metadata=None,
        spaces=(None, None),
        takes_masks=False,
        needs_masks=False,
        is_recurrent=False,
        run_inference=lambda observations, **_: np.zeros((len(observations), act_size), np.float32),
    )
