"""Servers over HTTP while a client thinks between two requests."""

from __future__ import annotations

import time
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest


@pytest.mark.exhaustive  # its time is uvicorn's patience, which is passed
def test_a_connection_is_kept_while_a_client_computes_between_two_requests(served: Any) -> None:
    _, server = served("openenv")
    with closing(HTTPConnection(server.url.removeprefix("http://"), timeout=20)) as client:
        client.connect()
        sock = client.sock
        for pause in (6, 0):  # seconds; uvicorn's own patience is five
            client.request("GET", "/health")
            assert client.getresponse().read() == b'{"status":"healthy"}'
            assert client.sock is sock
            time.sleep(pause)
