"""What happens in the world: in each tick units move, in every fifth they shoot, dig, are trained and look around."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from samples.skirmish import opponents
from samples.skirmish.orders import nearest, obey
from samples.skirmish.rules import (
    BUILDINGS,
    COST,
    DAMAGE,
    FIGHTS,
    HEALTH,
    LEASH,
    LOAD,
    LOADED,
    MAX_TICKS,
    RANGE,
    SIGHT,
    SPEED,
    THINK,
    Kind,
    Order,
    Result,
)
from samples.skirmish.sight import look
from samples.skirmish.state import Rows, World

_REACH, _HOME = np.float32(0.3**2), np.float32(1.5**2)  # squares of tiles: to have arrived at a place, at a base


def advance(world: World, rows: Rows) -> None:
    """One tick of the games in `rows`, of which none is over."""
    everything = slice(None) if len(rows) == len(world) else rows
    world.tick[everything] += 1
    world.x[everything] += world.vx[everything]
    world.y[everything] += world.vy[everything]
    due = rows[world.tick[everything] % THINK == 0]
    if len(due):
        part = world.part(due)
        obey(part, 1, *opponents.decide(part, 1, part.level))
        _think(part)
        world.put(due, part)


def _think(world: World) -> None:
    shots = _fight(world)
    _dig(world)
    _train(world)
    _steer(world, *shots)
    look(world)
    _judge(world)


def _fight(world: World) -> tuple[NDArray, ...]:
    """Whoever can shoots at the nearest enemy: (session, side, slot, slot of the enemy, square of the distance)."""
    armed = (DAMAGE[world.kind] > 0) & (world.order != Order.RETREAT) & (world.built <= world.tick[:, None, None])
    row, side, slot = np.nonzero(armed)
    if not len(row):
        return row, side, slot, slot, slot
    other = 1 - side
    across = world.x[row, other] - world.x[row, side, slot][:, None]
    down = world.y[row, other] - world.y[row, side, slot][:, None]
    square = across * across
    square += down * down
    square[world.kind[row, other] == Kind.NONE] = np.inf
    enemy = square.argmin(axis=1)
    square = square[np.arange(len(row)), enemy]
    kind = world.kind[row, side, slot]
    hits = square <= RANGE[kind] ** 2
    if hits.any():
        at = np.ravel_multi_index((row[hits], other[hits], enemy[hits]), world.hp.shape)
        hurt = np.bincount(at, DAMAGE[kind[hits]], world.hp.size).astype(np.int64).reshape(world.hp.shape)
        world.hp -= hurt
        np.copyto(world.attacked, world.tick[:, None], where=hurt.any(axis=2))
        dead = (world.hp <= 0) & (world.kind != Kind.NONE)
        if dead.any():
            world.lost += (COST[world.kind] * dead).sum(axis=2)
            world.kind[dead] = world.hp[dead] = world.making[dead] = 0
            world.vx[dead] = world.vy[dead] = 0
    return row, side, slot, enemy, square


def _dig(world: World) -> None:
    """Harvesters load at their field, unload at the base, and look for another field where theirs is empty."""
    row, side, slot = np.nonzero((world.kind == Kind.HARVESTER) & (world.order == Order.HARVEST))
    load, field = world.load[row, side, slot], world.patch[row, side, slot]
    x, y = world.x[row, side, slot], world.y[row, side, slot]
    ore = world.ore[row, field]
    full = (load >= LOADED) | ((ore <= 0) & (load > 0))
    searching = np.flatnonzero((ore <= 0) & (load == 0))
    if len(searching):
        r = row[searching]
        field[searching] = nearest(world.ore_x[r], world.ore_y[r], x[searching], y[searching], world.ore[r] > 0)
        world.patch[row, side, slot] = field
    across = np.where(full, world.x[row, side, 0], world.ore_x[row, field])
    down = np.where(full, world.y[row, side, 0], world.ore_y[row, field])
    world.gx[row, side, slot], world.gy[row, side, slot] = across, down
    across, down = across - x, down - y
    square = across * across + down * down
    digs, unloads = ~full & (square < _REACH) & (ore > 0), full & (square < _HOME)
    np.subtract.at(world.ore, (row[digs], field[digs]), LOAD)
    np.add.at(world.credits, (row[unloads], side[unloads]), load[unloads])
    load[digs] += LOAD
    load[unloads] = 0
    world.load[row, side, slot] = load


def _train(world: World) -> None:
    """What is done leaves its building: one unit of each side at once, if there is room."""
    making = world.making[:, :, :BUILDINGS]
    done = (making != Kind.NONE) & (world.due[:, :, :BUILDINGS] <= world.tick[:, None, None])
    row, side = np.nonzero(done.any(axis=2))
    if not len(row):
        return
    free = world.kind[row, side, BUILDINGS:] == Kind.NONE
    room = free.any(axis=1)
    row, side, slot = row[room], side[room], BUILDINGS + free[room].argmax(axis=1)
    maker = done[row, side].argmax(axis=1)
    kind = making[row, side, maker]
    making[row, side, maker] = Kind.NONE
    digs = kind == Kind.HARVESTER
    at = (row, side, slot)
    world.kind[at], world.hp[at] = kind, HEALTH[kind]
    world.order[at], world.load[at] = np.where(digs, Order.HARVEST, Order.ATTACK_MOVE), 0
    world.x[at], world.y[at] = world.x[row, side, maker], world.y[row, side, maker]
    world.gx[at], world.gy[at] = world.rally_x[row, side], world.rally_y[row, side]
    world.patch[at] = nearest(world.ore_x[row], world.ore_y[row], world.x[at], world.y[at], world.ore[row] > 0)


def _steer(world: World, row: NDArray, side: NDArray, slot: NDArray, enemy: NDArray, square: NDArray) -> None:
    """New velocities: to the goal, to an enemy in sight, or none, to shoot."""
    goal_x, goal_y = world.gx.copy(), world.gy.copy()
    busy = np.zeros(world.kind.shape, np.bool_)
    kind, order = world.kind[row, side, slot], world.order[row, side, slot]
    seen = (square <= SIGHT**2) & FIGHTS[kind]
    row, side, slot, enemy, order = (values[seen] for values in (row, side, slot, enemy, order))
    at = (row, side, slot)
    enemy_x, enemy_y = world.x[row, 1 - side, enemy], world.y[row, 1 - side, enemy]
    across, down = enemy_x - world.gx[at], enemy_y - world.gy[at]
    near = (order != Order.GUARD) | (across * across + down * down <= LEASH**2)
    shoots = square[seen] <= RANGE[kind[seen]] ** 2
    chases = near & ~shoots
    goal_x[at] = np.where(shoots, world.x[at], np.where(chases, enemy_x, goal_x[at]))
    goal_y[at] = np.where(shoots, world.y[at], np.where(chases, enemy_y, goal_y[at]))
    busy[at] = shoots | chases

    across, down = goal_x - world.x, goal_y - world.y
    far = np.sqrt(across * across + down * down)
    pace = np.minimum(SPEED[world.kind], far / np.float32(THINK)) / np.maximum(far, np.float32(1e-6))
    np.multiply(across, pace, world.vx)
    np.multiply(down, pace, world.vy)
    arrived = (far * far < _REACH) & ~busy & (world.order != Order.GUARD) & (world.order != Order.HARVEST)
    arrived[:, :, :BUILDINGS] = False
    turns = arrived & (world.order == Order.PATROL)
    for goal, other_end in ((world.gx, world.hx), (world.gy, world.hy)):
        goal[turns], other_end[turns] = other_end[turns], goal[turns]
    world.order[arrived & ~turns] = Order.GUARD


def _judge(world: World) -> None:
    mine, theirs = (world.kind[:, side, 0] == Kind.BASE for side in (0, 1))
    late = world.tick >= MAX_TICKS
    world.result[:] = np.select(
        [~mine & ~theirs, ~theirs, ~mine, late], [Result.DRAW, Result.WIN, Result.LOSE, Result.DRAW], Result.PLAYING
    )
