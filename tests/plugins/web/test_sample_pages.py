"""The samples' pages: while agents learn and with a trained one, for a screen reader, on a phone; and their rows.

Axe and the lander's physics library come by npm, which `.ci/run runtimes` does; what needs neither is run everywhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="the extra train is not installed: agents are exported here")

from gymnasium import spaces

from tests.plugins.web.pages import CHROMIUM, NODE, ROOT, RUNTIMES, WEB, chromium, in_runtimes, node, served
from tests.support.listening import free_port
from tests.support.models import make
from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.dialling import open_transport
from ue_rl.inference import export_onnx
from ue_rl.plugins.web.export import write_page
from ue_rl.system.errors import EngineDisconnected

PHYSICS = (WEB / "lander" / "node_modules").is_dir()
no_physics = pytest.mark.skipif(
    not PHYSICS, reason="NOT RUN: npm ci in samples/web/lander, which .ci/run runtimes does"
)
no_axe = pytest.mark.skipif(RUNTIMES is None, reason="NOT RUN: axe-core of npm, which .ci/run runtimes has")
no_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
no_node = pytest.mark.skipif(NODE is None, reason="there is no Node here")
SAMPLES = ["carts", pytest.param("lander", marks=no_physics), "rally"]
SPACES: dict[str, tuple[int, Any]] = {
    "carts": (2, spaces.Box(-1, 1, (1,))),
    "lander": (8, spaces.Box(-1, 1, (2,))),
    "rally": (6, spaces.Discrete(3)),
}


def look(url: str, seconds: float, folder: Path) -> dict[str, Any]:
    """What look.mjs finds; beside the packages, because modules are looked for from there."""
    script = Path(str(RUNTIMES)) / "look.mjs"
    if not script.exists():
        shutil.copy(ROOT / "tests" / "inference" / "node" / "look.mjs", script)
    command = [str(NODE), str(script), url, str(seconds), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def fine(found: dict[str, Any], state: str) -> None:
    wrong = {name: found[name] for name in ("violations", "wider", "elsewhere", "errors")}
    assert wrong == {"violations": [], "wider": [], "elsewhere": [], "errors": []}
    assert found["state"] == state


@contextmanager
def stepping(transport: BaseTransport, choices: bool) -> Iterator[None]:
    """A trainer of random actions, until the page is closed."""
    spec = transport.spec
    rng = np.random.default_rng(0)

    def step() -> None:
        transport.reset()
        done = transport.receive().dones
        while True:
            if choices:
                actions = rng.integers(3, size=(spec.num_envs, 1)).astype(np.float32)
            else:
                actions = rng.uniform(-1, 1, (spec.num_envs, spec.act_size)).astype(np.float32)
            transport.send_actions(actions, resets=np.flatnonzero(done).tolist() or None)
            done = transport.receive().dones

    def until_closed() -> None:
        with contextlib.suppress(EngineDisconnected):
            step()

    thread = threading.Thread(target=until_closed)
    thread.start()
    yield
    thread.join(60)


# A page as Node has none: its board is as wide as each frame says.
BOARD = """
const widths = JSON.parse(process.argv[2]);
const frames = [];
const drawn = [];
const node = new Proxy(function () {}, {
  get: (_, name) => (name === "clientWidth" ? widths[0] : name === Symbol.toPrimitive ? () => 1 : node),
  set: () => true,
  apply: () => node,
});
Object.assign(globalThis, {
  document: { getElementById: () => node, createElement: () => node, documentElement: node, querySelector: () => null },
  window: node, getComputedStyle: () => node, matchMedia: () => node, innerHeight: 700, location: node,
  requestAnimationFrame: (frame) => frames.push(frame),
  setInterval: () => 0,
});
const { show } = await import(process.argv[1]);
const game = { numEnvs: 4, played: { steps: 0, returns: [] } };
show(game, { draw: (_pen, _id, size) => drawn.push(size.width), shape: 1, narrow: 140 }).catch(() => undefined);
while (widths.length > 1) {
  widths.shift();
  frames.shift()();
}
console.log(JSON.stringify(drawn));
process.exit(0);
"""


@no_node
def test_a_board_without_width_waits_for_one() -> None:
    """As in a page that is not laid out yet: its pictures would be less than nothing wide, which a canvas refuses."""
    widths = [0, 10, 0, 610, 0, 310]
    words = [str(NODE), "--input-type=module", "-e", BOARD, (WEB / "board.js").as_uri(), json.dumps(widths)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [145.0] * 4 + [150.0] * 4


@no_axe
@no_chromium
@no_node
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("sample", SAMPLES)
def test_the_page_while_agents_learn(sample: str, tmp_path: Path) -> None:
    port = free_port()
    opened: list[BaseTransport] = []

    def listen() -> None:
        opened.append(open_transport(f"page://127.0.0.1:{port}?serve={WEB / sample}", wait=100.0))

    listening = threading.Thread(target=listen)
    listening.start()
    found: list[dict[str, Any]] = []
    looking = threading.Thread(target=lambda: found.append(look(f"http://127.0.0.1:{port}/", 4, tmp_path)))
    looking.start()
    listening.join(120)
    with opened[0] as transport, stepping(transport, sample == "rally"):
        looking.join(240)
    fine(found[0], "training")


@no_axe
@no_chromium
@no_node
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("sample", SAMPLES)
def test_the_page_with_a_trained_agent(sample: str, tmp_path: Path) -> None:
    size, action = SPACES[sample]
    model = make(observation=spaces.Box(-np.inf, np.inf, (size,)), action=action)
    export_onnx(model, tmp_path / "a.onnx", n_verify=1000)
    write_page(tmp_path / "a.onnx", tmp_path / "page", {"url": f"page://127.0.0.1:7780?serve={WEB / sample}"})
    if sample == "lander":
        shutil.copytree(WEB / sample / "node_modules", tmp_path / "page" / "node_modules")
    with served(tmp_path / "page") as url:
        fine(look(url, 3, tmp_path), "playing")


def rollout(transport: BaseTransport, choices: bool) -> str:
    """All bits of a seeded rollout."""
    digest = hashlib.sha256()
    rng = np.random.default_rng(5)
    transport.reset(seeds=list(range(16)))
    buffers = transport.receive()
    for _ in range(500):
        digest.update(b"".join(part.tobytes() for part in (buffers.obs, buffers.rewards, buffers.dones)))
        over = np.flatnonzero(buffers.dones).tolist()
        if choices:
            actions = rng.integers(3, size=(16, 1)).astype(np.float32)
        else:
            actions = rng.uniform(-1, 1, (16, 2)).astype(np.float32)
        transport.send_actions(actions, resets=over or None)
        buffers = transport.receive()
    return digest.hexdigest()


@no_chromium
@no_node
@in_runtimes
@pytest.mark.timeout(240)
@pytest.mark.parametrize("sample", SAMPLES[1:])
def test_the_same_rows_in_node_and_in_chromium(sample: str) -> None:
    port = free_port()
    with node(WEB / sample / "node.js", str(port)), open_transport(f"tcp://127.0.0.1:{port}", wait=30.0) as transport:
        in_node = rollout(transport, sample == "rally")
    port = free_port()
    with chromium(f"http://127.0.0.1:{port}/"):
        with open_transport(f"page://127.0.0.1:{port}?serve={WEB / sample}", wait=60.0) as transport:
            assert rollout(transport, sample == "rally") == in_node
