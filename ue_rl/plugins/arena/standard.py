"""The tools of a game over HTTP: movement, inventory and world query, under all names that clients use.

What moves or takes is carried out by the game: here its parameters are checked and handed back as a command. Queries
are answered from the agent's last observation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import FiniteFloat, NonNegativeFloat

from ue_rl.bridges.tools import ToolRegistry, tool
from ue_rl.plugins.arena.types import AgentObservation, VisibleObject
from ue_rl.system.errors import ToolError

Point = tuple[FiniteFloat, FiniteFloat, FiniteFloat]
Command = dict[str, Any]


def standard_tools(seen: Mapping[str, AgentObservation]) -> ToolRegistry:
    """The registry; `seen` has each agent's last observation."""
    registry = ToolRegistry.of(Queries(seen), hidden=("agent",))
    for names, function, description in COMMANDS:
        for name in names:
            registry.add(function, name, description)
    return registry


def _walk(target_position: Point, speed: NonNegativeFloat = 1.0) -> Command:
    return {"target_position": list(target_position), "speed": speed}


def _at_point(target_position: Point) -> Command:
    return {"target_position": list(target_position)}


def _explore(direction: Literal["north", "east", "south", "west"]) -> Command:
    return {"direction": direction}


def _take(item_name: str | None = None) -> Command:
    return {"item_name": item_name}


def _drop(item_name: str) -> Command:
    return {"item_name": item_name}


def _use(item_name: str, target: str | None = None) -> Command:
    return {"item_name": item_name, "target": target}


def _craft(recipe: str) -> Command:
    return {"recipe": recipe}


def _nothing() -> Command:
    return {}


COMMANDS: tuple[tuple[tuple[str, ...], Callable[..., Command], str], ...] = (  # names, parameters, description
    (("move_to", "navigate_to"), _walk, "Walk to a point."),
    (("stop_movement",), _nothing, "Stop walking."),
    (("rotate_to_face", "rotate"), _at_point, "Turn towards a point."),
    (("idle",), _nothing, "Do nothing."),
    (("plan_path",), _at_point, "Find a way to a point, around obstacles."),
    (("explore_direction",), _explore, "Walk into unknown ground."),
    (("pickup_item", "pickup", "collect"), _take, "Take something that is near; without a name the nearest."),
    (("drop_item", "drop"), _drop, "Put down something that is carried."),
    (("use_item", "use"), _use, "Use something that is carried."),
    (("craft_item", "craft"), _craft, "Make something of what is carried."),
)


class Queries:
    """What is answered here.

    Args:
        seen: each agent's last observation.
    """

    def __init__(self, seen: Mapping[str, AgentObservation]) -> None:
        self._seen = seen

    def _of(self, agent: str) -> AgentObservation:
        found = self._seen.get(agent)
        if found is None:
            raise ToolError(
                f"there is no observation of agent {agent!r}",
                code="AGENT_NOT_FOUND",
                field="agent_id",
                cure="post to /observe or /tick first",
            )
        return found

    @tool
    def get_exploration_status(self, agent: str) -> dict[str, Any]:
        """What is known of the ground."""
        return self._of(agent).exploration

    @tool
    def get_recipes(self, agent: str) -> Any:
        """What can be made, as far as the game says it."""
        return self._of(agent).custom.get("recipes", {})

    @tool
    def get_inventory(self, agent: str) -> list[dict[str, Any]]:
        """What is carried."""
        return [item.model_dump() for item in self._of(agent).inventory]

    @tool
    def get_nearby_entities(self, agent: str, radius: NonNegativeFloat = 10.0) -> list[dict[str, Any]]:
        """Resources, hazards and others within a radius, nearest first."""
        near = sorted(_all(self._of(agent)), key=lambda thing: thing.distance)
        return [thing.model_dump() for thing in near if thing.distance <= radius]

    @tool
    def get_visible_entities(self, agent: str) -> list[dict[str, Any]]:
        """Others that are seen."""
        return [thing.model_dump() for thing in self._of(agent).visible_entities]

    @tool
    def measure_distance(self, agent: str, target_position: Point) -> float:
        """How far a point is away."""
        return math.dist(self._of(agent).position, target_position)

    @tool
    def raycast(self, agent: str, direction: Point, max_distance: NonNegativeFloat = 100.0) -> dict[str, Any]:
        """What lies first on a line from the agent, within one unit of it."""
        seen = self._of(agent)
        length = math.hypot(*direction)
        if not length:
            raise ValueError("a direction is not 0, 0, 0")
        hits = []
        for thing in _all(seen):
            if "position" not in thing.model_fields_set:
                continue  # it is known by its name alone
            away = [a - b for a, b in zip(thing.position, seen.position, strict=True)]
            along = sum(a * b for a, b in zip(away, direction, strict=True)) / length
            beside = math.sqrt(max(0.0, sum(a * a for a in away) - along * along))
            if 0 <= along <= max_distance and beside <= 1.0:
                hits.append((along, thing.name))
        return {"hit": bool(hits), **(dict(zip(("distance", "name"), min(hits), strict=True)) if hits else {})}


def _all(seen: AgentObservation) -> list[VisibleObject]:
    return [*seen.nearby_resources, *seen.nearby_hazards, *seen.visible_entities]
