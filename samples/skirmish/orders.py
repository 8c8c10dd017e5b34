"""Commands: four numbers for each session (verb, who, x, y), and what they change. Who may not, is not obeyed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from samples.skirmish.rules import (
    BUILDINGS,
    BUILT,
    COST,
    FIGHTS,
    HEALTH,
    KINDS,
    ORDERS,
    REFUND,
    SITES,
    TILES,
    TIME,
    TRAINED,
    UNITS,
    VERBS,
    WHO,
    Kind,
    Order,
)
from samples.skirmish.sight import zone
from samples.skirmish.state import Rows, World

Numbers = NDArray[np.int64]
Places = NDArray[np.float32]
_IDLE = WHO.index("idle")
_RIFLE, _CANNON = (np.arange(len(KINDS)) == kind for kind in (Kind.RIFLE, Kind.CANNON))
_MEMBERS = np.array([FIGHTS, _RIFLE, _CANNON, FIGHTS])


def legal(world: World, side: int) -> NDArray[np.bool_]:
    """Which verbs and groups can be commanded now: bool [sessions, len(VERBS) + len(WHO)]."""
    kind, making = world.kind[:, side], world.making[:, side, :BUILDINGS]
    buildings, units = kind[:, :BUILDINGS], kind[:, BUILDINGS:]
    members = [_MEMBERS[who][units] for who in range(len(WHO))]
    members[_IDLE] = members[_IDLE] & (world.order[:, side, BUILDINGS:] == Order.GUARD)
    who = np.stack(members, axis=1).any(axis=2)
    some, diggers = who[:, 0].copy(), (units == Kind.HARVESTER).any(axis=1)
    others = (buildings > Kind.BASE).any(axis=1)
    rich = world.credits[:, side, None] >= COST
    site = (buildings == Kind.NONE).any(axis=1)
    room = (units != Kind.NONE).sum(axis=1) + (making != Kind.NONE).sum(axis=1) < UNITS
    base, barracks = (room & _free(world, side, slice(None), kind).any(axis=1) for kind in (Kind.BASE, Kind.BARRACKS))
    verbs = (
        some | True, some, some, some, some, diggers, site & rich[:, Kind.BARRACKS], site & rich[:, Kind.TOWER],
        base & rich[:, Kind.HARVESTER], barracks & rich[:, Kind.RIFLE], barracks & rich[:, Kind.CANNON], others, others,
    )  # fmt: skip
    who[:, 0] |= ~some  # of each number something is always legal
    return np.concatenate([np.stack(verbs, axis=1), who], axis=1)


def obey(world: World, side: int, rows: Rows, commands: Numbers) -> None:
    """Carries out one command in each of `rows`; what is not legal, is not carried out.

    Args:
        commands: int64 [len(rows), 4]: verb, who, x, y. Numbers beyond their range are cut to it.
    """
    given = commands[:, 0] != 0
    rows, commands = rows[given], commands[given]
    if not len(rows):
        return
    part = world.part(rows)
    verb, who = commands[:, 0].clip(0, len(VERBS) - 1), commands[:, 1].clip(0, len(WHO) - 1)
    x, y = (commands[:, 2:4].T.clip(0, TILES - 1) + 0.5).astype(np.float32)
    verb = np.where(legal(part, side)[np.arange(len(rows)), verb], verb, 0)
    for carry_out, about in _CARRIED_OUT:
        what = about[verb]
        at = np.flatnonzero(what >= 0)
        if len(at):
            carry_out(part, side, at, what[at], who[at], x[at], y[at])
    world.put(rows, part)


def _order(world: World, side: int, at: Numbers, order: Numbers, who: Numbers, x: Places, y: Places) -> None:
    kind, old = world.kind[at, side, BUILDINGS:], world.order[at, side, BUILDINGS:]
    chosen = _MEMBERS[who[:, None], kind] & ((who != _IDLE)[:, None] | (old == Order.GUARD))
    chosen = np.where(order[:, None] == Order.HARVEST, kind == Kind.HARVESTER, chosen)
    home = order == Order.RETREAT
    x, y = np.where(home, world.x[at, side, 0], x), np.where(home, world.y[at, side, 0], y)
    explored = world.explored[at, side].reshape(len(at), -1)
    known = np.take_along_axis(explored, zone(world.ore_x[at], world.ore_y[at]), axis=1)
    field = nearest(world.ore_x[at], world.ore_y[at], x, y, known & (world.ore[at] > 0))
    told, slot = np.nonzero(chosen)
    unit = (at[told], side, BUILDINGS + slot)
    world.order[unit], world.patch[unit] = order[told], field[told]
    world.gx[unit], world.gy[unit] = x[told], y[told]
    world.hx[unit], world.hy[unit] = world.x[unit], world.y[unit]


def _train(world: World, side: int, at: Numbers, kind: Numbers, who: Numbers, x: Places, y: Places) -> None:
    world.credits[at, side] -= COST[kind]
    slot = _free(world, side, at, np.where(kind == Kind.HARVESTER, Kind.BASE, Kind.BARRACKS)[:, None]).argmax(axis=1)
    world.making[at, side, slot], world.due[at, side, slot] = kind, world.tick[at] + TIME[kind]


def _build(world: World, side: int, at: Numbers, kind: Numbers, who: Numbers, x: Places, y: Places) -> None:
    """On the free site that is nearest to the place."""
    world.credits[at, side] -= COST[kind]
    standing = world.kind[at, side, :BUILDINGS] != Kind.NONE
    corner = np.stack([world.x[at, side, 0], world.y[at, side, 0]], axis=1)
    sites = corner[:, None] + ((1 - 2 * side) * SITES).astype(np.float32)
    others = np.stack([world.x[at, side, :BUILDINGS], world.y[at, side, :BUILDINGS]], axis=2)
    taken = ((sites[:, :, None] == others[:, None]).all(axis=3) & standing[:, None]).any(axis=2)
    inside = ((sites > 0) & (sites < TILES)).all(axis=2)
    site = sites[np.arange(len(at)), nearest(sites[:, :, 0], sites[:, :, 1], x, y, inside & ~taken)]
    slot = (at, side, standing.argmin(axis=1))
    world.kind[slot], world.hp[slot], world.built[slot] = kind, HEALTH[kind], world.tick[at] + TIME[kind]
    world.x[slot], world.y[slot] = site.T


def _sell(world: World, side: int, at: Numbers, what: Numbers, who: Numbers, x: Places, y: Places) -> None:
    """Gives up the building that is nearest to the place; not the base."""
    stands = world.kind[at, side, :BUILDINGS] > Kind.BASE
    slot = (at, side, nearest(world.x[at, side, :BUILDINGS], world.y[at, side, :BUILDINGS], x, y, stands))
    world.credits[at, side] += (COST[world.kind[slot]] * REFUND).astype(np.int64)
    world.kind[slot] = world.hp[slot] = world.making[slot] = 0


def _rally(world: World, side: int, at: Numbers, what: Numbers, who: Numbers, x: Places, y: Places) -> None:
    world.rally_x[at, side], world.rally_y[at, side] = x, y


def _free(world: World, side: int, at: Any, kind: Any) -> NDArray[np.bool_]:
    """Which buildings of a kind are finished and train nothing: bool [len(at), BUILDINGS]."""
    slots = (at, side, slice(BUILDINGS))
    built = world.built[slots] <= world.tick[at][:, None]
    return (world.kind[slots] == kind) & (world.making[slots] == Kind.NONE) & built


# the functions that carry out verbs, and for each verb what they are told; -1: it is not theirs
_CARRIED_OUT = [
    (carry_out, np.array([about.get(name, -1) for name in VERBS]))
    for carry_out, about in (
        (_order, ORDERS), (_train, TRAINED), (_build, BUILT), (_sell, {"sell": 0}), (_rally, {"set_rally_point": 0}),
    )
]  # fmt: skip


def nearest(xs: Places, ys: Places, x: Places, y: Places, allowed: NDArray[np.bool_]) -> Numbers:
    """Of each row's places [n, k], which is nearest to (x, y) [n]; 0 where none is allowed."""
    across, down = xs - x[:, None], ys - y[:, None]
    return np.where(allowed, across * across + down * down, np.inf).argmin(axis=1)
