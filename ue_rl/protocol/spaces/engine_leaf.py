"""Which leaf a Gymnasium space is, and which one of the engine it stands for.

Two notes are kept at a space, because a model keeps its spaces: its exported file takes and gives what the engine does.

    own_leaf      what the space is, where Gymnasium has no class for that kind of leaf
    engine_leaf   what the engine has, where a trainer that counts from 0 is given another leaf: see `LeafForm.trained`
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ue_rl.protocol.spaces.forms import form_of
from ue_rl.protocol.spaces.tree import Leaf, LeafKind
from ue_rl.system.errors import ConfigurationError


def noted(space: Any, own: Leaf, engine: Leaf) -> Any:
    """`space`, just made for the leaf `own`, with the notes that it needs."""
    if own.form.in_row and form_of(space) is not own.form:
        vars(space)["own_leaf"] = own
    if own != engine:
        vars(space)["engine_leaf"] = engine
    return space


def noted_leaf(space: Any) -> Leaf | None:
    """The engine's leaf, where it is another one than the space's own."""
    leaf: Leaf | None = getattr(space, "engine_leaf", None)
    if leaf is None and hasattr(space, "engine_starts"):  # models of before this note: of choices, their lowest ones
        return replace(own_leaf(space), starts=tuple(space.engine_starts.tolist()))
    return leaf


def own_leaf(space: Any) -> Leaf:
    """What a space of Gymnasium that is a leaf is itself.

    Raises:
        ConfigurationError: the wire cannot carry it.
    """
    leaf: Leaf | None = getattr(space, "own_leaf", None)
    if leaf is not None:
        return leaf
    form = form_of(space)
    if form is None:
        raise ConfigurationError(f"the wire cannot carry a {type(space).__name__} space", got=space)
    return Leaf(LeafKind(form.word), **form.of_space(space))


def leaf_of(space: Any) -> Leaf:
    """The engine's leaf, which is the space's own where nothing else was noted; raises as `own_leaf`."""
    engine = noted_leaf(space)
    if engine is not None:
        return engine
    return own_leaf(space)
