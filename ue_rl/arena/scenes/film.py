"""Pictures of a world: discs on the ground, drawn with NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ue_rl.arena.scenes.world import World

SIDE = 160  # pixels
_GROUND = (236, 231, 218)
_COLOURS = {
    "berry": (176, 32, 72), "fire": (240, 120, 24), "wood": (120, 84, 48), "stone": (128, 128, 136),
    "workbench": (60, 60, 60), "place": (190, 180, 120), "red": (206, 48, 48), "blue": (44, 88, 190),
}  # fmt: skip
_AGENT = (32, 120, 64)


def picture(world: World) -> NDArray[np.uint8]:
    """uint8 [160, 160, 3]: the field from above, things as discs, agents on top of them."""
    image = np.full((SIDE, SIDE, 3), _GROUND, np.uint8)
    scale = SIDE / (2 * world.size)
    rows, columns = np.mgrid[0:SIDE, 0:SIDE]
    discs = [
        (t.x, t.z, 1.5 if t.damage or t.kind == "place" else 0.7, _COLOURS.get(t.kind, _AGENT)) for t in world.things
    ]
    discs += [(b.x, b.z, 0.8, _COLOURS.get(b.name.partition("_")[0], _AGENT)) for b in world.bodies.values()]
    for x, z, radius, colour in discs:
        column, row = (x + world.size) * scale, (world.size - z) * scale
        image[(rows - row) ** 2 + (columns - column) ** 2 <= (radius * scale) ** 2] = colour
    return image
