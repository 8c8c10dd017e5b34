"""IMAGE: an array of bytes that travels beside the row; its shape is the handshake's IMAGE."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ue_rl.protocol.spaces.forms.base import Arrays, Bounds, Fields, LeafForm, LeafText, unchanged

if TYPE_CHECKING:
    from ue_rl.protocol.spaces.tree import Leaf


class ImageForm(LeafForm):
    """See LeafForm."""

    word = "IMAGE"
    example = "IMAGE"
    gymnasium = ""
    in_row = False
    has_body = False

    def size(self, leaf: Leaf) -> int:
        """See LeafForm: none."""
        return 0

    def bounds(self, leaf: Leaf) -> Bounds:
        """See LeafForm."""
        return np.zeros(0, np.float32), np.zeros(0, np.float32)

    def text(self, leaf: Leaf, bound: Callable[[float, str], str]) -> str:
        """See LeafForm."""
        return "IMAGE"

    def read(self, text: LeafText) -> Fields:
        """See LeafForm."""
        return {}

    def summary(self, leaf: Leaf) -> str:
        """See LeafForm."""
        return "IMAGE"

    def space(self, leaf: Leaf, image_shape: tuple[int, ...]) -> Any:
        """See LeafForm: a Box uint8 0..255."""
        from gymnasium import spaces

        return spaces.Box(0, 255, image_shape, np.uint8)

    def to_json(self, leaf: Leaf, image_shape: tuple[int, ...]) -> dict[str, Any]:
        """See LeafForm: as a Box."""
        return {"type": "Box", "shape": list(image_shape), "dtype": "uint8", "low": 0, "high": 255}

    def dtype(self, leaf: Leaf) -> np.dtype[Any]:
        """See LeafForm."""
        return np.dtype(np.uint8)

    def box_bounds(self, leaf: Leaf) -> Bounds:
        """See LeafForm: an action has none."""
        return self.bounds(leaf)

    def from_box(self, leaf: Leaf, xp: Any) -> Arrays:
        """See LeafForm."""
        return unchanged

    def to_box(self, leaf: Leaf) -> Arrays:
        """See LeafForm."""
        return unchanged
