"""What OpenEnv 0.10 brought: a description of the endpoints, tasks, which a game has not, clients that dial anew."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from starlette.routing import Route
from starlette.testclient import TestClient

from ue_rl.plugins.sessions.openenv import application


def asked(socket: Any, message: dict[str, Any]) -> Any:
    socket.send_json(message)
    return socket.receive_json()["data"]


def test_the_endpoints_describe_themselves(make_pool: Callable[..., Any]) -> None:
    pool = make_pool()
    app = application(pool)
    document = TestClient(app).get("/openapi.json").json()
    assert (document["info"]["version"], document["info"]["title"]) == ("1.0.0", pool.name)
    routes = [route for route in app.routes if isinstance(route, Route)]
    served = {(route.path, method.lower()) for route in routes for method in (route.methods or ()) if method != "HEAD"}
    assert {(path, method) for path, methods in document["paths"].items() for method in methods} == served
    named = re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(document))
    assert {"Action", "Observation", "State"} <= {*named} | document["components"]["schemas"].keys()
    assert {*named} <= document["components"]["schemas"].keys()


def test_a_game_has_no_tasks(make_pool: Callable[..., Any]) -> None:
    pool = make_pool()
    client = TestClient(application(pool))
    assert client.get("/list_environments").json() == [pool.name]
    for method, word in (("GET", "splits"), ("POST", "tasks"), ("POST", "num_tasks"), ("POST", "task_range")):
        answer = client.request(method, f"/{pool.name}/{word}", **({} if method == "GET" else {"json": {}}))
        assert answer.status_code == 501
        assert "has no tasks" in answer.json()["detail"]
        assert client.request(method, f"/another/{word}").status_code == 404


def test_who_dials_anew_does_not_go_on_in_another_episode(make_pool: Callable[..., Any]) -> None:
    """As OpenEnv's client does by itself, without a word, where its connection was lost."""
    client = TestClient(application(make_pool()))
    reset = {"type": "reset", "data": {"seed": 3}}
    step = {"type": "step", "data": {"action": [0.5, 0.0]}}

    with client.websocket_connect("/ws") as first:
        asked(first, reset)
        assert asked(first, step)["observation"]["tick"] == 1
    with client.websocket_connect("/ws") as again:
        told = asked(again, step)
        assert told["code"] == "EXECUTION_ERROR"
        assert "no episode has begun" in told["message"]
        assert "Call reset" in told["message"]
        assert asked(again, {"type": "step", "data": {"type": "list_tools"}})["observation"]["tools"], "nothing moves"
        asked(again, reset)
        assert asked(again, step)["observation"]["tick"] == 1


def test_the_cause_stands_in_the_message_which_is_all_that_clients_show(make_pool: Callable[..., Any]) -> None:
    with TestClient(application(make_pool())).websocket_connect("/ws") as socket:
        told = asked(socket, {"type": "step", "data": {"action": ["far", 0.0]}})
        assert told["code"] == "VALIDATION_ERROR"
        assert told["message"].startswith("Invalid message: action.0: ")
        assert "'far'" in told["message"]
        told = asked(socket, {"type": "reset", "data": {"seed": -1, "episode_id": 7}})
        assert "seed: " in told["message"]
        assert told["message"].endswith("(1 more faults)")
        assert len(told["errors"]) == 2
