"""Messages of OpenEnv, as its servers 0.10 and 0.3 (package openenv, openenv-core) take them.

Source: openenv.core.env_server, files types.py and mcp_types.py of both. The package itself is not used: it brings
475 MB (a web interface, clients of language models), gives each session a thread of its own, and counts its sessions
by itself, where those of one pool may come over several carriers.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ue_rl.plugins.sessions.realtime.checks import MOST_TICKS


def faults(error: ValidationError) -> list[dict[str, Any]]:
    """What is wrong in a message, as JSON: of NaN and infinity, which it cannot carry, the names."""
    found = json.dumps(error.errors(include_url=False, include_context=False))
    listed: list[dict[str, Any]] = json.loads(found, parse_constant=str)
    return listed


class StrictMessage(BaseModel):
    """What a client sends: no other fields."""

    model_config = ConfigDict(extra="forbid")


class Action(StrictMessage):
    """One step: numbers, with the ticks that follow; or one of the tools, without a tick unless `ticks` says so.

    A type of OpenEnv's own in front (`list_tools`, `call_tool` with `tool_name`) is the same as `tool`.
    """

    action: list[float] | None = None
    ticks: int | None = Field(None, ge=0, le=MOST_TICKS)
    tool: str | None = None
    arguments: dict[str, Any] = {}
    type: Literal["list_tools", "call_tool"] | None = None
    tool_name: str | None = None
    metadata: dict[str, Any] = {}


class Reset(BaseModel):
    """What a reset may say; further fields are the options of the game's reset."""

    model_config = ConfigDict(extra="allow")

    seed: int | None = Field(None, ge=0)
    episode_id: str | None = Field(None, max_length=255)


class Step(BaseModel):
    """The body of POST /step."""

    model_config = ConfigDict(extra="allow")

    action: dict[str, Any]
    timeout_s: float | None = Field(None, gt=0)
    request_id: str | None = Field(None, max_length=255)


class ResetMessage(StrictMessage):
    """Over the WebSocket."""

    type: Literal["reset"]
    data: dict[str, Any] = {}


class StepMessage(StrictMessage):
    """Over the WebSocket."""

    type: Literal["step"]
    data: dict[str, Any]


class PlainMessage(StrictMessage):
    """Over the WebSocket."""

    type: Literal["state", "close"]


class McpMessage(StrictMessage):
    """Over the WebSocket: JSON-RPC in an envelope."""

    type: Literal["mcp"]
    data: dict[str, Any]


class JsonRpc(StrictMessage):
    """A request of JSON-RPC 2.0."""

    jsonrpc: Literal["2.0"]
    method: str
    params: dict[str, Any] = {}
    id: str | int | None = None


class Observation(StrictMessage):
    """What is seen; the reward and the end stand beside it."""

    observation: list[float]
    tick: int
    text: str
    result: str
    info: dict[str, Any]
    mask: list[int]


class State(BaseModel):
    """Where a session stands."""

    model_config = ConfigDict(extra="allow")

    episode_id: Annotated[str | None, Field(description="as the reset said it")] = None
    step_count: int = 0
    session_id: str
    phase: str
    tick: int
    result: str
    text: str
    idle_seconds: float


MESSAGES: dict[str, type[StrictMessage]] = {
    "reset": ResetMessage,
    "step": StepMessage,
    "state": PlainMessage,
    "close": PlainMessage,
    "mcp": McpMessage,
}
