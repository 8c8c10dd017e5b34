"""The tools of a game over HTTP: movement, inventory and world query, under all names that clients use.

What moves or takes is carried out by the game: here its parameters are checked and handed back as a command. Queries
are answered from the agent's last observation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import FiniteFloat, NonNegativeFloat

from ue_rl.arena.types import Observation, Seen
from ue_rl.errors import ToolError
from ue_rl.tools import ToolRegistry, tool

Point = tuple[FiniteFloat, FiniteFloat, FiniteFloat]
ALIASES = {
    "move_to": ("navigate_to",), "rotate_to_face": ("rotate",), "pickup_item": ("pickup", "collect"),
    "drop_item": ("drop",), "use_item": ("use",), "craft_item": ("craft",),
}  # fmt: skip
Command = dict[str, Any]


def standard_tools(seen: Mapping[str, Observation]) -> ToolRegistry:
    """The registry; `seen` has each agent's last observation."""
    tools = StandardTools(seen)
    registry = ToolRegistry.of(tools, hidden=("agent",))
    for name, others in ALIASES.items():
        for other in others:
            registry.add(getattr(tools, name), other)
    return registry


class StandardTools:
    """See the module's docstring.

    Args:
        seen: each agent's last observation.
    """

    def __init__(self, seen: Mapping[str, Observation]) -> None:
        self._seen = seen

    def _of(self, agent: str, name: str) -> Observation:
        if agent not in self._seen:
            raise ToolError(
                f"there is no observation of agent {agent!r}",
                tool=name,
                code="AGENT_NOT_FOUND",
                field="agent_id",
                cure="post to /observe or /tick first",
            )
        return self._seen[agent]

    # -- movement

    @tool
    def move_to(self, target_position: Point, speed: NonNegativeFloat = 1.0) -> Command:
        """Walk to a point."""
        return {"target_position": list(target_position), "speed": speed}

    @tool
    def stop_movement(self) -> Command:
        """Stop walking."""
        return {}

    @tool
    def rotate_to_face(self, target_position: Point) -> Command:
        """Turn towards a point."""
        return {"target_position": list(target_position)}

    @tool
    def idle(self) -> Command:
        """Do nothing."""
        return {}

    @tool
    def plan_path(self, target_position: Point) -> Command:
        """Find a way to a point, around obstacles."""
        return {"target_position": list(target_position)}

    @tool
    def explore_direction(self, direction: Literal["north", "east", "south", "west"]) -> Command:
        """Walk into unknown ground."""
        return {"direction": direction}

    @tool
    def get_exploration_status(self, agent: str) -> dict[str, Any]:
        """What is known of the ground."""
        return self._of(agent, "get_exploration_status").exploration

    # -- inventory

    @tool
    def pickup_item(self, item_name: str | None = None) -> Command:
        """Take something that is near; without a name the nearest."""
        return {"item_name": item_name}

    @tool
    def drop_item(self, item_name: str) -> Command:
        """Put down something that is carried."""
        return {"item_name": item_name}

    @tool
    def use_item(self, item_name: str, target: str | None = None) -> Command:
        """Use something that is carried."""
        return {"item_name": item_name, "target": target}

    @tool
    def craft_item(self, recipe: str) -> Command:
        """Make something of what is carried."""
        return {"recipe": recipe}

    @tool
    def get_recipes(self, agent: str) -> Any:
        """What can be made, as far as the game says it."""
        return self._of(agent, "get_recipes").custom.get("recipes", {})

    @tool
    def get_inventory(self, agent: str) -> list[dict[str, Any]]:
        """What is carried."""
        return [item.model_dump() for item in self._of(agent, "get_inventory").inventory]

    # -- world query

    @tool
    def get_nearby_entities(self, agent: str, radius: NonNegativeFloat = 10.0) -> list[dict[str, Any]]:
        """Resources, hazards and others within a radius, nearest first."""
        near = sorted(_all(self._of(agent, "get_nearby_entities")), key=lambda thing: thing.distance)
        return [thing.model_dump() for thing in near if thing.distance <= radius]

    @tool
    def get_visible_entities(self, agent: str) -> list[dict[str, Any]]:
        """Others that are seen."""
        return [thing.model_dump() for thing in self._of(agent, "get_visible_entities").visible_entities]

    @tool
    def measure_distance(self, agent: str, target_position: Point) -> float:
        """How far a point is away."""
        return math.dist(self._of(agent, "measure_distance").position, target_position)

    @tool
    def raycast(self, agent: str, direction: Point, max_distance: NonNegativeFloat = 100.0) -> dict[str, Any]:
        """What lies first on a line from the agent, within one unit of it."""
        seen, length = self._of(agent, "raycast"), math.hypot(*direction)
        if not length:
            raise ValueError("a direction is not 0, 0, 0")
        hits = []
        for thing in _all(seen):
            away = [a - b for a, b in zip(thing.position, seen.position, strict=True)]
            along = sum(a * b for a, b in zip(away, direction, strict=True)) / length
            beside = math.sqrt(max(0.0, sum(a * a for a in away) - along * along))
            if 0 <= along <= max_distance and beside <= 1.0:
                hits.append((along, thing.name))
        return {"hit": bool(hits), **(dict(zip(("distance", "name"), min(hits), strict=True)) if hits else {})}


def _all(seen: Observation) -> list[Seen]:
    return [*seen.nearby_resources, *seen.nearby_hazards, *seen.visible_entities]
