"""Tools: marked methods become schemas, and arguments are checked before a call."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from ue_rl.bridges.tools import ToolRegistry, tool
from ue_rl.system.errors import ConfigurationError, ToolError


class Base:
    @tool
    def idle(self) -> str:
        """Does nothing."""
        return "idle"


class Game(Base):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    @tool
    def move_to(
        self,
        env_id: int,
        target: tuple[float, float],
        speed: Annotated[float, Field(gt=0)] = 1.0,
        kind: Literal["walk", "run"] = "walk",
    ) -> dict[str, Any]:
        """Moves the unit
        to a point.

        It takes the shortest way.

        Args:
            target: where to, x and y,
                in cells.
            speed: cells a tick.
        """
        self.calls.append((env_id, target, speed, kind))
        return {"arrives": 3}

    @tool(name="attack", description="Attacks a unit.")
    def _attack(self, env_id: int, unit: int) -> None:
        raise LookupError(f"no unit {unit}")

    def no_tool(self, x: int) -> None: ...


def test_marked_methods_become_tools_with_schemas() -> None:
    registry = ToolRegistry.of(Game())
    assert registry.names == ("idle", "move_to", "attack") == tuple(registry)
    assert "move_to" in registry
    assert len(ToolRegistry()) == 0
    idle, move, attack = registry.schemas()
    assert (idle.description, idle.parameters["properties"]) == ("Does nothing.", {})
    assert (move.description, attack.description) == ("Moves the unit to a point.", "Attacks a unit.")
    parts = move.parameters["properties"]
    assert set(parts) == {"target", "speed", "kind"}
    assert parts["target"]["description"] == "where to, x and y, in cells."
    assert parts["speed"] == {"default": 1.0, "description": "cells a tick.", "exclusiveMinimum": 0, "type": "number"}
    assert parts["kind"]["enum"] == ["walk", "run"]
    assert move.parameters["required"] == ["target"]
    assert move.parameters["additionalProperties"] is False
    assert json.loads(registry.json())[2]["inputSchema"] == attack.as_dict("input_schema")["input_schema"]


def test_a_call_gets_typed_arguments_and_what_is_hidden() -> None:
    game = Game()
    registry = ToolRegistry.of(game)
    assert registry.call("move_to", {"target": [1, "2"], "kind": "run"}, env_id=7) == {"arrives": 3}
    assert game.calls == [(7, (1.0, 2.0), 1.0, "run")]
    assert registry.call("idle", {}, env_id=7) == "idle"


@pytest.mark.parametrize(
    ("name", "arguments", "code", "said"),
    [
        ("mvoe_to", {}, "TOOL_NOT_FOUND", "Did you mean 'move_to'"),
        ("move_to", {}, "INVALID_PARAMETERS", "target: Field required"),
        ("move_to", {"target": [1]}, "INVALID_PARAMETERS", "target.1: Field required"),
        ("move_to", {"target": [1, 2], "speed": 0}, "INVALID_PARAMETERS", "speed: Input should be greater than 0"),
        ("move_to", {"target": [1, 2], "env_id": 3}, "INVALID_PARAMETERS", "env_id: Extra inputs"),
        ("attack", {"unit": 9}, "TOOL_EXECUTION_FAILED", "LookupError: no unit 9"),
    ],
)
def test_what_is_wrong_is_named(name: str, arguments: dict[str, Any], code: str, said: str) -> None:
    game = Game()
    with pytest.raises(ToolError) as raised:
        ToolRegistry.of(game).call(name, arguments, env_id=0)
    assert (raised.value.code, raised.value.tool) == (code, name)
    assert said in str(raised.value)
    assert game.calls == []


def test_what_cannot_be_a_tool() -> None:
    registry = ToolRegistry()

    def untyped(x):  # type: ignore[no-untyped-def]
        return x

    def any_number(*numbers: int) -> None: ...

    def good(agent: str, x: int = 1) -> tuple[str, int]:
        return agent, x

    def by_place(x: int, /) -> None: ...

    def private(_x: int) -> None: ...

    for function in (untyped, any_number, by_place, private):
        with pytest.raises(ConfigurationError, match="has no type"):
            registry.add(function)
    others = ToolRegistry(hidden=("agent",))
    others.add(good)
    assert others.call("good", {}, agent="a") == ("a", 1)
    with pytest.raises(ConfigurationError, match="two tools"):
        others.add(good)


def test_marks_alone_need_no_pydantic() -> None:
    code = (
        "import sys; from ue_rl.bridges.tools import ToolRegistry; ToolRegistry.of(1); print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
