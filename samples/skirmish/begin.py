"""How a game begins. Nothing is random but the map, which is drawn from the session's own seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from samples.skirmish.rules import (
    BUILDINGS,
    HEALTH,
    MAX_TICKS,
    ORE,
    PATCHES,
    START_CREDITS,
    START_HARVESTERS,
    TILES,
    Kind,
    Order,
)
from samples.skirmish.sight import look
from samples.skirmish.state import Rows, World


def begin(world: World, rows: Rows, seeds: Sequence[int | None], levels: Sequence[int]) -> None:
    """New games in `rows`; without a seed a session goes on with a number drawn from its last one."""
    with np.errstate(over="ignore"):
        old = mixed(world.seed[rows].astype(np.uint64) + rows.astype(np.uint64))
    given = [int(last) if seed is None else seed for seed, last in zip(seeds, old, strict=True)]
    new = World(len(rows))
    new.seed[:] = np.array(given, np.uint64).astype(np.int64)
    new.level[:] = levels
    steps = np.arange(1, 13, dtype=np.uint64) * np.uint64(0x632BE59BD9B4E019)
    drawn = (mixed(new.seed.astype(np.uint64)[:, None] + steps) >> np.uint64(33)).astype(np.int64)
    base = 4 + drawn[:, 0:2] % 3  # x, y
    near = [(6, 0), (0, 6), (5, 5)]
    spots = [base + drawn[:, 2 + 2 * k : 4 + 2 * k] % 3 + offset for k, offset in enumerate(near)]
    spots.append(np.stack([9 + drawn[:, 8] % 6, 17 + drawn[:, 9] % 6], axis=1))
    spots += [TILES - 1 - spot for spot in spots]  # for the opponent the same, seen from there
    new.ore[:] = ORE
    new.ore_x[:], new.ore_y[:] = np.stack(spots, axis=2).transpose(1, 0, 2) + 0.5
    for side, place in enumerate((base, TILES - 1 - base)):
        x, y = place.T[:, :, None] + 0.5
        first = slice(BUILDINGS, BUILDINGS + START_HARVESTERS)
        for slots, kind in ((slice(0, 1), Kind.BASE), (first, Kind.HARVESTER)):
            new.kind[:, side, slots], new.hp[:, side, slots] = kind, HEALTH[kind]
            new.x[:, side, slots], new.y[:, side, slots] = x, y
        new.order[:, side, first] = Order.HARVEST
        new.patch[:, side, first] = np.arange(START_HARVESTERS) + side * (PATCHES // 2)
        forward = 3 - 6 * side
        new.rally_x[:, side], new.rally_y[:, side] = place.T + forward
    new.credits[:] = START_CREDITS
    new.attacked[:] = -MAX_TICKS
    look(new)
    world.put(rows, new)


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64: as good as random, each number by itself (Steele, Lea and Flood, 2014)."""
    with np.errstate(over="ignore"):
        numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
        numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return numbers ^ (numbers >> np.uint64(31))
