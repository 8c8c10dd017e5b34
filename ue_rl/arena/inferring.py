"""What is done where nobody says it: the parameters of a tool that was named alone, and the rule of thumb."""

from __future__ import annotations

from typing import Any

from ue_rl.arena.types import IDLE, AgentDecision, Observation, away_from, nearest

_MOVES = ("move_to", "navigate_to", "plan_path")
_TAKES = ("pickup_item", "pickup", "collect")
_GIVES = ("drop_item", "drop", "use_item", "use")
_TURNS = ("rotate_to_face", "rotate", "measure_distance")
DANGER, REACH = 3.0, 5.0  # of Agent Arena's servers: a hazard nearer than this is fled, a resource is gone for


def infer_params(tool: str, observation: Observation) -> dict[str, Any]:
    """The parameters of `tool`: the nearest resource, away from the nearest hazard, the first item.

    Of a tool that is not known here, and where nothing is near: none.
    """
    resource, hazard = nearest(observation.nearby_resources), nearest(observation.nearby_hazards)
    if tool in _MOVES or tool in _TURNS:
        if resource is not None:
            return {"target_position": list(resource.position)}
        if hazard is not None and tool in _MOVES:
            return {"target_position": away_from(observation.position, hazard.position)}
    elif tool in _TAKES and resource is not None:
        return {"item_name": resource.name}
    elif tool in _GIVES and observation.inventory:
        return {"item_name": observation.inventory[0].name}
    return {}


def rule_of_thumb(observation: Observation) -> AgentDecision:
    """For an agent that nobody registered: flee a hazard nearer than 3, go to a resource nearer than 5, else idle."""
    hazard = nearest(observation.nearby_hazards)
    if hazard is not None and hazard.distance < DANGER:
        params = {"target_position": away_from(observation.position, hazard.position), "speed": 2.0}
        return AgentDecision("move_to", params, f"avoiding {hazard.name or hazard.type}")
    resource = nearest(observation.nearby_resources)
    if resource is not None and resource.distance < REACH:
        params = {"target_position": list(resource.position), "speed": 1.5}
        return AgentDecision("move_to", params, f"going to {resource.name or resource.type}")
    return AgentDecision(IDLE, {}, "nothing is near")
