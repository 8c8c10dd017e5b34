"""samples/web/policy.js against predict(), by its own operations and by both runtimes of npm, in Node and in Chromium.

`.ci/run runtimes` installs the runtimes by tests/inference/node/package-lock.json and names their folder in
UE_RL_NODE_RUNTIMES; without it the module's own operations are compared.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sb3_contrib", reason="the extra train is not installed: its policies are played here")

from gymnasium import spaces
from sb3_contrib import MaskablePPO, RecurrentPPO

from tests.plugins.web.held_out import KINDS, Case, case
from tests.plugins.web.pages import CHROMIUM, NODE, ROOT, RUNTIMES, WEB, chromium, in_runtimes
from tests.support.models import make
from ue_rl.inference import export_onnx
from ue_rl.plugins.web.site import Site

PLAY = ROOT / "tests" / "inference" / "node" / "play.mjs"
POLICY = WEB / "policy.js"
TOLERANCE = 2e-6  # of max(1, |value|)
# Each algorithm, each kind of space and each wrapper once; where npm's runtimes are, all of KINDS.
EACH_RUN = (
    "PPO",
    "PPO, Dict, VecNormalize, Discrete",
    "SAC, VecNormalize, stacked",
    "DQN",
    "MaskablePPO, Dict",
    "MaskablePPO, MultiDiscrete, VecNormalize",
    "RecurrentPPO",
)
needs_node = pytest.mark.skipif(NODE is None, reason="there is no Node here")
no_runtimes = pytest.mark.skipif(RUNTIMES is None, reason="NOT RUN: onnxruntime of npm, which .ci/run runtimes has")
no_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
PLAYERS = [
    pytest.param("own", "node", marks=needs_node),
    pytest.param("own", "chromium", marks=[no_chromium, in_runtimes]),
    pytest.param("node", "node", marks=no_runtimes),
    pytest.param("web", "node", marks=no_runtimes),
    pytest.param("web", "chromium", marks=[no_chromium, no_runtimes]),
]
PAGE = """<!doctype html><script type="module">
const tell = (what) => fetch("results", {{method: "POST", body: JSON.stringify(what)}});
try {{
  const {{ Policy }} = await import("./policy.js");
  const {{ play }} = await import("./play.mjs");
  let runtime = null;
  if ("{which}" === "web") {{
    runtime = await import("./node_modules/onnxruntime-web/dist/ort.wasm.min.mjs");
    runtime.env.wasm.numThreads = 1;
  }}
  await tell(await play(Policy, runtime, await (await fetch("cases.json")).json()));
}} catch (error) {{ await tell(String(error)); }}
</script>"""


@contextmanager
def results_of_a_page(folder: Path) -> Iterator[tuple[str, Any]]:
    """A server of a page that tells what it found: its address, and a function that waits for it."""
    site = Site(folder)
    told: list[Any] = []
    came = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = site.answer(self.path)
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.kind)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            came.set()

        def log_message(self, *_: object) -> None:
            pass

    def wait() -> Any:
        assert came.wait(300), "the page has said nothing"
        return told[0]

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", wait
        server.shutdown()


def played(which: str, where: str, cases: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """What policy.js makes of the cases."""
    (folder / "cases.json").write_text(json.dumps(cases))
    (folder / "play.mjs").write_bytes(PLAY.read_bytes())
    if RUNTIMES is not None:
        (folder / "node_modules").symlink_to(Path(RUNTIMES) / "node_modules")
    if where == "node":
        assert NODE is not None
        command = [NODE, str(folder / "play.mjs"), str(POLICY), which, str(folder / "cases.json")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)  # type: ignore[no-any-return]
    (folder / "policy.js").write_bytes(POLICY.read_bytes())
    (folder / "index.html").write_text(PAGE.format(which=which))
    with results_of_a_page(folder) as (address, wait), chromium(address):
        return wait()  # type: ignore[no-any-return]


def numbers(texts: list[str], like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.frombuffer(b"".join(map(base64.b64decode, texts)), np.float32).reshape(like.shape)


def off(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    return float((np.abs(found - wanted.astype(np.float64)) / np.maximum(1, np.abs(wanted))).max())


def compared(case: Case, found: dict[str, Any], name: str) -> tuple[float, int]:
    """(how far numbers are off at most, choices that differ between scores as near as that); fails on others."""
    assert "error" not in found, (name, found)
    actions = numbers(found["actions"], case.actions)
    most = off(numbers(found["raw"], case.raw), case.raw)
    assert most <= TOLERANCE, name
    if not case.counts:
        most = max(most, off(actions / case.unit, case.actions / case.unit))
        assert most <= TOLERANCE, name
        return most, 0
    scores = case.raw.astype(np.float64)
    if case.masks is not None:
        scores = np.where(case.masks, scores, -np.inf)
    ties = 0
    for number, part in enumerate(np.split(scores, np.cumsum(case.counts)[:-1], axis=1)):
        for row in np.flatnonzero(actions[:, number] != case.actions[:, number]):
            ours, theirs = part[row, int(actions[row, number])], part[row, int(case.actions[row, number])]
            assert abs(ours - theirs) <= 2 * TOLERANCE * max(1, abs(theirs)), (name, row)
            ties += 1
    return most, ties


Cases = dict[str, Case]


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    folder = tmp_path_factory.mktemp("few")
    names = EACH_RUN
    if RUNTIMES is not None:
        names = tuple(KINDS)
    return {name: case(name, folder, 300) for name in names}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    folder = tmp_path_factory.mktemp("many")
    return {name: case(name, folder, 10_000) for name in KINDS}


def compare_all(which: str, where: str, cases: Cases, folder: Path) -> None:
    results = played(which, where, [each.asked for each in cases.values()], folder)
    worst, ties = 0.0, 0
    for (name, each), found in zip(cases.items(), results, strict=True):
        most, equal = compared(each, found, name)
        worst, ties = max(worst, most), ties + equal
    rows = len(cases["PPO"].actions)
    print(f"{which} in {where}: {len(cases)} models, {rows} rows each: off by {worst:.2g} at most, {ties} ties")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("which", "where"), PLAYERS)
def test_held_out_models(which: str, where: str, few: Cases, tmp_path: Path) -> None:
    compare_all(which, where, few, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("which", "where"), PLAYERS)
def test_held_out_models_on_ten_thousand_rows(which: str, where: str, many: Cases, tmp_path: Path) -> None:
    compare_all(which, where, many, tmp_path)


def in_node(text: str, *words: str) -> list[str]:
    """The lines that a module prints which has Policy and `words`."""
    assert NODE is not None
    head = f"import {{ Policy, player }} from {json.dumps(POLICY.as_uri())}; const words = {json.dumps(words)};\n"
    command = [NODE, "--no-warnings", "--input-type=module", "-e", head + text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


REFUSED = """
try {
  const policy = await Policy.load(words[0]);
  %s
  console.log("taken");
} catch (error) {
  console.log(`${error.constructor.name}: ${error.message}`);
}
"""


@needs_node
@pytest.mark.parametrize(
    ("options", "text", "said"),
    [
        (
            {"observation": spaces.Box(0, 255, (36, 36, 3), np.uint8), "policy": "CnnPolicy"},
            "",
            "has no operation Conv",
        ),
        ({}, "policy.actNow([1, 2, 3])", "3 numbers, which are not rows of 4"),
        ({}, "policy.actNow([1, 2, NaN, 4])", "number 2 is NaN"),
        ({}, "policy.actNow([1, 2, 3, 4], { masks: [1] })", "takes none"),
        ({"algorithm": MaskablePPO, "action": spaces.Discrete(3)}, "policy.actNow([1, 2, 3, 4])", "needs 3 flags"),
        (
            {"algorithm": MaskablePPO, "action": spaces.Discrete(3)},
            "policy.actNow([1, 2, 3, 4], { masks: [1, 1] })",
            "2 flags, not 3",
        ),
        ({}, "await Policy.load(words[0], { stack: 3 })", "obs holds 4 numbers in its last axis, not 3 frames"),
    ],
)
def test_what_it_cannot_play_is_named(options: dict[str, Any], text: str, said: str, tmp_path: Path) -> None:
    export_onnx(make(**options), tmp_path / "a.onnx", n_verify=1000)
    (told,) = in_node(REFUSED % text, str(tmp_path / "a.onnx"))
    assert told.startswith("PolicyError: ")
    assert said in told


def cut(content: bytes) -> bytes:
    return content[:-200]


def other_weight(content: bytes) -> bytes:
    at = content.index(b"head.net.bias") + 40
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def page(content: bytes) -> bytes:
    return b"<!doctype html><title>Not found</title>"


@needs_node
@pytest.mark.parametrize(
    ("change", "said"), [(cut, "no ONNX file"), (other_weight, "was changed or cut"), (page, "no ONNX")]
)
def test_a_broken_file_is_refused(change: Any, said: str, tmp_path: Path) -> None:
    export_onnx(make(), tmp_path / "a.onnx", n_verify=1000)
    (tmp_path / "a.onnx").write_bytes(change((tmp_path / "a.onnx").read_bytes()))
    (told,) = in_node(REFUSED % "", str(tmp_path / "a.onnx"))
    assert told.startswith("PolicyError: ")
    assert said in told


@needs_node
def test_a_dict_goes_in_by_keys_or_as_the_engines_row(tmp_path: Path) -> None:
    parts = spaces.Dict({"near": spaces.Box(-1, 1, (2,)), "far": spaces.Box(-1, 1, (3,))})
    model = make(observation=parts, policy="MultiInputPolicy")
    report = export_onnx(model, tmp_path / "a.onnx", n_verify=1000)
    by_name = {"near": [0.1, 0.2], "far": [0.3, 0.4, 0.5]}
    row = [x for port in report.metadata.inputs for x in by_name[port.name]]
    text = f"const p = await Policy.load(words[0]); for (const given of [{row}, {json.dumps(by_name)}])"
    first, second = in_node(
        text + "console.log(JSON.stringify(Array.from(p.actNow(given))));", str(tmp_path / "a.onnx")
    )
    wanted, _ = model.predict({key: np.float32(value) for key, value in by_name.items()}, deterministic=True)
    assert first == second
    np.testing.assert_allclose(json.loads(first), wanted, atol=1e-6)


@needs_node
def test_optional_masks_need_not_be_given_and_a_memory_begins_anew(tmp_path: Path) -> None:
    """The file's own default stands for them."""
    export_onnx(make(MaskablePPO, spaces.Discrete(3)), tmp_path / "a.onnx", n_verify=1000, optional_masks=True)
    text = """const p = await Policy.load(words[0]);
console.log((await p.runRaw({ obs: { dims: [1, 4], data: new Float32Array(4) } })).actions.dims);"""
    assert in_node(text, str(tmp_path / "a.onnx")) == ["[ 1, 1 ]"]
    small = {"net_arch": [8], "lstm_hidden_size": 8}
    export_onnx(make(RecurrentPPO, policy="MlpLstmPolicy", policy_kwargs=small), tmp_path / "b.onnx", n_verify=1000)
    text = """const p = await Policy.load(words[0]);
const row = [1, -1, 0.5, 0, 1, -1, 0.5, 0];
const acted = () => Array.from(p.actNow(row), (x) => x.toFixed(4));
const first = acted();
const second = acted();
p.reset([0]);
const third = acted();
console.log(first[0] === third[0], first[0] === second[0], third[2] === first[2]);"""
    assert in_node(text, str(tmp_path / "b.onnx")) == ["true false false"]


@needs_node
def test_a_game_is_played_without_a_trainer(tmp_path: Path) -> None:
    export_onnx(
        make(observation=spaces.Box(-3, 3, (2,)), action=spaces.Box(-1, 1, (1,))), tmp_path / "a.onnx", n_verify=1000
    )
    text = f"""const {{ Carts }} = await import({json.dumps((WEB / "carts" / "carts.js").as_uri())});
const game = new Carts(4);
const playing = player(game, await Policy.load(words[0]));
for (let i = 0; i < 150; i++) await playing.step();
console.log(game.played.steps, game.played.returns.length >= 4);"""
    assert in_node(text, str(tmp_path / "a.onnx")) == ["600 true"]


def test_its_types_name_what_it_exports() -> None:
    exported = r"^export (?:async )?(?:function|class|const) (\w+)"
    names = set(re.findall(exported, POLICY.read_text("utf-8"), re.M))
    assert names == set(re.findall(exported, (WEB / "policy.d.ts").read_text("utf-8"), re.M))
