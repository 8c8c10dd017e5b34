"""What people do with a browser, by Chromium's DevTools: reload a page, close its tab, stop it in the debugger."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.plugins.web.pages import chromium
from tests.support.listening import free_port
from tests.support.waiting import eventually


class DevTools:
    """Of a browser that shows one page.

    Args:
        port: of its DevTools.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._sessions: dict[str, ClientConnection] = {}
        eventually(self._pages, 60)

    def page(self, method: str, **params: Any) -> dict[str, Any]:
        """A command to its page; the result."""
        return self._command(self._pages()[0]["webSocketDebuggerUrl"], method, params)

    def of(self, target: str, method: str, **params: Any) -> dict[str, Any]:
        """A command to one of several pages, by its id; the result."""
        (url,) = (each["webSocketDebuggerUrl"] for each in self._pages() if each["id"] == target)
        return self._command(url, method, params)

    def browser(self, method: str, **params: Any) -> dict[str, Any]:
        """A command to the browser itself; the result."""
        return self._command(self._read("version")["webSocketDebuggerUrl"], method, params)

    def target(self) -> str:
        """The page's own id."""
        return str(self._pages()[0]["id"])

    def close(self) -> None:
        """Ends its sessions."""
        for session in self._sessions.values():
            session.socket.close()

    def _command(self, url: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if url not in self._sessions:
            self._sessions[url] = connect(url, max_size=None, compression=None, legacy=True)
        session = self._sessions[url]
        session.send(json.dumps({"id": 1, "method": method, "params": params}))
        while True:
            said = json.loads(session.recv(timeout=30))
            if said.get("id") == 1:
                return dict(said["result"])

    def _pages(self) -> list[dict[str, Any]]:
        try:
            return [each for each in self._read("list") if each["type"] == "page"]
        except OSError:
            return []

    def _read(self, what: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/json/{what}", timeout=10) as answer:
            return json.load(answer)


@contextmanager
def watched(url: str) -> Iterator[DevTools]:
    """A page in headless Chromium, and what can be done with it."""
    port = free_port()
    with chromium(url, f"--remote-debugging-port={port}"):
        tools = DevTools(port)
        try:
            yield tools
        finally:
            tools.close()
