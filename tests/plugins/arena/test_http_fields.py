"""What a request leaves out or names wrongly is refused by its field, and never taken for the origin or for success."""

from __future__ import annotations

from typing import Any

import pytest

from ue_rl.plugins.arena.types import AgentObservation

BERRY = {"name": "berry", "type": "food", "position": [3, 0, 4]}
BARE = {"name": "berry", "type": "food", "distance": 2.0}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/observe", {"nearby_resources": [BERRY, BARE]}, "nearby_resources.1.position"),
        ("/observe", {"nearby_resources": ["berry"]}, "nearby_resources.0.position"),
        ("/observe", {"nearby_hazards": [{"name": "fire", "position": {}}]}, "nearby_hazards.0.position"),
        ("/observe", {"nearby_hazards": [{"name": "fire", "position": {"lat": 1}}]}, "nearby_hazards.0.position"),
        ("/tick", {"perceptions": [{"agent_id": "a", "position": [0, 0, 0], "nearby_hazards": [BARE]}]},
         "perceptions.0.nearby_hazards.0.position"),
        ("/tick", {"perceptions": [{"agent_id": "a", "nearby_resources": [BERRY]}]}, "perceptions.0.position"),
        ("/tick", {"agents": [{"agent_id": "a", "observations": {"nearby_resources": [BERRY]}}]}, "agents.0.position"),
    ],
)  # fmt: skip
def test_a_position_that_is_missing_is_named(client: Any, path: str, body: dict[str, Any], field: str) -> None:
    whole = {"agent_id": "a", "tick": 1, "position": [0, 0, 0], **body} if path == "/observe" else {"tick": 1, **body}
    status, said = client()(path, whole)
    assert (status, said["error_code"]) == (422, "INVALID_PARAMETERS")
    assert said["field"].startswith(field)


def test_a_distance_that_is_missing_is_computed(client: Any) -> None:
    seen = AgentObservation.model_validate({"agent_id": "a", "position": [0, 0, 0], "nearby_resources": [BERRY, BARE]})
    assert [thing.distance for thing in seen.nearby_resources] == [5.0, 2.0]
    far = {"name": "fire", "position": [1.7e308, 0, -1.7e308]}
    body = {"agent_id": "a", "tick": 1, "position": [-1.7e308, 0, 1.7e308], "nearby_hazards": [far]}
    asks = client()
    assert asks("/observe", body)[1]["tool"] == "idle", "it is not at the agent's feet"
    assert asks("/debug/observations")[0] == 200
    asks("/observe", {**body, "position": [0, 0, 0], "nearby_hazards": [], "visible_entities": ["guard"]})
    hit = asks("/tools/execute", {"tool": "raycast", "params": {"direction": [1, 0, 0]}, "agent_id": "a"})
    assert hit[1]["result"] == {"hit": False}, "what is known by its name alone stands nowhere"


def test_a_tool_of_an_agent_that_nobody_knows(client: Any) -> None:
    asks = client()
    call = {"tool": "move_to", "params": {"target_position": [1, 0, 1]}}
    for body in ({**call, "agent_id": "ghost"}, {"tool": "idle", "agent_id": "ghost"}):
        status, said = asks("/tools/execute", body)
        assert (status, said["success"], said["error_code"]) == (200, False, "AGENT_NOT_FOUND")
        assert said["error"] == "Agent 'ghost' not found"
    assert asks("/tools/execute", call)[1]["success"], "of no agent: its parameters are checked"
    asks("/observe", {"agent_id": "ghost", "tick": 1, "position": [0, 0, 0]})
    asks("/agents/register", {"agent_id": "scout"})
    for agent_id in ("ghost", "scout"):
        assert asks("/tools/execute", {**call, "agent_id": agent_id})[1]["success"]


@pytest.mark.parametrize("word", ["params", "parameters", "arguments"])
def test_the_parameters_of_a_tool_in_every_spelling(client: Any, word: str) -> None:
    said = client()("/tools/execute", {"tool": "craft", word: {"recipe": "axe"}})[1]
    assert said["result"] == {"recipe": "axe"}
