"""What an agent sees and what it answers: Observation, AgentDecision, SimpleContext.

Names and defaults are those of Agent Arena's servers; the checks are pydantic's, so that a wrong field is named.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ue_rl.bridges.tools import ToolSchema
from ue_rl.plugins.arena.answers import LOOSE, SPELLINGS, call_in
from ue_rl.system.errors import ConfigurationError, printable, shorten
from ue_rl.system.json_values import readable

IDLE = "idle"
MAX_REASONING = 2000  # characters that are kept; a model may write without end


def _vector(value: Any) -> Any:
    if isinstance(value, Mapping) and "x" in value and not value.keys().isdisjoint("yz"):
        value = [value.get(axis, 0.0) for axis in "xyz"]
    if isinstance(value, (list, tuple)) and len(value) == 2:  # a game in two dimensions
        value = [*value, 0.0]
    return value


Vector = Annotated[tuple[float, float, float], BeforeValidator(_vector)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class Model(BaseModel):
    """What all have in common: numbers are finite, what is unknown is kept."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False, populate_by_name=True)


class Named(Model):
    """What a game may say by its name alone, or with an id instead of a name."""

    name: str = ""

    @model_validator(mode="before")
    @classmethod
    def _spelt(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, Mapping) and "name" not in value and "id" in value:
            return {**value, "name": str(value["id"])}
        return value


class VisibleObject(Named):
    """Something near the agent: a resource, a hazard, or another entity. What else a game says of it is kept.

    Attributes:
        distance: where the game says the position alone, an AgentObservation computes it.
    """

    type: str = ""
    position: Vector = (0.0, 0.0, 0.0)
    distance: float = 0.0
    damage: float = 0.0


class Item(Named):
    """Something carried."""

    quantity: int = 1


class ToolResult(Model):
    """What became of the last tool call."""

    tool: str = ""
    success: bool = True
    result: Any = None
    error: Annotated[str | None, BeforeValidator(lambda error: error or None)] = None
    duration_ticks: int = 0


def _items(value: Any) -> Any:
    if isinstance(value, Mapping):  # {"wood": 3}
        return [{"name": name, "quantity": count} for name, count in value.items()]
    return value


class AgentObservation(Model):
    """One agent's view of a tick. `custom` is a game's own; so are keys that are not named here.

    Attributes:
        position, rotation, velocity: x, y, z in the game's units. Two numbers count as x, y.
        nearby_resources, nearby_hazards, visible_entities: with their distances, in the game's order.
        inventory: what is carried; a list of names or of {name, quantity}, or {name: quantity}.
        exploration: what the game says of explored ground; {} where it says nothing.
        tool_result: of the last call; None before the first.
    """

    agent_id: Name
    tick: int = Field(0, ge=0)
    position: Vector = (0.0, 0.0, 0.0)
    rotation: Vector = (0.0, 0.0, 0.0)
    velocity: Vector = (0.0, 0.0, 0.0)
    visible_entities: list[VisibleObject] = Field(default_factory=list, max_length=1000)
    nearby_resources: list[VisibleObject] = Field(default_factory=list, max_length=1000)
    nearby_hazards: list[VisibleObject] = Field(default_factory=list, max_length=1000)
    inventory: Annotated[list[Item], BeforeValidator(_items)] = Field(default_factory=list, max_length=1000)
    health: float = 100.0
    energy: float = 100.0
    perception_radius: float = 0.0
    exploration: dict[str, Any] = Field(default_factory=dict)
    tool_result: ToolResult | None = Field(None, validation_alias=AliasChoices("tool_result", "last_tool_result"))
    custom: dict[str, Any] = Field(default_factory=dict, validation_alias=AliasChoices("custom", "custom_data"))

    @model_validator(mode="after")
    def _measured(self) -> AgentObservation:
        for thing in (*self.nearby_resources, *self.nearby_hazards, *self.visible_entities):
            if "distance" not in thing.model_fields_set and "position" in thing.model_fields_set:
                thing.distance = min(math.dist(self.position, thing.position), sys.float_info.max)
        return self

    def text(self) -> str:
        """For minds that read: a few lines, nothing that is empty. No name of the game begins a line of its own."""
        lines = [f"tick {self.tick}; position {_point(self.position)}; health {self.health:g}; energy {self.energy:g}"]
        for title, things in (
            ("resources", self.nearby_resources),
            ("hazards", self.nearby_hazards),
            ("others", self.visible_entities),
        ):
            if things:
                near = sorted(things, key=lambda thing: thing.distance)[:8]
                each = (f"{shorten(t.name, 80)} {_point(t.position)} {t.distance:.1f} away" for t in near)
                lines.append(f"{title}: {', '.join(each)}")
        if self.inventory:
            carried = ", ".join(f"{item.quantity} {item.name}" for item in self.inventory)
            lines.append("inventory: " + shorten(carried, 600))
        if self.tool_result is not None:
            said = self.tool_result
            lines.append(f"last call: {said.tool} {'done' if said.success else f'failed: {shorten(said.error, 300)}'}")
        if self.custom:
            lines.append("also: " + shorten(json.dumps(readable(self.custom), sort_keys=True), 600))
        return "\n".join(map(printable, lines))


def _point(position: Sequence[float]) -> str:
    return f"({', '.join(f'{number:.1f}' for number in position)})"


def nearest(things: Sequence[VisibleObject]) -> VisibleObject | None:
    """The one at the smallest distance; the first of equals; None of none."""
    return min(things, key=lambda thing: thing.distance, default=None)


def away_from(position: Sequence[float], other: Sequence[float], far: float = 5.0) -> list[float]:
    """The point `far` units from `position`, straight away from `other`; along x where both are one."""
    step = [a - b for a, b in zip(position, other, strict=True)]
    length = math.sqrt(sum(number * number for number in step))
    if length < 1e-9:
        step = [1.0, 0.0, 0.0]
        length = 1.0
    return [a + number / length * far for a, number in zip(position, step, strict=True)]


@dataclass(frozen=True)
class AgentDecision:
    """A tool, by its name, with parameters, and why."""

    tool: str = IDLE
    params: dict[str, Any] = field(default_factory=dict)
    reasoning: str = ""

    @classmethod
    def of(cls, value: Any) -> AgentDecision:
        """A decision from what a behaviour may return: a decision, a tool's name, a mapping, None for idle.

        Raises:
            ValueError: something else, or a mapping whose parts are of the wrong type.
        """
        if isinstance(value, AgentDecision):
            tool = value.tool
            params = value.params
            reasoning = value.reasoning
        elif value is None or isinstance(value, str):
            tool = value or IDLE
            params = {}
            reasoning = ""
        elif isinstance(value, Mapping):
            given = {name: value[spelt] for name, words in SPELLINGS.items() for spelt in words if spelt in value}
            tool = given.get("tool") or IDLE
            params = given.get("params") or {}
            reasoning = given.get("reasoning") or ""
        else:
            raise ValueError(f"a decision is an AgentDecision, not a {type(value).__name__}")
        if not isinstance(tool, str) or len(tool) > 200:
            raise ValueError(f"a tool's name is a short string, not {shorten(tool)}")
        if not isinstance(params, Mapping) or not all(isinstance(name, str) for name in params):
            raise ValueError(f"params is an object with names, not {shorten(params)}")
        return cls(tool, dict(params), str(reasoning)[:MAX_REASONING])

    @classmethod
    def from_llm_response(cls, text: str, tools: Iterable[ToolSchema] = ()) -> AgentDecision:
        """The decision in a model's answer.

        Thoughts are no decision: blocks of <think> and the like, what stands before an end tag alone, and before
        ACTION:. Taken are: pure JSON; a ```json block; JSON within prose; "THINKING: .. ACTION: {..}"; `action`,
        `tool_name` or `name` for tool; `parameters` or `arguments` for params; `thought` or `explanation` for
        reasoning; a call within `action`, `function`, `tool_calls` and the like. Of several calls see
        `ue_rl.plugins.arena.answers.call_in`. Where no object has a tool, it is idle. What stands before the object is
        the reasoning, where it gives none.

        Args:
            tools: with these a call that has its parameters beside the tool, {"tool": "collect", "item_name": ..},
                is understood, too.

        Raises:
            ValueError: no JSON object is in it, or it is broken or breaks off in the middle, or within the thoughts.
        """
        found, before = call_in(text)
        if not any(spelt in found for spelt in SPELLINGS["params"]):
            beside = _beside(cls.of(found).tool, found, tools)
            loose = [found[word] for word in LOOSE if isinstance(found.get(word), (dict, str))]
            if beside or not loose:
                params = beside
            else:
                params = loose[0]
            found = {**found, "params": params}
        for spelt in SPELLINGS["params"]:
            if isinstance(found.get(spelt), str):  # OpenAI's arguments are JSON in a string
                found = {**found, spelt: _read(found[spelt])}
        decision = cls.of(found)
        if decision.reasoning:
            return decision
        thought = _NOT_REASONING.sub("", before).strip()
        return replace(decision, reasoning=thought[:MAX_REASONING])


def _beside(name: str, found: Mapping[str, Any], tools: Iterable[ToolSchema]) -> dict[str, Any]:
    """The parameters of the tool `name` that stand beside its name."""
    names: Mapping[str, Any] = next((tool.parameters.get("properties", {}) for tool in tools if tool.name == name), {})
    said = {spelt for words in SPELLINGS.values() for spelt in words}
    return {key: value for key, value in found.items() if key in names and key not in said}


def _read(text: str) -> Any:
    try:
        document = text
        if not document:
            document = "{}"
        return json.loads(document, strict=False)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the arguments of the call are no JSON, or break off: {shorten(text)!r}") from error


_NOT_REASONING = re.compile(r"```(json)?|\bTHINKING:|<tool_calls?>|\[\s*$")


class SimpleContext(NamedTuple):
    """What a SimpleAgentBehavior is shown: what the observation has (`position`, `nearby_resources`, `nearby_hazards`,
    `health`, `tick` ..) in the fewest words.

    Attributes:
        tools: names of the tools that there are. memory: the latest observations, newest first.
    """

    observation: AgentObservation
    tools: tuple[str, ...] = ()
    memory: tuple[Any, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.observation, name)

    @property
    def inventory(self) -> list[str]:
        """Names of what is carried."""
        return [item.name for item in self.observation.inventory]

    @property
    def nearest_resource(self) -> VisibleObject | None:
        """The nearest, or None."""
        return nearest(self.observation.nearby_resources)

    @property
    def nearest_hazard(self) -> VisibleObject | None:
        """The nearest, or None."""
        return nearest(self.observation.nearby_hazards)


_Checked = TypeVar("_Checked", bound=BaseModel)


def checked(kind: type[_Checked], given: Any, what: str, at: str = "") -> _Checked:
    """`given` as a `kind`.

    Args:
        what: is wrong, for the error. at: where `given` stands in the whole.

    Raises:
        ConfigurationError: pydantic's first complaint, which names the field.
    """
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(filter(None, [at, *map(str, first["loc"])])) or None
        raise ConfigurationError(f"{what}: {first['msg']}", field=field, got=shorten(first.get("input"))) from error
