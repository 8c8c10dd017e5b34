"""GET /openapi.json: the endpoints over HTTP as an OpenAPI document, which `openenv validate --url` reads."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ue_rl.plugins.sessions.openenv.messages import Action, JsonRpc, Observation, Reset, State, Step

VERSION = "1.0.0"  # of OpenEnv's endpoints, as its own servers say it: not of the game
# endpoints that OpenEnv has for environments with tasks, and what they ask of them
TASKS = {"tasks": "list_tasks", "num_tasks": "num_tasks", "task": "get_task", "task_range": "get_task_range"}
_ENV_NAME = {"name": "env_name", "in": "path", "required": True, "schema": {"type": "string"}}
_MODELS: tuple[type[BaseModel], ...] = (Action, JsonRpc, Observation, Reset, State, Step)


def openapi(name: str, about: str) -> dict[str, Any]:
    """The document; `about` says what the game is."""
    _, found = models_json_schema(
        [(model, "validation") for model in _MODELS], ref_template="#/components/schemas/{model}"
    )
    return {
        "openapi": "3.1.0",
        "info": {"title": name, "version": VERSION, "description": about},
        "paths": _paths(),
        "components": {"schemas": found["$defs"]},
    }


def _paths() -> dict[str, Any]:
    stepped = {
        "type": "object",
        "required": ["observation", "reward", "done"],
        "properties": {
            "observation": _of(Observation),
            "reward": {"type": ["number", "null"]},
            "done": {"type": "boolean"},
        },
    }
    anything = {"type": "object"}
    no_tasks = {"501": {"description": "A game has no tasks"}, "404": {"description": "Another game is served here"}}
    get_tasks = {"parameters": [_ENV_NAME], "responses": no_tasks}
    return {
        "/reset": {"post": _posted("Begin an episode of a session for this request alone", Reset, stepped)},
        "/step": {"post": _posted("One action in a session for this request alone", Step, stepped)},
        "/state": {"get": _got("Where a session stands", _of(State))},
        "/health": {"get": _got("Is it there?", anything)},
        "/metadata": {"get": _got("What the game is", anything)},
        "/schema": {"get": _got("Schemas of actions, observations and states", anything)},
        "/openapi.json": {"get": _got("This document", anything)},
        "/mcp": {"post": _posted("Tools, by JSON-RPC", JsonRpc, anything)},
        "/list_environments": {"get": _got("The name of the game", {"type": "array", "items": {"type": "string"}})},
        "/{env_name}/splits": {"get": {"summary": "Not of a game", **get_tasks}},
        **{f"/{{env_name}}/{each}": {"post": {"summary": "Not of a game", **get_tasks}} for each in TASKS},
    }


def _of(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _got(summary: str, answer: dict[str, Any]) -> dict[str, Any]:
    return {"summary": summary, "responses": {"200": {"description": "OK", **_content(answer)}}}


def _posted(summary: str, body: type[BaseModel], answer: dict[str, Any]) -> dict[str, Any]:
    wrong = {"422": {"description": "What is wrong with the body", **_content({"type": "object"})}}
    asked = _got(summary, answer)
    return {**asked, "requestBody": _content(_of(body)), "responses": {**asked["responses"], **wrong}}
