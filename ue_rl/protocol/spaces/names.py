"""Names of single numbers (OBS_NAMES, ACT_NAMES): where both sides say the same ones, their order counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ue_rl.system.errors import printable

Names: TypeAlias = tuple[Sequence[str], Sequence[str]]  # of observations and of actions; () where nobody says


def first_moved(expected: Names, got: Names) -> tuple[str, str, str] | None:
    """The first number that stands elsewhere: the handshake's key, and what stands in its place on both sides.

    None also where a side has no names, or other ones: whoever renames a number leaves it where it is.
    """
    for key, ours, theirs in zip(("OBS_NAMES", "ACT_NAMES"), expected, got, strict=True):
        if sorted(ours) == sorted(theirs):
            for at, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                if one != other:
                    return key, f"{printable(one)} at {at}", f"{printable(other)} at {at}"
    return None
