"""Games of samples/skirmish for its tests: begun, given commands, and brought into positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from samples.skirmish import rules
from samples.skirmish.bridge import Skirmish
from samples.skirmish.rules import BUILDINGS, VERB, VERBS, Kind
from samples.skirmish.sight import MAP_SIZE, NUMBERS


def begun(num_envs: int = 1, seed: int = 7, **kwargs: Any) -> Skirmish:
    game = Skirmish(num_envs, **kwargs)
    game.reset_envs(np.arange(num_envs), list(range(seed, seed + num_envs)), [None] * num_envs)
    return game


def drawn(rng: np.random.Generator, masks: np.ndarray) -> np.ndarray:
    """A legal command for each row of `masks`."""
    starts = np.cumsum([0, len(VERBS), len(rules.WHO), rules.TILES])
    luck = rng.random(masks.shape) * masks
    return np.stack([part.argmax(axis=1) for part in np.split(luck, starts[1:], axis=1)], axis=1).astype(np.float32)


def wait(game: Skirmish, ticks: int) -> float:
    """Lets time pass without commands; the sum of the rewards of the first session."""
    idle, envs, total = np.zeros((game.num_envs, 4), np.float32), np.arange(game.num_envs), 0.0
    for _ in range(ticks):
        game.step_envs(idle, envs)
        total += float(game.outbox.rewards[0])
    return total


def number(game: Skirmish, name: str, env: int = 0) -> float:
    return float(game.outbox.obs[env, MAP_SIZE + NUMBERS.index(name)])


def units(game: Skirmish, kind: int, side: int = 0) -> np.ndarray:
    return np.flatnonzero(game.world.kind[0, side] == kind)


def command(game: Skirmish, verb: str, who: str = "fighters", x: int = 0, y: int = 0) -> None:
    game.apply_action(0, np.array([VERB[verb], rules.WHO.index(who), x, y], np.float32))


def army(game: Skirmish, side: int, kind: int, x: float, y: float, count: int = 1) -> np.ndarray:
    """Fighters of a side that guard a place; their slots."""
    world = game.world
    slots = BUILDINGS + np.flatnonzero(world.kind[0, side, BUILDINGS:] == Kind.NONE)[:count]
    world.kind[0, side, slots], world.hp[0, side, slots] = kind, rules.HEALTH[kind]
    world.order[0, side, slots] = rules.ORDERS["guard"]
    for place, at in ((world.x, x), (world.y, y), (world.gx, x), (world.gy, y)):
        place[0, side, slots] = at
    return slots
