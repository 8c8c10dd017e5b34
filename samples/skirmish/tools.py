"""The commands as tools, and the game as text: for minds that read and call."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import numpy as np

from samples.skirmish import rules
from samples.skirmish.orders import legal, obey
from samples.skirmish.sight import zone
from samples.skirmish.state import World
from ue_rl.bridges.tools import ToolError, tool

Who = Literal["fighters", "rifles", "cannons", "idle"]
_DOES = {number: name for name, number in rules.ORDERS.items()}


class Tools:
    """Methods of a bridge whose `world` the sessions are; `changed` is called with a session that got a command."""

    world: World

    def changed(self, env_id: int) -> None:
        """What is observed is another one."""
        raise NotImplementedError

    @tool
    def attack_move(self, env_id: int, x: int, y: int, who: Who = "fighters") -> str:
        """Sends units to a tile; they fight what they meet, and guard the place when they are there.

        Args:
            x: tile from the left, 0 to 31.
            y: tile from below, 0 to 31.
            who: fighters are rifles and cannons; idle are those of them that guard.
        """
        return self._command(env_id, "attack_move", who, x, y)

    @tool
    def guard(self, env_id: int, x: int, y: int, who: Who = "fighters") -> str:
        """Sends units to guard a tile: they attack enemies that come near, and come back."""
        return self._command(env_id, "guard", who, x, y)

    @tool
    def patrol(self, env_id: int, x: int, y: int, who: Who = "fighters") -> str:
        """Lets units go to and fro between where they are and a tile, and fight what they meet."""
        return self._command(env_id, "patrol", who, x, y)

    @tool
    def retreat(self, env_id: int, who: Who = "fighters") -> str:
        """Calls units back to the base; on the way they do not shoot."""
        return self._command(env_id, "retreat", who)

    @tool
    def harvest(self, env_id: int, x: int, y: int) -> str:
        """Sends all harvesters to the known field of ore nearest to a tile. New ones find a field by themselves."""
        return self._command(env_id, "harvest", "fighters", x, y)

    @tool
    def build_structure(self, env_id: int, structure: Literal["barracks", "tower"], x: int, y: int) -> str:
        """Builds at the site beside the base nearest to a tile. Barracks train fighters; a tower shoots."""
        return self._command(env_id, f"build_{structure}", "fighters", x, y)

    @tool
    def train_unit(self, env_id: int, unit: Literal["harvester", "rifle", "cannon"]) -> str:
        """Trains a unit, one at a time: harvesters in the base, rifles and cannons in the barracks."""
        return self._command(env_id, f"train_{unit}")

    @tool
    def set_rally_point(self, env_id: int, x: int, y: int) -> str:
        """Says where new fighters go."""
        return self._command(env_id, "set_rally_point", "fighters", x, y)

    @tool
    def sell(self, env_id: int, x: int, y: int) -> str:
        """Sells the building that is nearest to a tile, for half of what it cost; never the base."""
        return self._command(env_id, "sell", "fighters", x, y)

    def _command(self, env_id: int, verb: str, who: str = "fighters", x: int = 0, y: int = 0) -> str:
        if not (0 <= x < rules.TILES and 0 <= y < rules.TILES):
            raise _refusal(verb, "this tile is not on the map", f"x and y from 0 to {rules.TILES - 1}", (x, y))
        row = np.array([env_id])
        verbs, groups = np.split(legal(self.world.part(row), 0)[0], [len(rules.VERBS)])
        possible = ", ".join(name for name, can in zip(rules.VERBS[1:], verbs[1:], strict=True) if can)
        if not verbs[rules.VERB[verb]]:
            has = f"{self.world.credits[env_id, 0]} credits"
            raise _refusal(verb, f"{verb} is not possible now", possible or "waiting: nothing else is possible", has)
        if rules.VERB[verb] < rules.VERB["harvest"] and not groups[rules.WHO.index(who)]:
            there = ", ".join(name for name, any_of in zip(rules.WHO, groups, strict=True) if any_of)
            raise _refusal(verb, f"there are no {who}", there, who)
        obey(self.world, 0, row, np.array([[rules.VERB[verb], rules.WHO.index(who), x, y]]))
        self.changed(env_id)
        return f"{verb}: done, {self.world.credits[env_id, 0]} credits left"

    # -- to be read

    def describe(self, env_id: int) -> str:
        """The game as the player sees it now."""
        world, result = self.world, rules.RESULTS[self.world.result[env_id]]
        rally = _tile(world.rally_x[env_id, 0], world.rally_y[env_id, 0])
        lines = [
            f"Tick {world.tick[env_id]} of {rules.MAX_TICKS}." + (f" The game is over: {result}." if result else ""),
            f"Credits: {world.credits[env_id, 0]}. New fighters go to {rally}.",
        ]
        seen = world.visible[env_id, 0].reshape(-1)[zone(world.x[env_id, 1], world.y[env_id, 1])]
        for side, title, known in ((0, "You have:", np.ones_like(seen)), (1, "You see of the enemy:", seen)):
            slots = np.flatnonzero(known & (world.kind[env_id, side] != rules.Kind.NONE))
            things = Counter(self._thing(env_id, side, slot) for slot in slots)
            lines += [title, *(f"- {count} {text}" for text, count in things.items())]
        places = (np.argwhere(world.remembered[env_id].T) + 0.5) * rules.ZONE
        return "\n".join([*lines, *(f"An enemy building was seen around {_tile(*place)}." for place in places)])

    def _thing(self, env_id: int, side: int, slot: int) -> str:
        world, at = self.world, (env_id, side, slot)
        kind, place = int(world.kind[at]), _tile(world.x[at], world.y[at])
        text = f"{rules.KINDS[kind]} at {place}, health {world.hp[at]} of {rules.HEALTH[kind]}"
        if side:
            return text
        if slot >= rules.BUILDINGS:
            return f"{text}, {_DOES[int(world.order[at])]}"
        if world.built[at] > world.tick[env_id]:
            return f"{text}, finished in {world.built[at] - world.tick[env_id]} ticks"
        made = int(world.making[at])
        return text if made == rules.Kind.NONE else f"{text}, trains a {rules.KINDS[made]}"

    def map_info(self, env_id: int) -> dict[str, Any]:
        """What does not change: sizes, costs, the own base, and where ore lies."""
        world = self.world
        fields = zip(world.ore_x[env_id], world.ore_y[env_id], strict=True)
        return {
            "width": rules.TILES, "height": rules.TILES, "max_ticks": rules.MAX_TICKS,
            "costs": dict(zip(rules.KINDS[2:], rules.COST[2:].tolist(), strict=True)),
            "base": [int(world.x[env_id, 0, 0]), int(world.y[env_id, 0, 0])],
            "enemy_base": "unknown, but the map is symmetric: opposite yours",
            "ore": [[int(x), int(y)] for x, y in fields],
        }  # fmt: skip


def _refusal(verb: str, why: str, expected: str, got: object) -> ToolError:
    return ToolError(why, tool=verb, code="TOOL_EXECUTION_FAILED", field="command", expected=expected, got=got)


def _tile(x: float, y: float) -> str:
    return f"({int(x)}, {int(y)})"
