"""A session as a picture: the whole map, darker where the player does not see it. Blue is the player, red the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samples.skirmish.rules import BUILDINGS, HEALTH, ORE, TILES, ZONE, Kind
from samples.skirmish.state import World

PIXELS = 10  # a tile
_GROUND, _ORE, _BAR = (206, 212, 190), (214, 158, 46), (70, 160, 80)
_COLOURS = ((31, 119, 180), (214, 39, 40))
_SIZES = {Kind.BASE: 1.4, Kind.HARVESTER: 0.4, Kind.CANNON: 0.5}  # half the width, in tiles


def picture(world: World, session: int) -> NDArray[np.uint8]:
    """uint8 [TILES * PIXELS, TILES * PIXELS, 3], y upwards."""
    canvas = np.full((TILES * PIXELS, TILES * PIXELS, 3), _GROUND, np.uint8)
    for x, y, ore in zip(world.ore_x[session], world.ore_y[session], world.ore[session], strict=True):
        _disc(canvas, x, y, 0.9 * np.sqrt(max(ore, 0) / ORE), _ORE)
    for slot in range(world.kind.shape[2]):  # units stand before buildings
        for side in (0, 1):
            kind = int(world.kind[session, side, slot])
            if kind == Kind.NONE:
                continue
            x, y = world.x[session, side, slot], world.y[session, side, slot]
            size = _SIZES.get(kind, 0.9 if slot < BUILDINGS else 0.3)
            (_box if slot < BUILDINGS or kind == Kind.HARVESTER else _disc)(canvas, x, y, size, _COLOURS[side])
            if slot < BUILDINGS:
                _box(canvas, x, y, size * world.hp[session, side, slot] / HEALTH[kind], _BAR, 0.15)
    seen = np.kron(world.visible[session, 0], np.ones((ZONE * PIXELS, ZONE * PIXELS), np.bool_))
    canvas[~seen] = canvas[~seen] // 4 * 3
    return canvas[::-1]


def _box(
    canvas: NDArray[np.uint8], x: float, y: float, half: float, colour: tuple[int, int, int], high: float | None = None
) -> None:
    low, left = y - (half if high is None else high), x - half
    top, right = 2 * y - low, x + half
    bottom_row, first, top_row, last = (max(0, round(float(edge) * PIXELS)) for edge in (low, left, top, right))
    canvas[bottom_row:top_row, first:last] = colour


def _disc(canvas: NDArray[np.uint8], x: float, y: float, radius: float, colour: tuple[int, int, int]) -> None:
    row, column = np.ogrid[: len(canvas), : len(canvas)]
    canvas[(row - y * PIXELS) ** 2 + (column - x * PIXELS) ** 2 <= (radius * PIXELS) ** 2] = colour
