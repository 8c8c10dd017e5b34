"""Crafting chain: wood and stone lie about; planks, sticks and then one stone pickaxe are to be made at a workbench."""

from __future__ import annotations

from typing import Any, ClassVar

from ue_rl.bridges.tools import tool
from ue_rl.plugins.arena.scenes.scene import COMPASS, Body, Scene, in_reach, named, relative, walk_to
from ue_rl.plugins.arena.types import IDLE, AgentDecision, AgentObservation, VisibleObject, nearest

RECIPES: dict[str, dict[str, int]] = {
    "plank": {"wood": 1},
    "stick": {"plank": 1},
    "stone_pickaxe": {"stone": 3, "stick": 2},
}
GOAL = "stone_pickaxe"
RAW = ("wood", "stone")
ITEMS = (*RAW, *RECIPES)
BENCH_REACH = 3.0


def needed(have: dict[str, int]) -> dict[str, int]:
    """What is still missing for the goal, of each item, after everything that is carried is used."""
    missing = dict.fromkeys(ITEMS, 0)
    left = dict(have)

    def want(item: str, count: int) -> None:
        used = min(left.get(item, 0), count)
        left[item] = left.get(item, 0) - used
        missing[item] += count - used
        for part, each in RECIPES.get(item, {}).items():
            want(part, each * (count - used))

    want(GOAL, 1)
    return missing


class Crafting(Scene):
    """One agent. Reward: 0.5 for each useful item gathered or made, 5 for the pickaxe, -0.5 for what is wasted."""

    name: ClassVar[str] = "crafting"
    agents = ("crafter",)
    max_ticks: ClassVar[int] = 300
    sight: ClassVar[float] = 60.0  # the whole field
    choices: ClassVar[tuple[str, ...]] = (
        *COMPASS, "nearest wood", "nearest stone", "workbench", "collect", *RECIPES, IDLE
    )  # fmt: skip
    obs_names: ClassVar[tuple[str, ...]] = (
        "x", "z", "ticks left", "in reach", *ITEMS, *named("wood", 2), *named("stone", 2), *named("workbench", 1)
    )  # fmt: skip

    def begin(self) -> None:
        """See Scene."""
        self.crafted = 0
        self.gathered = 0
        self.wasted = 0
        self.place("wood", 6)
        self.place("stone", 6)
        self.place("workbench", 1)

    def advance(self) -> None:
        """See Scene."""
        self.bodies["crafter"].reward -= 0.01
        self.success = self.over = self.bodies["crafter"].items.get(GOAL, 0) > 0

    @tool
    def collect(self, agent: str, item_name: str | None = None) -> str:
        """Take the nearest wood or stone, or what is named, within 1.5 units."""
        body = self.bodies[agent]
        thing = self.taken(body, item_name, *RAW)
        self._gain(body, thing.kind)
        self.gathered += 1
        return f"took {thing.name}"

    @tool
    def craft_item(self, agent: str, recipe: str) -> str:
        """Make an item of what you carry, within 3 units of the workbench: plank, stick or stone_pickaxe."""
        body = self.bodies[agent]
        bench = next(thing for thing in self.things if thing.kind == "workbench")
        if recipe not in RECIPES:
            raise ValueError(f"there is no recipe {recipe!r}; there are {', '.join(RECIPES)}")
        if body.away(bench) > BENCH_REACH:
            raise ValueError("the workbench is too far away")
        lacking = [part for part, count in RECIPES[recipe].items() if body.items.get(part, 0) < count]
        if lacking:
            raise ValueError(f"not enough {', '.join(lacking)}")
        missing = needed(body.items)  # before its parts are used up
        for part, count in RECIPES[recipe].items():
            body.items[part] -= count
        self.crafted += 1
        self._gain(body, recipe, missing)
        return f"made a {recipe}"

    def _gain(self, body: Body, item: str, missing: dict[str, int] | None = None) -> None:
        wants = missing
        if not wants:
            wants = needed(body.items)
        useful = wants[item] > 0
        body.items[item] = body.items.get(item, 0) + 1
        self.wasted += not useful
        if useful:
            if item == GOAL:
                body.reward += 5.0
            else:
                body.reward += 0.5
        else:
            body.reward += -0.5

    @tool
    def get_recipes(self, agent: str) -> dict[str, dict[str, int]]:
        """What can be made, and of what."""
        return RECIPES

    @tool
    def get_inventory(self, agent: str) -> dict[str, int]:
        """What you carry."""
        return dict(self.bodies[agent].items)

    def told(self, body: Body) -> dict[str, Any]:
        """See Scene."""
        return {**super().told(body), "goal": GOAL, "recipes": RECIPES}

    def metrics(self) -> dict[str, float]:
        """Efficiency: worth of what is carried of the worth of what was gathered and can serve the goal."""
        useful = 0
        if self.success:
            useful = 5
        efficiency = 0.0
        if self.gathered:
            efficiency = useful / self.gathered
        return {
            "items": float(self.crafted),
            "efficiency": efficiency,
            "waste": float(self.wasted),
            "time": float(self.tick),
        }

    def state(self) -> list[Any]:
        """See Scene."""
        return [self.crafted, self.gathered, self.wasted]

    @classmethod
    def encode(cls, seen: AgentObservation) -> list[float]:
        """See Scene."""
        x, _, z = seen.position
        have = {item.name: item.quantity for item in seen.inventory}
        of_kind = {kind: [t for t in seen.nearby_resources if t.type == kind] for kind in (*RAW, "workbench")}
        return [
            x / cls.size,
            z / cls.size,
            1 - seen.tick / cls.max_ticks,
            in_reach(of_kind["wood"] + of_kind["stone"]),
            *(have.get(item, 0) / 3 for item in ITEMS),
            *relative(of_kind["wood"], seen, 2, cls.sight),
            *relative(of_kind["stone"], seen, 2, cls.sight),
            *relative(of_kind["workbench"], seen, 1, cls.sight),
        ]

    @classmethod
    def call(cls, word: str, seen: AgentObservation) -> AgentDecision:
        """See Scene."""
        if word in RECIPES:
            return AgentDecision("craft_item", {"recipe": word})
        return walk_to(nearest_of(word.removeprefix("nearest "), seen))


def nearest_of(kind: str, seen: AgentObservation) -> VisibleObject | None:
    """The nearest resource of a kind."""
    return nearest([thing for thing in seen.nearby_resources if thing.type == kind])
