"""The bodies of requests, checked: what is wrong is named by its field."""

from __future__ import annotations

import json
import math
from typing import Any, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from ue_rl.plugins.arena.types import AgentObservation, Name, checked
from ue_rl.system.errors import ConfigurationError, shorten

MAX_DEPTH = 32
MAX_TEXT = 65_536  # characters of one string
MAX_OBSERVATION = 131_072  # of one agent's as JSON: the last one of each agent is kept


_MALFORMED = "malformed request"
_Kind = TypeVar("_Kind", bound=BaseModel)


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class Tick(_Body):
    """POST /tick, after `observations_in` has taken the observations out."""

    tick: int = Field(0, ge=0)


class Register(_Body):
    """POST /agents/register."""

    agent_id: Name
    behavior: str = "rules"


class Execute(_Body):
    """POST /tools/execute: one of the public clients says tool_name, the other tool."""

    tool: Name = Field(validation_alias=AliasChoices("tool", "tool_name"))
    params: dict[str, Any] = Field(
        default_factory=dict, validation_alias=AliasChoices("params", "parameters", "arguments")
    )
    agent_id: str = ""


class Experience(_Body):
    """POST /experience: something to remember, the result of a tool, or the end of an episode."""

    agent_id: Name
    tick: int = Field(0, ge=0)
    text: str = Field("", validation_alias=AliasChoices("text", "event", "description", "experience"))
    priority: float = 0.0
    done: bool = False
    success: bool = False
    metrics: dict[str, Any] = Field(default_factory=dict)


def observe(body: Any) -> AgentObservation:
    """The body of POST /observe.

    Raises:
        ConfigurationError: naming the field.
    """
    require_plain(body)
    if "agent_id" in body and "position" not in body:
        raise ConfigurationError("not an observation: the field is missing", field="position", expected="[x, y, z]")
    return _observation(body)


def _observation(body: dict[str, Any], at: str = "") -> AgentObservation:
    size = len(json.dumps(body))
    if size > MAX_OBSERVATION:
        field = at
        if not field:
            field = "body"
        raise ConfigurationError(
            "the observation is too large", field=field, expected=f"{MAX_OBSERVATION} characters", got=size
        )
    seen = checked(AgentObservation, body, _MALFORMED, at)
    for kind in ("nearby_resources", "nearby_hazards"):
        for number, thing in enumerate(getattr(seen, kind)):
            if "position" not in thing.model_fields_set:  # agents walk there, or away from it
                raise ConfigurationError(
                    f"{_MALFORMED}: the field is missing",
                    field=_path(at, f"{kind}.{number}.position"),
                    expected="[x, y, z]",
                    got=shorten(thing.name or thing.type),
                )
    near = bool(seen.nearby_resources or seen.nearby_hazards)
    if near and "position" not in seen.model_fields_set:
        raise ConfigurationError(
            f"{_MALFORMED}: the field is missing",
            field=_path(at, "position"),
            expected="[x, y, z] of the agent, where it is near something",
        )
    return seen


def _path(at: str, field: str) -> str:
    if at:
        return f"{at}.{field}"
    return field


def body_of(kind: type[_Kind], body: Any) -> _Kind:
    """A body as one of the classes above.

    Raises:
        ConfigurationError: naming the field.
    """
    require_plain(body)
    return checked(kind, body, _MALFORMED)


def observations_in(body: Any) -> tuple[int, str, list[AgentObservation]]:
    """The body of POST /tick: (tick, which shape, observations).

    The shapes: "perceptions": [..] of whole observations; "agents": [{agent_id, observations: {..}}]; and "agent_id"
    with "observations" for one agent.

    Raises:
        ConfigurationError: naming the field.
    """
    require_plain(body)
    tick = checked(Tick, body, _MALFORMED).tick
    shape = next((key for key in ("perceptions", "agents", "agent_id") if key in body), "")
    if shape == "agent_id":
        given = [body]
    else:
        given = body.get(shape)
    if not isinstance(given, list) or len(given) > 10_000:
        field = shape
        if not field:
            field = "perceptions"
        raise ConfigurationError(
            "not a list of agents", field=field, expected="perceptions or agents, at most 10000, or agent_id"
        )
    seen: dict[str, AgentObservation] = {}
    for n, each in enumerate(given):
        if shape == "agent_id":
            at = shape
        else:
            at = f"{shape}.{n}"
        if shape == "perceptions" or not isinstance(each, dict):
            inner = each
        else:
            inner = each.get("observations", {})
        if not isinstance(inner, dict):
            if inner is each:
                place = at
            else:
                place = f"{at}.observations"
            raise ConfigurationError("not an object", field=place, got=inner)
        whole = {"tick": tick, **inner, "agent_id": each.get("agent_id")}
        observation = _observation(whole, "" if shape == "agent_id" else at)
        if observation.agent_id in seen:
            raise ConfigurationError("an agent comes twice", field=f"{at}.agent_id", got=observation.agent_id)
        seen[observation.agent_id] = observation
    return tick, shape, list(seen.values())


def require_plain(value: Any, at: str = "", depth: int = 0) -> None:
    """No NaN or infinity, no endless string, and no deeper than 32, wherever it stands.

    Raises:
        ConfigurationError: naming the field.
    """
    at = at[:200]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ConfigurationError("not a finite number", field=at, got=value)
    elif isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise ConfigurationError("the text is too long", field=at, expected=f"{MAX_TEXT} characters")
    elif isinstance(value, (dict, list)):
        if depth >= MAX_DEPTH:
            field = at.split(".", maxsplit=1)[0]
            if not field:
                field = "body"
            raise ConfigurationError("nested too deep", field=field, expected=f"{MAX_DEPTH} levels")
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(part, (float, str, dict, list)):
                if at:
                    place = f"{at}.{name}"
                else:
                    place = str(name)
                require_plain(part, place, depth + 1)
    if not depth and not isinstance(value, dict):
        raise ConfigurationError("the body is a JSON object", field="body", got=value)
