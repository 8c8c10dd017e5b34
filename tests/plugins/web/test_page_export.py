"""`ue-rl export --page DIR`: the folder, and its page in Chromium from a static server and from a file."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sb3_contrib", reason="the extra train is not installed: its policies are exported here")

from gymnasium import spaces

from tests.docs.blocks import labelled
from tests.plugins.web.pages import CHROMIUM, NODE, RUNTIMES, WEB, in_runtimes, served
from tests.support.command_line import ok, refused
from tests.support.models import make
from ue_rl.inference import export_onnx
from ue_rl.plugins.web.export import missing_operations, write_page
from ue_rl.system.errors import ExportError

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
IMAGE = spaces.Box(0, 255, (36, 36, 3), np.uint8)


def document(url: str) -> str:
    """What a page has become once nothing happens any more."""
    assert CHROMIUM is not None
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--virtual-time-budget=20000"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        command = [CHROMIUM, *flags, f"--user-data-dir={home}", "--dump-dom", url]
        return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout


@pytest.fixture
def model(tmp_path: Path) -> Any:
    made = make(observation=spaces.Box(-2, 2, (3,)))
    made.save(tmp_path / "model.zip")
    return made


@needs_chromium
@pytest.mark.slow
def test_a_page_of_a_model_alone_acts_as_predict_does(model: Any, tmp_path: Path) -> None:
    told = ok("export", tmp_path / "model.zip", "--page", tmp_path / "page")
    assert "http.server" in told
    assert {path.name for path in (tmp_path / "page").iterdir()} == {"index.html", "policy.js", "agent.onnx"}
    with served(tmp_path / "page") as url:
        seen = document(url)
    assert 'data-state="ready"' in seen
    wanted, _ = model.predict(np.zeros(3, np.float32), deterministic=True)
    assert re.findall(r'class="value">([^<]*)<', seen) == [f"{x:.3f}" for x in wanted]


@needs_chromium
@in_runtimes
def test_a_page_from_a_file_says_what_it_needs(model: Any, tmp_path: Path) -> None:
    ok("export", tmp_path / "model.zip", "--page", tmp_path / "page")
    assert "python3 -m http.server" in document((tmp_path / "page" / "index.html").as_uri()).partition("<main>")[0]


def page_of_a_cnn(tmp_path: Path) -> Path:
    """Its folder; that it needs npm is said."""
    export_onnx(make(observation=IMAGE, policy="CnnPolicy"), tmp_path / "a.onnx", n_verify=1000)
    folder = tmp_path / "page"
    told = write_page(tmp_path / "a.onnx", folder, {})
    assert any("Conv" in line and "npm ci" in line for line in told)
    assert (folder / "runtime" / "package-lock.json").is_file()
    return folder


def test_what_its_operations_cannot_play_needs_npm(tmp_path: Path) -> None:
    assert "policy.js" in {path.name for path in page_of_a_cnn(tmp_path).iterdir()}


@needs_chromium
@in_runtimes
def test_without_npm_the_page_says_so(tmp_path: Path) -> None:
    folder = page_of_a_cnn(tmp_path)
    with served(folder) as url:
        assert "run `npm ci` in the folder runtime" in document(url)
        if RUNTIMES is not None:
            (folder / "runtime" / "node_modules").symlink_to(Path(RUNTIMES) / "node_modules")
            assert 'data-state="ready"' in document(url)


@needs_chromium
@in_runtimes
def test_the_game_of_its_run_plays_the_agent(tmp_path: Path) -> None:
    export_onnx(
        make(observation=spaces.Box(-3, 3, (2,)), action=spaces.Box(-1, 1, (1,))), tmp_path / "a.onnx", n_verify=1000
    )
    config = {"url": f"page://127.0.0.1:7780?serve={WEB / 'carts'}&browser=open", "frame_stack": None}
    told = write_page(tmp_path / "a.onnx", tmp_path / "page", config)
    assert told[0] == f"the game is that of {WEB / 'carts'}"
    assert not (tmp_path / "page" / "ue_rl.js").is_symlink()
    with served(tmp_path / "page") as url:
        assert 'data-state="playing"' in document(url)
    write_page(tmp_path / "a.onnx", tmp_path / "page", config)  # an earlier page is replaced


@pytest.mark.parametrize(("sample", "asks"), [("carts", True), ("lander", True), ("rally", True), (None, False)])
def test_a_game_that_will_wait_for_a_trainer_is_named(sample: str | None, asks: bool, tmp_path: Path) -> None:
    game = tmp_path / "game"
    if sample is None:
        game.mkdir()
        (game / "index.html").write_text("<!doctype html><head></head>")
    else:
        game = WEB / sample
    export_onnx(make(), tmp_path / "a.onnx", n_verify=1000)
    told = write_page(tmp_path / "a.onnx", tmp_path / "page", {"url": f"page://127.0.0.1:1?serve={game}"})
    assert any("will wait for a trainer" in line for line in told) != asks
    assert any("npm ci" in line for line in told) == (sample == "lander")


def test_a_stack_is_named_in_the_page(tmp_path: Path) -> None:
    export_onnx(make(), tmp_path / "a.onnx", n_verify=1000)
    write_page(tmp_path / "a.onnx", tmp_path / "page", {"frame_stack": 2, "url": None})
    assert 'content="agent.onnx" data-stack="2"' in (tmp_path / "page" / "index.html").read_text("utf-8")


def test_folders_of_others_are_left_alone(model: Any, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    said = refused("export", tmp_path / "model.zip", "--page", tmp_path / "mine", by=ExportError)
    assert "holds something else" in str(said)
    export_onnx(make(), tmp_path / "a.onnx", n_verify=1000)
    game = tmp_path / "game"
    game.mkdir()
    (game / "index.html").write_text("<!doctype html><head></head>")
    with pytest.raises(ExportError, match="into the game that it is copied from"):
        write_page(tmp_path / "a.onnx", game / "page", {"url": [f"page://127.0.0.1:1?serve={game}"]})
    (game / "index.html").write_text("<!doctype html><p>Hm")
    with pytest.raises(ExportError, match="no <head>"):
        write_page(tmp_path / "a.onnx", tmp_path / "page", {"url": [f"page://127.0.0.1:1?serve={game}"]})


@pytest.mark.skipif(NODE is None, reason="there is no Node here")
def test_what_python_takes_for_the_modules_operations_it_has(tmp_path: Path) -> None:
    import onnx

    text = "console.log(JSON.stringify((await import(process.argv[1])).OPERATIONS))"
    command = [str(NODE), "--input-type=module", "-e", text, (WEB / "policy.js").as_uri()]
    own = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    graph = onnx.GraphProto(node=[onnx.NodeProto(op_type=name) for name in [*own, "Conv"]])
    (tmp_path / "a.onnx").write_bytes(onnx.ModelProto(graph=graph).SerializeToString())
    assert missing_operations(tmp_path / "a.onnx") == ["Conv"]


@needs_chromium
@pytest.mark.slow
def test_the_page_of_browser_md(tmp_path: Path) -> None:
    """Its game and its agent's lines, as one module."""
    game = labelled("docs/browser.md", "js game").rpartition("connect(")[0]
    agent = labelled("docs/browser.md", "js agent").replace("else connect(game);", "else connect(game);\n")
    made = "const game = new Walk({ obsSize: 1, actSize: 1, numEnvs: 4 });\n"
    told = "setInterval(() => document.body.append(String(game.played.steps > 8)), 500);\n"
    (tmp_path / "game").mkdir()
    script = f'<script type="module">{game}{agent.replace("const policy", made + "const policy", 1)}{told}</script>'
    (tmp_path / "game" / "index.html").write_text(f"<!doctype html><head><title>Walk</title></head><body>{script}")
    (tmp_path / "game" / "ue_rl.js").write_bytes((WEB / "ue_rl.js").read_bytes())
    walker = make(observation=spaces.Box(-3, 3, (1,)), action=spaces.Box(-1, 1, (1,)))
    export_onnx(walker, tmp_path / "a.onnx", n_verify=1000)
    config = {"url": f"page://127.0.0.1:7780?serve={tmp_path / 'game'}"}
    write_page(tmp_path / "a.onnx", tmp_path / "page", config)
    with served(tmp_path / "page") as url:
        assert "true" in document(url).rpartition("</script>")[2]
