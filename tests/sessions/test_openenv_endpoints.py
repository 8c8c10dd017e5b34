"""What OpenEnv 0.10 asks of a running server beside its sessions: a description, and tasks, which a game has not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from starlette.routing import Route
from starlette.testclient import TestClient

from ue_rl.bridges.openenv import application


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
