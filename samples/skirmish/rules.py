"""The numbers of the game: what there is, what it costs, and which commands there are.

The map has 32 x 32 tiles; tile (x, y) has its centre at (x + 0.5, y + 0.5). For fog and for the spatial observation
four by four tiles are a zone. The world ticks 25 times a second. Units move in each tick; they look, decide and shoot
in every fifth.
"""

from __future__ import annotations

import numpy as np

TILES, ZONE, ZONES = 32, 4, 8
TICK_RATE, THINK, MAX_TICKS = 25, 5, 3000  # ticks a second; ticks from one decision to the next; then it is a draw

# -- what stands on the map: a session has two sides, a side 6 slots of buildings (the base first) and 20 of units
BUILDINGS, UNITS = 6, 20
SLOTS = BUILDINGS + UNITS


class Kind:
    """What stands in a slot: numbers of the rows of the tables below."""

    NONE, BASE, BARRACKS, TOWER, HARVESTER, RIFLE, CANNON = range(7)


KINDS = ("none", "base", "barracks", "tower", "harvester", "rifle", "cannon")
COST = np.array([0, 600, 300, 250, 100, 100, 200])
HEALTH = np.array([0, 800, 400, 250, 80, 60, 80])
TIME = np.array([0, 0, 150, 100, 75, 60, 100])  # ticks to build or to train
DAMAGE = np.array([0, 0, 0, 6, 0, 4, 9])  # each time it shoots
RANGE = np.array([0, 0, 0, 4, 0, 2.5, 4], np.float32)  # tiles
SPEED = np.array([0, 0, 0, 0, 0.15, 0.18, 0.14], np.float32)  # tiles a tick
FIGHTS = (DAMAGE > 0) & (SPEED > 0)
SIGHT, LEASH = 4.0, 5.0  # tiles: at what a unit goes for an enemy, and how far from the place that it guards

# -- economy
START_CREDITS, START_HARVESTERS = 400, 2
PATCHES, ORE = 8, 2500  # fields of ore: three near each base, two in the middle
LOAD, LOADED = 10, 50  # credits that a harvester takes at once, and with how many it drives home
REFUND = 0.5  # of the cost, for a building that is sold
# where buildings may stand, in tiles from the base towards the enemy: the nearest free one is taken
SITES = np.array([(3, 0), (0, 3), (3, 3), (6, 3), (3, 6), (-3, 0), (0, -3), (3, -3), (-3, 3), (6, 0), (0, 6)])


# -- orders of units, and the commands that give them; a command is four numbers: verb, who, x, y
class Order:
    """What a unit does."""

    GUARD, ATTACK_MOVE, PATROL, RETREAT, HARVEST = range(5)


VERBS = (
    "nothing", "attack_move", "guard", "patrol", "retreat", "harvest", "build_barracks", "build_tower",
    "train_harvester", "train_rifle", "train_cannon", "set_rally_point", "sell",
)  # fmt: skip
VERB = {name: number for number, name in enumerate(VERBS)}
ORDERS = {name: number for number, name in enumerate(("guard", "attack_move", "patrol", "retreat", "harvest"))}
BUILT = {"build_barracks": Kind.BARRACKS, "build_tower": Kind.TOWER}
TRAINED = {"train_harvester": Kind.HARVESTER, "train_rifle": Kind.RIFLE, "train_cannon": Kind.CANNON}
WHO = ("fighters", "rifles", "cannons", "idle")  # idle: fighters that guard


class Result:
    """Of the player, who has side 0."""

    PLAYING, WIN, LOSE, DRAW = range(4)


RESULTS = ("", "win", "lose", "draw")
LEVELS = ("weak", "middle", "strong")  # opponents
