"""Requests that a page in a browser can send, and their answers.

They are written byte by byte: no client chooses their headers.
"""

from __future__ import annotations

import base64
import contextlib
import json
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

ALLOWED = "pages.example"
JSON = {"Content-Type": "application/json"}


class Route(NamedTuple):
    """A request that is served: on which server, how it is asked, and with what."""

    server: str
    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed


FOREIGN: dict[str, dict[str, str | None]] = {
    "a name that points here": {"Host": "evil.example:PORT"},
    "the same, with its page": {"Host": "evil.example:PORT", "Origin": "http://evil.example:PORT"},
    "a page of elsewhere": {"Origin": "https://evil.example"},
    "a page of nobody": {"Origin": "null"},
    "a name that begins as ours": {"Origin": "http://127.0.0.1.evil.example"},
    "a picture in a page": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
}
FOREIGN_TYPES: dict[str, dict[str, str | None]] = {
    "a form": {"Content-Type": "application/x-www-form-urlencoded"},
    "plain text": {"Content-Type": "text/plain;charset=UTF-8"},
    "a form of files": {"Content-Type": "multipart/form-data; boundary=x"},
    "a page that says no type": {"Content-Type": None, "Origin": "http://127.0.0.1:3000"},
}
OURS: dict[str, dict[str, str | None]] = {
    "no browser": {},
    "localhost": {"Host": "localhost:PORT"},
    "in capitals": {"Host": "LOCALHOST"},
    "another address of this machine": {"Host": "127.0.0.2:PORT"},
    "IPv6": {"Host": "[::1]:PORT"},
    "a page of this machine": {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "cross-site"},
    "a link that was clicked": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
}
NAMED: dict[str, dict[str, str | None]] = {
    "a page that was allowed": {"Origin": f"https://{ALLOWED}", "Sec-Fetch-Site": "cross-site"},
    "a proxy that was allowed": {"Host": f"{ALLOWED}:443", "Origin": f"https://{ALLOWED}"},
}


def said(port: int, route: Route, changed: dict[str, str | None]) -> tuple[int, str]:
    """The status and all that was answered."""
    body = b"" if route.body is None else json.dumps(route.body).encode()
    headers: dict[str, str | None] = {"Host": "127.0.0.1:PORT", "Connection": "close", **route.headers}
    if route.method == "WS":
        key = base64.b64encode(bytes(16)).decode()
        headers |= {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": key}
        headers |= {"Sec-WebSocket-Version": "13"}
    elif route.method == "POST":
        headers |= {"Content-Length": str(len(body))}
    told = {name: value.replace("PORT", str(port)) for name, value in (headers | changed).items() if value is not None}
    method = "GET" if route.method == "WS" else route.method
    lines = [f"{method} {route.path} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items()), "", ""]
    answer = spoken(port, "\r\n".join(lines).encode() + body, enough=route.method == "WS")
    return int(answer.split()[1]), answer


def spoken(port: int, data: bytes, enough: bool = False) -> str:
    """What is answered to bytes, to the end, or the first piece of it."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock, contextlib.suppress(ConnectionError):
        sock.sendall(data)
        while piece := sock.recv(65_536):
            answer += piece
            if enough:
                break
    return answer.decode("latin-1")


def foreign_cases(routes: Sequence[Route]) -> list[Any]:
    """(route, what is changed) of each request to these that is refused."""
    cases = []
    for route in routes:
        kinds = {**FOREIGN, **(FOREIGN_TYPES if route.method == "POST" else {})}
        for name, changed in kinds.items():
            if route.method == "WS" and name == "a picture in a page":
                continue  # a browser's WebSocket always has an Origin
            cases.append(pytest.param(route, changed, id=f"{route.server} {route.method} {route.path}: {name}"))
    return cases
