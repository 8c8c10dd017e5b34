"""The world of many sessions as arrays: a session is a row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samples.skirmish.rules import PATCHES, SLOTS, ZONES

Rows = NDArray[np.intp]
_ARRAYS = ("entities", "places", "sides", "games", "fields", "patches", "fog", "memory")


class World:
    """`sessions` games. The second dimension of entities and sides is the side: 0 the player, 1 the opponent.

    Attributes:
        kind, hp, order, load, patch, making, built, due: int64 [sessions, 2, SLOTS]. A slot of `kind` 0 is free; `load`
            is a harvester's ore and `patch` its field; `making` is what a building trains and `due` the tick when it is
            done; `built` is the tick from which on a building works.
        x, y, vx, vy, gx, gy, hx, hy: float32, of the same shape: place, velocity in tiles a tick, goal of the order,
            the other end of a patrol.
        credits, lost, rally_x, rally_y, attacked: int64 [sessions, 2]; `lost` is the cost of what was destroyed,
            `attacked` the tick when something of the side was last hit.
        tick, result, seed, level: int64 [sessions]; `level` is the opponent's.
        ore: int64 [sessions, PATCHES]. ore_x, ore_y: float32, of the same shape.
        visible, explored: bool [sessions, 2, ZONES, ZONES], by side, row, column.
        remembered: int64 [sessions, ZONES, ZONES]: buildings of the opponent where the player last saw them.
    """

    def __init__(self, sessions: int) -> None:
        self.entities = np.zeros((8, sessions, 2, SLOTS), np.int64)
        self.places = np.zeros((8, sessions, 2, SLOTS), np.float32)
        self.sides = np.zeros((5, sessions, 2), np.int64)
        self.games = np.zeros((4, sessions), np.int64)
        self.fields = np.zeros((1, sessions, PATCHES), np.int64)
        self.patches = np.zeros((2, sessions, PATCHES), np.float32)
        self.fog = np.zeros((2, sessions, 2, ZONES, ZONES), np.bool_)
        self.memory = np.zeros((1, sessions, ZONES, ZONES), np.int64)
        self._name()

    def _name(self) -> None:
        self.kind, self.hp, self.order, self.load, self.patch, self.making, self.built, self.due = self.entities
        self.x, self.y, self.vx, self.vy, self.gx, self.gy, self.hx, self.hy = self.places
        self.credits, self.lost, self.rally_x, self.rally_y, self.attacked = self.sides
        self.tick, self.result, self.seed, self.level = self.games
        (self.ore,), (self.ore_x, self.ore_y) = self.fields, self.patches
        (self.visible, self.explored), (self.remembered,) = self.fog, self.memory

    def __len__(self) -> int:
        return len(self.tick)

    def part(self, rows: Rows) -> World:
        """Some sessions: itself where they are all, else a copy, which `put` takes back."""
        if len(rows) == len(self):
            return self
        other = World.__new__(World)
        for name in _ARRAYS:
            setattr(other, name, getattr(self, name)[:, rows])
        other._name()
        return other

    def put(self, rows: Rows, part: World) -> None:
        """Takes over what has become of a `part`."""
        if part is not self:
            for name in _ARRAYS:
                getattr(self, name)[:, rows] = getattr(part, name)
