"""What the contracts of setup.cfg (`lint-imports`) cannot say of imports, and the rules of docs/architecture.md."""

from __future__ import annotations

import ast
import configparser
import inspect
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.trees import without_collecting
from ue_rl.protocol.text.connection_state import ConnectionState
from ue_rl.system import errors
from ue_rl.training.kinds import LOG_TARGETS

ROOT = Path(__file__).resolve().parents[1]
DRAWING = runpy.run_path(str(ROOT / "docs/architecture_drawing.py"))
ROOMS = ("connections/", "bridges/", "inference/")
PLUGINS = {package.parent.name for package in (ROOT / "ue_rl" / "plugins").glob("*/__init__.py")}
# Which wings and plug-ins import another project's package: exactly these. NumPy and stdlib: all may.
LIBRARIES = {
    "anyio": "plugins.sessions",
    "click": "cli plugins.arena plugins.rllib plugins.sessions",
    "cloudpickle": "bridges",
    "flatbuffers": "protocol",
    "google": "plugins.sessions",
    "grpc": "plugins.sessions",
    "grpc_health": "plugins.sessions",
    "grpc_reflection": "plugins.sessions",
    "gymnasium": "bridges cli devtools envs inference plugins.arena plugins.rllib protocol training",
    "matplotlib": "plugins.arena training",
    "mcp": "plugins.sessions",
    "msgpack": "system",
    "onnx": "cli inference plugins.rllib plugins.web",
    "openai": "plugins.arena",
    "pettingzoo": "bridges envs",
    "PIL": "training",
    "portalocker": "training",
    "prometheus_client": "devtools",
    "psutil": "connections devtools plugins.rllib training",
    "pydantic": "bridges plugins.arena plugins.sessions",
    "pytest": "devtools",
    "ray": "plugins.rllib",
    "rich": "cli plugins.arena",
    "sb3_contrib": "envs training",
    "stable_baselines3": "cli devtools envs inference training",
    "starlette": "bridges plugins.arena plugins.sessions",
    "torch": "envs inference plugins.rllib system training",
    "uvicorn": "bridges",
    "websockets": "plugins.web",
    "yaml": "plugins.arena training",
    "zstandard": "protocol",
    **dict.fromkeys(set(LOG_TARGETS) - {"tensorboard"}, "training"),  # which SB3 imports
}


def files() -> list[Path]:
    links = [ROOT / "ue_rl" / room.rstrip("/") for room in ROOMS]
    found = [p for p in (ROOT / "ue_rl").rglob("*.py") if not any(link in p.parents for link in links)]
    for room in ROOMS:
        found += (ROOT / room).rglob("*.py")
    return found


def path_of(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def dotted(file: Path) -> str:
    name = path_of(file).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name if name.startswith("ue_rl") else f"ue_rl.{name}"


def part_of(file: Path) -> str:
    """The wing that a file belongs to, such as "envs"; the plug-in, such as "plugins.arena"."""
    parts = dotted(file).split(".")[1:]
    return ".".join(parts[:2] if parts[:1] == ["plugins"] else parts[:1])


MODULES = {dotted(file): file for file in files()}


class Facts(NamedTuple):
    """What is asked of a file: it is parsed once for all rules.

    Attributes:
        imports: every module that it imports, wherever in it, but for types alone.
        classes: the name and the line of each.
    """

    imports: frozenset[str]
    classes: list[tuple[str, int]]


@cache
def facts(file: Path) -> Facts:
    names: set[str] = set()
    classes = []
    for node in DRAWING["statements_that_run"](ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            for alias in node.names:  # a compiled module counts as itself, not as its package
                submodule = f"{node.module}.{alias.name}"
                names.add(submodule if submodule in MODULES or alias.name[0] == "_" else node.module or "")
        elif isinstance(node, ast.ClassDef):
            classes.append((node.name, node.lineno))
    return Facts(frozenset(names), classes)


def imports(file: Path) -> frozenset[str]:
    return facts(file.resolve()).imports


def seen(file: Path) -> set[str]:
    """The paths of this repository's files that a file imports."""
    return {path_of(MODULES[name]) for name in imports(file) if name in MODULES}


def test_there_is_no_circle() -> None:
    with without_collecting():
        graph = {path_of(file): seen(file) - {path_of(file)} for file in files()}
    while free := [name for name, others in graph.items() if not others & set(graph)]:
        for name in free:
            del graph[name]
    assert not graph, {name: sorted(others & set(graph)) for name, others in graph.items()}


def test_text_does_not_know_of_shared_memory() -> None:
    for room in ("connections", "bridges"):
        for file in (ROOT / room / "tcp").rglob("*.py"):
            assert not [other for other in seen(file) if "/shm/" in other or "protocol/memory" in other], file


def strings(tree: ast.AST) -> Iterator[str]:
    """The texts of a file that are no docstrings."""
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Constant) and isinstance(child.value, str) and not isinstance(node, ast.Expr):
                yield child.value


def test_nothing_but_entry_points_knows_of_a_plug_in() -> None:
    """Not by a text either, which would be imported when it is used."""
    found = [
        (path_of(file), text)
        for file in files()
        if not part_of(file).startswith("plugins") and "ue_rl.plugins" in file.read_text("utf-8")
        for text in strings(ast.parse(file.read_text("utf-8")))
        if text.startswith("ue_rl.plugins")
    ]
    assert found == []


def test_who_imports_another_projects_package() -> None:
    users: dict[str, set[str]] = {}
    for file in files():
        for package in {name.split(".")[0] for name in imports(file)} - sys.stdlib_module_names:
            if package not in ("ue_rl", "numpy"):
                users.setdefault(package, set()).add(part_of(file))
    assert {package: " ".join(sorted(parts)) for package, parts in users.items()} == LIBRARIES


def test_the_picture_is_drawn_from_the_imports() -> None:
    drawn = DRAWING["drawing"](DRAWING["imports"](imports))
    assert DRAWING["PICTURE"].read_text("utf-8") == drawn, "python docs/architecture_drawing.py"


@pytest.mark.parametrize(
    "module", ["ue_rl", "ue_rl.inference", errors.__name__, "ue_rl.protocol.text", "ue_rl.connections"]
)
def test_light_imports_stay_light(module: str) -> None:
    heavy = "torch stable_baselines3 gymnasium numba mujoco pydantic msgpack grpc google.protobuf mcp starlette uvicorn"
    heavy += " zstandard prometheus_client psutil"
    code = f"import sys, {module}; print([m for m in '{heavy}'.split() if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


def test_mujoco_is_imported_in_one_file() -> None:
    found = {path_of(file) for file in files() if re.search(r"import(_module\(\")? ?mujoco\b", file.read_text("utf-8"))}
    assert len(found) == 1
    assert found.pop().startswith("ue_rl/plugins/mujoco/")


def test_no_file_is_a_stranger_to_its_room() -> None:
    """The links stay links: a copy would be a second module with the same name. A source distribution has no links."""
    copied = (ROOT / "PKG-INFO").exists()
    for room in ROOMS:
        link = ROOT / "ue_rl" / room.rstrip("/")
        assert link.is_symlink() or copied or not link.exists()
        assert (ROOT / room / "__init__.py").exists()


def test_every_package_is_installed() -> None:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    assert set(parser["options"]["packages"].split()) == {dotted(f) for f in files() if f.name == "__init__.py"}


def test_only_wings_stand_in_the_package() -> None:
    assert {path.name for path in (ROOT / "ue_rl").glob("*.py")} == {"__init__.py", "__main__.py"}
    wings = {wing.name.removeprefix("ue_rl.") for wing in DRAWING["WINGS"]}
    parts = {part_of(file) for file in files()} - {"", "__main__"}
    assert {part for part in parts if not part.startswith("plugins.")} == wings
    assert {part.removeprefix("plugins.") for part in parts if part.startswith("plugins.")} == PLUGINS


def test_only_a_session_sets_its_state() -> None:
    found = []
    for file in files():
        text = file.read_text("utf-8")
        if re.search(r"session\s*\.\s*state\b", text) is None:  # most need not be parsed
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and node.attr == "state" and not isinstance(node.ctx, ast.Load):
                owner = node.value
                name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
                found += [f"{path_of(file)}:{node.lineno}"] if name.endswith("session") else []
    its_own = path_of(Path(inspect.getfile(ConnectionState)).resolve())
    assert [place for place in found if place.partition(":")[0] != its_own] == []


def test_a_class_name_is_used_once() -> None:
    """In the whole library, private and nested classes too: who reads a name need not ask which one is meant."""
    places: dict[str, list[str]] = {}
    for file in files():
        if file.name.startswith("generated") or "_pb2" in file.name:  # named by their schemas
            continue
        for name, line in facts(file).classes:
            places.setdefault(name, []).append(f"{path_of(file)}:{line}")
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
