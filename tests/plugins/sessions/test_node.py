"""The client in JavaScript of docs/grpc.md plays in Node.

It needs the packages @grpc/grpc-js and @grpc/proto-loader where Node finds them, such as in NODE_PATH.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT, labelled
from tests.plugins.sessions.game import Drift
from tests.support.waiting import eventually

NODE = shutil.which("node") or shutil.which("nodejs")
MAIN = """
let seenTicks = []
play(process.argv[2], numbers => {
  seenTicks.push(numbers[1])
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, Number(process.argv[3])) // the event loop stands still
  return [1, 0]
}).then(() => console.log(JSON.stringify(seenTicks)), error => { console.error(error); process.exit(1) })
"""
pytestmark = pytest.mark.skipif(NODE is None, reason="there is no Node here")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The page's client, which decides for as many milliseconds as its second argument says."""
    shutil.copy(ROOT / "ue_rl" / "plugins" / "sessions" / "sessions.proto", tmp_path)
    page = labelled("docs/grpc.md", "js play")
    (tmp_path / "play.js").write_text(page.replace("tickRate: 25", "tickRate: 50") + MAIN)
    return tmp_path / "play.js"


def test_the_page_s_client_is_javascript(script: Path) -> None:
    assert NODE is not None
    subprocess.run([NODE, "--check", script.name], cwd=script.parent, check=True, timeout=60)


def test_a_mind_in_node_that_blocks_its_event_loop_gets_the_newest(served: Any, script: Path) -> None:
    assert NODE is not None
    found = [NODE, "-e", "require.resolve('@grpc/grpc-js'), require.resolve('@grpc/proto-loader')"]
    if subprocess.run(found, cwd=script.parent, capture_output=True, check=False, timeout=60).returncode:
        pytest.skip("Node does not find @grpc/grpc-js and @grpc/proto-loader: npm install them, and set NODE_PATH")
    pool, server = served("grpc", Drift)
    address = server.url.removeprefix("grpc://")
    done = subprocess.run(
        [NODE, script.name, address, "200"], cwd=script.parent, capture_output=True, text=True, check=False, timeout=90
    )
    assert done.returncode == 0, done.stderr
    ticks = json.loads(done.stdout)
    assert ticks[-1] >= 1
    assert all(later - earlier >= 3 for earlier, later in itertools.pairwise(ticks[:-1])), ticks
    eventually(lambda: not pool.sessions())
