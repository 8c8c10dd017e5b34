"""Players by rules, of three strengths. They know their own side, and what comes near to their base."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samples.skirmish.orders import Numbers, legal, nearest
from samples.skirmish.rules import FIGHTS, TILES, VERB, WHO, Kind, Order
from samples.skirmish.state import Rows, World

# of the levels: ticks between two commands, harvesters, barracks and towers that are wanted, how many fighters attack
_TABLE = np.array([(50, 4, 1, 0, 3), (25, 5, 1, 1, 6), (10, 7, 2, 1, 8)])
_NEAR = 9.0  # tiles around the base that are defended


def decide(world: World, side: int, levels: NDArray[np.int64]) -> tuple[Rows, Numbers]:
    """(sessions in which it is time for a command, their commands as `obey` takes them).

    The first of these that can be done: drive enemies from the base, harvesters, buildings, attack, soldiers.
    """
    rows = np.flatnonzero(world.tick % _TABLE[levels, 0] == 0)
    commands = np.zeros((len(rows), 4), np.int64)
    if not len(rows):
        return rows, commands
    world = world.part(rows)
    _, harvesters, barracks, towers, crowd = _TABLE[levels[rows]].T
    kind, other = world.kind[:, side], 1 - side
    can = dict(zip(VERB, legal(world, side).T, strict=False))
    home_x, home_y = world.x[:, side, 0], world.y[:, side, 0]

    fights = FIGHTS[world.kind[:, other]]
    at = (np.arange(len(rows)), other, nearest(world.x[:, other], world.y[:, other], home_x, home_y, fights))
    enemy_x, enemy_y = world.x[at], world.y[at]
    across, down = enemy_x - home_x, enemy_y - home_y
    attacked = fights.any(axis=1) & (across * across + down * down <= _NEAR**2)

    fighters, idle = FIGHTS[kind].sum(axis=1), (FIGHTS[kind] & (world.order[:, side] == Order.GUARD)).sum(axis=1)
    digging = (kind == Kind.HARVESTER).sum(axis=1) + (world.making[:, side, 0] != Kind.NONE)
    camps, cannons = (kind == Kind.BARRACKS).sum(axis=1), (kind == Kind.CANNON).sum(axis=1)
    wants_barracks = (camps < barracks) & ((camps == 0) | (fighters >= 4))
    wants_tower = ((kind == Kind.TOWER).sum(axis=1) < towers) & (fighters >= 3)
    saves = (wants_barracks | wants_tower) & ~attacked
    heavy = (cannons * 3 < fighters) & (fighters >= 2)
    choices = {
        "attack_move": (attacked & (idle > 0)) | (idle >= crowd + world.seed % 3),
        # three harvesters, then barracks, then the rest of the harvesters
        "train_harvester": (digging < harvesters) & ((camps > 0) | (digging < 3)),
        "build_barracks": wants_barracks,
        "build_tower": wants_tower,
        "train_cannon": heavy & ~saves,
        "train_rifle": ~heavy & ~saves,
    }
    commands[:, 0] = np.select(
        [can[verb] & wanted for verb, wanted in choices.items()], [VERB[verb] for verb in choices]
    )
    # to the enemy at the gates, or to the enemy's base, which lies opposite one's own
    commands[:, 1] = WHO.index("idle")
    commands[:, 2] = np.where(attacked, enemy_x, TILES - home_x)
    commands[:, 3] = np.where(attacked, enemy_y, TILES - home_y)
    return rows, commands
