"""write_page: a folder with a page that plays an exported agent from any static server, for `ue-rl export --page`.

Where the agent was trained in a page that the trainer served, the folder has that game, and its page plays the agent;
otherwise a page on which a person sets what the agent sees. The agent's side is page/policy.js, which is
samples/web/policy.js. What its own operations do not play needs onnxruntime-web: page/package-lock.json names it, and
`npm ci` brings it.
"""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Mapping
from importlib.resources import files as files_of
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ue_rl.system.errors import ExportError

_AGENT = "agent.onnx"
_MARK = "ue_rl-agent"  # the <meta> that policy.js looks for
_RUNTIME = "runtime"  # a folder of its own: the game may have another package.json
_MODULE = f"{_RUNTIME}/node_modules/onnxruntime-web/dist/ort.wasm.min.mjs"
_LEFT_OUT = ("node_modules", "*.onnx", ".*", "__pycache__", _RUNTIME)
_FROM_A_FILE = """<script>
if (location.protocol === "file:") {
  addEventListener("DOMContentLoaded", () => {
    const told = document.createElement("p");
    told.setAttribute("role", "alert");
    told.style.cssText = "margin: 1rem; padding: 1rem; border: 2px solid; font: 1rem/1.5 system-ui, sans-serif";
    told.textContent = "Browsers let no page from a file load an agent. In this folder run python3 -m http.server, " +
      "and open http://127.0.0.1:8000/";
    document.body.prepend(told);
  });
}
</script>"""


def write_page(agent: Path, folder: Path, config: Mapping[str, Any]) -> list[str]:
    """Writes the folder; returns sentences for people: what is in it, and what is still to be done.

    Args:
        agent: an exported ONNX file. folder: not there, empty, or an earlier page, which is replaced file by file.
        config: of the run that the agent is from; {}: unknown.

    Raises:
        ExportError: the folder holds something else, or the game's page cannot name the agent.
    """
    if folder.exists() and not (folder.is_dir() and (not any(folder.iterdir()) or (folder / _AGENT).is_file())):
        raise ExportError(
            "the folder of the page holds something else",
            field="page",
            expected="a new folder, an empty one, or an earlier page",
            got=str(folder),
            cure="name another folder",
        )
    game = _game_of(config)
    if game is None:
        first = "index.html"
        text = _packaged(first)
    else:
        first = game.name
        text = game.read_text("utf-8")
    missing = missing_operations(agent)
    stack = config.get("frame_stack")
    if stack is None:
        stack = 1
    marked = _marked(text, stack, bool(missing))
    told = []
    if game is not None:
        _refuse_inside(folder, game.parent)
        shutil.copytree(game.parent, folder, ignore=shutil.ignore_patterns(*_LEFT_OUT), dirs_exist_ok=True)
        told.append(f"the game is that of {game.parent}")
        if not _asks_for_an_agent(game.parent):
            told.append("its page does not ask policy.js for the agent, and will wait for a trainer: docs/browser.md")
        if (game.parent / "package.json").is_file():
            told.append(f"the game needs packages: cd {folder} && npm ci")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / first).write_text(marked, "utf-8")
    (folder / "policy.js").write_text(_packaged("policy.js"), "utf-8")
    shutil.copyfile(agent, folder / _AGENT)
    if missing:
        (folder / _RUNTIME).mkdir(exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            (folder / _RUNTIME / name).write_text(_packaged(name), "utf-8")
        told.append(f"policy.js has no {', '.join(missing)}: cd {folder / _RUNTIME} && npm ci brings onnxruntime-web")
    told.append(f"serve it: python3 -m http.server --bind 127.0.0.1 --directory {folder}")
    return told


def missing_operations(agent: Path) -> list[str]:
    """The operations of an ONNX file that policy.js does not have; all of a domain that is not ONNX's own."""
    import onnx

    own = {"Constant", *re.findall(r"^  ([A-Z]\w+):", _packaged("policy.js").partition("\nconst RUN = {")[2], re.M)}
    nodes = onnx.load_from_string(agent.read_bytes()).graph.node
    return sorted({node.op_type for node in nodes if node.op_type not in own or node.domain not in ("", "ai.onnx")})


def _packaged(name: str) -> str:
    return files_of("ue_rl.plugins.web").joinpath("page", name).read_text("utf-8")


def _game_of(config: Mapping[str, Any]) -> Path | None:
    """The first page of the game that the trainer served, where it is still there."""
    urls = config.get("url")
    if urls is None:
        return None
    if isinstance(urls, str):
        urls = [urls]
    for url in urls:
        parts = urlsplit(str(url))
        if parts.scheme != "page":
            continue
        for served in parse_qs(parts.query).get("serve", ()):
            for page in (Path(served), Path(served) / "index.html"):
                if page.is_file():
                    return page
    return None


def _asks_for_an_agent(folder: Path) -> bool:
    """Does any file of the game call `trained` of policy.js?"""
    scripts = [
        path for path in folder.iterdir() if path.suffix in (".html", ".js", ".mjs") and path.name != "policy.js"
    ]
    return any("trained(" in path.read_text("utf-8") for path in scripts)


def _marked(text: str, stack: int, runtime: bool) -> str:
    """The page with its <meta>, and with a word for who opens it as a file."""
    given = ""
    if stack > 1:
        given += f' data-stack="{stack}"'
    if runtime:
        given += f' data-runtime="{html.escape(_MODULE)}"'
    meta = f'<meta name="{_MARK}" content="{_AGENT}"{given}>'
    marked, count = re.subn(
        r"<head[^>]*>", lambda found: f"{found[0]}\n{meta}\n{_FROM_A_FILE}", text, count=1, flags=re.I
    )
    if not count:
        raise ExportError(
            "the game's page has no <head>, in which the agent is named", field="page", cure="write one into it"
        )
    return marked


def _refuse_inside(folder: Path, source: Path) -> None:
    inner = folder.resolve()
    outer = source.resolve()
    if outer == inner or outer in inner.parents or inner in outer.parents:
        raise ExportError(
            "the page would be written into the game that it is copied from",
            field="page",
            got=str(folder),
            expected=f"a folder outside of {source}",
        )
