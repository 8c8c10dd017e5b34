"""The kinds of leaf: a class each, and the table of them, by which everything finds what a leaf means."""

from __future__ import annotations

from enum import Enum
from typing import Any

from ue_rl.protocol.spaces.forms.base import LeafForm
from ue_rl.protocol.spaces.forms.box import BoxForm
from ue_rl.protocol.spaces.forms.choices import DiscreteForm, MultiDiscreteForm
from ue_rl.protocol.spaces.forms.flags import FlagsForm
from ue_rl.protocol.spaces.forms.image import ImageForm


class LeafKind(str, Enum):
    """The kinds of space that have numbers of their own, and IMAGE, whose bytes travel beside the row.

    Files keep these names.
    """

    BOX = "BOX"
    DISCRETE = "DISCRETE"
    MULTI_DISCRETE = "MULTI_DISCRETE"
    MULTI_BINARY = "MULTI_BINARY"
    IMAGE = "IMAGE"


# By the word of the handshake, in the order in which errors name them.
FORMS: dict[str, LeafForm] = {
    form.word: form for form in (BoxForm(), DiscreteForm(), MultiDiscreteForm(), FlagsForm(), ImageForm())
}
BY_TYPE = {form.gymnasium: form for form in FORMS.values() if form.gymnasium}


def form_of(space: Any) -> LeafForm | None:
    """Of a space of Gymnasium that is a leaf, or of a class of somebody's own made from one; None: there is none.

    A kind for which Gymnasium has no class is noted at the space, see engine_leaf.py.
    """
    leaf = getattr(space, "own_leaf", None)
    if leaf is not None:
        form: LeafForm = leaf.form
        return form
    for kind in type(space).__mro__:
        if kind.__module__.startswith("gymnasium.spaces.") and kind.__name__ in BY_TYPE:
            return BY_TYPE[kind.__name__]
    return None
