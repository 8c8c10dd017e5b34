"""How much is tried of a property, in each run and each night."""

from __future__ import annotations

import os

from hypothesis import settings

_EACH_RUN = 200


def examples(count: int, each_run: int = _EACH_RUN) -> settings:
    """So many each night (UE_RL_CI_WHOLE=1), `each_run` of them in each run; without a deadline for one."""
    if not os.environ.get("UE_RL_CI_WHOLE"):
        count = min(count, each_run)
    return settings(max_examples=count, deadline=None)


def rows_compared() -> int | None:
    """`n_verify` where right and wrong files are told apart: in each run the least, each night what users have."""
    if os.environ.get("UE_RL_CI_WHOLE"):
        return None
    return 1000
