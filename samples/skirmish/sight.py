"""What the player observes: a map of zones with fog over it, and named numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samples.skirmish.rules import (
    BUILDINGS,
    FIGHTS,
    HEALTH,
    KINDS,
    MAX_TICKS,
    ORE,
    SLOTS,
    TILES,
    UNITS,
    ZONE,
    ZONES,
    Kind,
    Order,
)
from samples.skirmish.state import World

# each a picture of the map, row 0 at y = 0. Of enemies: units that are seen now, buildings where they were seen last
LAYERS = ("fog", "fighters", "harvesters", "buildings", "enemy_harvesters", "enemy_fighters", "enemy_buildings", "ore")
_THINGS = KINDS[1:]
NUMBERS = (
    "time", "credits", "room_for_units", "attacked", "own_losses", "enemy_losses", "base_health", "enemy_base_health",
    "fighters", "idle_fighters", "army_x", "army_y", "army_health", "rally_x", "rally_y",
    *(f"own_{thing}" for thing in _THINGS), *(f"making_{thing}" for thing in ("building", *KINDS[Kind.HARVESTER:])),
    *(f"seen_{thing}" for thing in _THINGS),
)  # fmt: skip
MAP_SIZE = len(LAYERS) * ZONES * ZONES
OBS_NAMES = (*(f"{layer}/{y}/{x}" for layer in LAYERS for y in range(ZONES) for x in range(ZONES)), *NUMBERS)
OBS_SIZE = len(OBS_NAMES)
_LAYER = np.array([[0, 3, 3, 3, 2, 1, 1], [0, 0, 0, 0, 4, 5, 5]])  # by side and kind; 0: none
_SHARE = np.where(HEALTH > 0, 0.25 / np.maximum(HEALTH, 1), 0.0)  # four of them, unhurt, are 1

EVENTS = (
    "enemy_spotted", "under_attack", "unit_destroyed", "production_complete", "own_building_destroyed",
    "building_discovered", "enemy_building_destroyed",
)  # fmt: skip
_ATTACKED = MAP_SIZE + NUMBERS.index("attacked")
_OWN, _SEEN = (MAP_SIZE + NUMBERS.index(f"{whose}_base") for whose in ("own", "seen"))


def look(world: World) -> None:
    """Both sides see the zones where they stand and those beside them, and remember the buildings in them."""
    at = zone(world.x, world.y)
    seen = np.zeros((*world.kind.shape[:2], ZONES * ZONES), np.bool_)
    row, side, slot = np.nonzero(world.kind != Kind.NONE)
    seen[row, side, at[row, side, slot]] = True
    seen = seen.reshape(world.visible.shape)
    wide = seen.copy()
    wide[..., 1:] |= seen[..., :-1]
    wide[..., :-1] |= seen[..., 1:]
    world.visible[:] = wide
    world.visible[..., 1:, :] |= wide[..., :-1, :]
    world.visible[..., :-1, :] |= wide[..., 1:, :]
    world.explored |= world.visible
    theirs = np.zeros((len(world), ZONES * ZONES), np.int64)
    row, slot = np.nonzero(world.kind[:, 1, :BUILDINGS] != Kind.NONE)
    theirs[row, at[row, 1, slot]] = 1
    np.copyto(world.remembered, theirs.reshape(world.remembered.shape), where=world.visible[:, 0])


def zone(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.intp]:
    """In which zone a place is: row * ZONES + column."""
    return (y * np.float32(1 / ZONE)).astype(np.intp) * ZONES + (x * np.float32(1 / ZONE)).astype(np.intp)


def observe(world: World) -> NDArray[np.float32]:
    """Of the player, float32 [sessions, OBS_SIZE]: the layers one after the other, then the numbers."""
    n = len(world)
    found = np.zeros((n, OBS_SIZE), np.float32)
    at, kind = zone(world.x, world.y), world.kind.copy()
    kind[:, 1] *= np.take_along_axis(world.visible[:, 0].reshape(n, -1), at[:, 1], axis=1)
    _draw(world, kind, at, found[:, :MAP_SIZE].reshape(n, len(LAYERS), ZONES * ZONES))
    _tell(world, kind, found[:, MAP_SIZE:].T)
    return found


def events(before: NDArray[np.float32], after: NDArray[np.float32]) -> dict[str, NDArray[np.bool_]]:
    """What happened between two observations of the same sessions: for each of EVENTS, bool [sessions]."""
    change = after - before
    own, units = change[:, _OWN : _OWN + 3], change[:, _OWN + 3 : _OWN + len(_THINGS)]
    seen, saw = (obs[:, _SEEN : _SEEN + len(_THINGS)].any(axis=1) for obs in (after, before))
    theirs = change[:, MAP_SIZE * 6 // 8 : MAP_SIZE * 7 // 8]  # the layer of their buildings
    happened = (seen & ~saw, change[:, _ATTACKED] > 0, (units < 0).any(axis=1), (units > 0).any(axis=1),
                (own < 0).any(axis=1), (theirs > 0).any(axis=1), (theirs < 0).any(axis=1))  # fmt: skip
    return dict(zip(EVENTS, happened, strict=True))


def _draw(world: World, kind: NDArray[np.int64], at: NDArray[np.intp], layers: NDArray[np.float32]) -> None:
    row, side, slot = np.nonzero(kind)
    which = kind[row, side, slot]
    cell = (row * len(LAYERS) + _LAYER[side, which]) * (ZONES * ZONES) + at[row, side, slot]
    layers[:] = np.bincount(cell, _SHARE[which] * world.hp[row, side, slot], layers.size).reshape(layers.shape)
    flat = (len(world), -1)
    layers[:, 0] = 0.5 * world.explored[:, 0].reshape(flat) + 0.5 * world.visible[:, 0].reshape(flat)
    layers[:, 6] = world.remembered.reshape(flat)
    layers[np.arange(len(world))[:, None], 7, zone(world.ore_x, world.ore_y)] = world.ore * (1 / ORE)


def _tell(world: World, kind: NDArray[np.int64], numbers: NDArray[np.float32]) -> None:
    """Writes the rows of `numbers` [len(NUMBERS), sessions], about 0 to 1 each."""
    n, kinds = len(world), len(KINDS)
    counts = np.bincount(
        (np.arange(2 * n)[:, None] * kinds + kind.reshape(2 * n, SLOTS)).ravel(), minlength=2 * n * kinds
    )
    counts = counts.reshape(n, 2, kinds)
    making = world.making[:, 0, :BUILDINGS]
    made = np.bincount((np.arange(n)[:, None] * kinds + making).ravel(), minlength=n * kinds).reshape(n, kinds)
    rising = (world.kind[:, 0, 1:BUILDINGS] != Kind.NONE) & (world.built[:, 0, 1:BUILDINGS] > world.tick[:, None])
    made[:, Kind.HARVESTER - 1] = rising.sum(axis=1)
    fights = FIGHTS[kind[:, 0]]
    army = np.maximum(fights.sum(axis=1), 1)
    middle = [
        (np.where(fights, place[:, 0] * 16, 0).astype(np.int64).sum(axis=1)) / (army * 16 * TILES)
        for place in (world.x, world.y)
    ]
    numbers[:15] = (
        world.tick / MAX_TICKS, world.credits[:, 0] / 1000, (kind[:, 0, BUILDINGS:] == Kind.NONE).sum(axis=1) / UNITS,
        world.tick - world.attacked[:, 0] < 50, world.lost[:, 0] / 2000, world.lost[:, 1] / 2000,
        world.hp[:, 0, 0] / HEALTH[1], world.hp[:, 1, 0] / HEALTH[1],
        fights.sum(axis=1) / 10, (fights & (world.order[:, 0] == Order.GUARD)).sum(axis=1) / 10, *middle,
        (world.hp[:, 0] * fights).sum(axis=1) / 600, world.rally_x[:, 0] / TILES, world.rally_y[:, 0] / TILES,
    )  # fmt: skip
    numbers[15:] = np.concatenate([counts[:, 0, 1:], made[:, Kind.HARVESTER - 1 :], counts[:, 1, 1:]], axis=1).T / 4
