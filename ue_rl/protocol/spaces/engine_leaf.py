"""Which leaf of the engine a Gymnasium space stands for, where it is not the leaf that the space itself would be.

A trainer that counts from 0 is given other spaces than the engine has, see `LeafForm.trained`. They keep the engine's
leaf as a note: a model keeps its spaces, and so its exported file takes and gives what the engine does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ue_rl.protocol.spaces.forms import form_of
from ue_rl.protocol.spaces.tree import Leaf, LeafKind
from ue_rl.system.errors import ConfigurationError


def note_engine_leaf(space: Any, leaf: Leaf) -> None:
    """`space`, of Gymnasium, stands for `leaf`."""
    vars(space)["engine_leaf"] = leaf


def noted_leaf(space: Any) -> Leaf | None:
    """What was noted, if anything was."""
    leaf: Leaf | None = getattr(space, "engine_leaf", None)
    if leaf is None and hasattr(space, "engine_starts"):  # models of before this note: of choices, their lowest ones
        return replace(own_leaf(space), starts=tuple(space.engine_starts.tolist()))
    return leaf


def leaf_of(space: Any) -> Leaf:
    """What was noted, or else what a space of Gymnasium that is a leaf is itself.

    Raises:
        ConfigurationError: the wire cannot carry it.
    """
    noted = noted_leaf(space)
    if noted is not None:
        return noted
    return own_leaf(space)


def own_leaf(space: Any) -> Leaf:
    """What a space of Gymnasium that is a leaf is itself; raises ConfigurationError: see `leaf_of`."""
    form = form_of(space)
    if form is None:
        raise ConfigurationError(f"the wire cannot carry a {type(space).__name__} space", got=space)
    return Leaf(LeafKind(form.word), **form.of_space(space))
