"""A page in a real browser: of elsewhere it gets no answer and plays nothing, of a name that was allowed it does."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.test_pages import serving

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.exhaustive,  # half a minute of a browser, for what test_pages.py asserts of each header
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]
PAGE = """<img src="/last"><pre>nothing</pre><script>
const ports = PORTS, found = {}, type = {"Content-Type": "application/json"};
const at = (name, path) => `http://127.0.0.1:${ports[name]}${path}`;
const seen = {agent_id: "scout", tick: 1, position: [0, 0, 0]};
async function tried(name, ask) {
  try { found[name] = await ask(); } catch (error) { found[name] = "refused"; }
}
(async () => {
  await tried("reset", async () => (await fetch(at("openenv", "/reset"), {method: "POST", headers: type, body: "{}"}))
    .status);
  await tried("observe", async () => (await fetch(at("arena", "/observe"),
    {method: "POST", headers: type, body: JSON.stringify(seen)})).status);
  await tried("form", async () => (await fetch(at("arena", "/observe"),
    {method: "POST", mode: "no-cors", body: JSON.stringify(seen)})).type);
  await tried("metrics", async () => (await fetch(at("metrics", "/metrics"))).status);
  await tried("socket", () => new Promise((take, refuse) => {
    const socket = new WebSocket(`ws://127.0.0.1:${ports.openenv}/ws`);
    socket.onopen = () => socket.send(JSON.stringify({type: "reset", data: {}}));
    socket.onmessage = message => take(JSON.parse(message.data).type);
    socket.onerror = refuse;
  }));
  document.querySelector("pre").textContent = JSON.stringify(found);
  await fetch("/done");
})();
</script>"""


@contextmanager
def site(page: str) -> Iterator[int]:
    """Serves `page`; its picture comes once the page has said that it is done: a browser waits for it."""
    done = threading.Event()

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/last":
                done.wait(60)
            elif self.path == "/done":
                done.set()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode() if self.path == "/" else b"")

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield server.server_port
    done.set()
    server.shutdown()
    server.server_close()
    thread.join()


def opened(ports: dict[str, int], folder: Path) -> dict[str, Any]:
    """What a page of http://pages.example has got."""
    with site(PAGE.replace("PORTS", json.dumps(ports))) as port:
        command = [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}",
            f"--host-resolver-rules=MAP pages.example 127.0.0.1:{port}",
            # a guard of the browser's own, which not every browser has: what is asserted here is the servers'
            "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests",
            "--dump-dom", "http://pages.example/",
        ]  # fmt: skip
        shown = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False).stdout
    told = re.search(r"<pre>(.*?)</pre>", shown, re.S)
    assert told is not None, shown
    found: dict[str, Any] = json.loads(html.unescape(told[1]))
    return found


def test_a_page_of_elsewhere_gets_no_answer(tmp_path: Path) -> None:
    with serving() as servers:
        found = opened(servers.ports, tmp_path)
        assert found == {**dict.fromkeys(("reset", "observe", "metrics", "socket"), "refused"), "form": "opaque"}
        assert not servers.pool.sessions()


def test_a_page_of_a_name_that_was_allowed_plays(tmp_path: Path) -> None:
    with serving(allow_hosts=["pages.example"]) as servers:
        found = opened(servers.ports, tmp_path)
        assert found == {"reset": 200, "observe": 200, "form": "opaque", "metrics": "refused", "socket": "observation"}
