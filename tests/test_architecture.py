"""The rules of docs/architecture.md, read from the imports of every file, those inside functions too."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("connections", "bridges", "inference")
JOINERS = (
    "ue_rl/connecting.py", "ue_rl/__init__.py", "ue_rl/__main__.py",
    "ue_rl/cli/", "ue_rl/testing/", "ue_rl/training/", "ue_rl/compliance/", "ue_rl/rllib/",
)  # fmt: skip
LIBRARIES = {"gymnasium", "stable_baselines3", "torch", "onnxruntime"}
# What a folder of the core may see of the others; everything may see ue_rl/*.py.
MAY_SEE = {
    "ue_rl/wire": set[str](),
    "ue_rl/shm": {"ue_rl/wire"},
    "ue_rl/commands": set[str](),
    "ue_rl/envs": set[str](),
    "ue_rl/agents": {"ue_rl/envs"},
    "ue_rl/engines": {"ue_rl/wire"},
    "ue_rl/launching": {"ue_rl/engines", "ue_rl/shm"},
    "ue_rl/saving": {"ue_rl/envs", "ue_rl/engines"},
    "ue_rl/rllink": set[str](),
}


def files() -> list[Path]:
    links = [ROOT / "ue_rl" / room for room in ROOMS]
    found = [p for p in (ROOT / "ue_rl").rglob("*.py") if not any(link in p.parents for link in links)]
    for room in ROOMS:
        found += (ROOT / room).rglob("*.py")
    return found


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def dotted(path: Path) -> str:
    name = place(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name if name.startswith("ue_rl") else f"ue_rl.{name}"


MODULES = {dotted(path): path for path in files()}


def nodes_that_run(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from nodes_that_run(node)


@cache
def imports(path: Path) -> frozenset[str]:
    """Every module that a file imports, wherever in it."""
    names: set[str] = set()
    for node in nodes_that_run(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:  # a compiled module counts as itself, not as its package
                submodule = f"{node.module}.{alias.name}"
                names.add(submodule if submodule in MODULES or alias.name[0] == "_" else node.module or "")
    return frozenset(names)


def seen(path: Path) -> set[str]:
    """The files of this repository that a file imports, as places."""
    return {place(MODULES[name]) for name in imports(path) if name in MODULES}


@pytest.mark.parametrize("path", files(), ids=place)
def test_every_file_keeps_the_rule(path: Path) -> None:
    here = place(path)
    if here.startswith(JOINERS):
        return
    room = here.split("/")[0]
    others = {other for other in seen(path) if other.split("/")[0] != room}
    assert {other for other in others if not other.startswith("ue_rl/")} == set(), f"{here} sees another room"
    assert {other for other in seen(path) if other.startswith(JOINERS[3:])} == set(), (
        f"{here} sees what joins the rooms"
    )
    if room == "ue_rl" and not here.startswith(("ue_rl/envs/", "ue_rl/agents/", "ue_rl/saving/")):
        assert not {name.split(".")[0] for name in imports(path)} & LIBRARIES, here


@pytest.mark.parametrize("folder", MAY_SEE)
def test_a_folder_of_the_core_sees_only_what_it_may(folder: str) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        folders = {other.rpartition("/")[0] for other in seen(path)}
        assert folders <= {"ue_rl", folder} | MAY_SEE[folder], place(path)


@pytest.mark.parametrize("room", ["connections", "bridges"])
def test_tcp_never_sees_shm(room: str) -> None:
    for path in (ROOT / room / "tcp").rglob("*.py"):
        assert not [other for other in seen(path) if "/shm" in other], place(path)


def test_there_is_no_circle() -> None:
    graph = {place(path): seen(path) - {place(path)} for path in files()}
    while free := [name for name, others in graph.items() if not others & set(graph)]:
        for name in free:
            del graph[name]
    assert not graph, {name: sorted(others & set(graph)) for name, others in graph.items()}


@pytest.mark.parametrize("module", ["ue_rl", "ue_rl.inference", "ue_rl.errors", "ue_rl.wire", "ue_rl.connections"])
def test_light_imports_stay_light(module: str) -> None:
    heavy = "('torch', 'stable_baselines3', 'gymnasium', 'numba', 'mujoco')"
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


def test_mujoco_is_imported_in_one_file() -> None:
    found = {place(path) for path in files() if re.search(r"import(_module\(\")? ?mujoco\b", path.read_text("utf-8"))}
    assert found == {"bridges/mujoco_library.py"}
    own = "bridges/mujoco"
    users = {place(path) for path in files() if any(other.startswith(f"{own}_library") for other in seen(path))}
    assert users
    assert all(user.startswith(own) for user in users)


def test_no_file_is_a_stranger_to_its_room() -> None:
    """The links stay links: a copy would be a second module with the same name."""
    for room in ROOMS:
        link = ROOT / "ue_rl" / room
        assert link.is_symlink() or not link.exists()
        assert (ROOT / room / "__init__.py").exists()


@pytest.mark.parametrize("path", files(), ids=place)
def test_only_a_session_sets_its_state(path: Path) -> None:
    if place(path) == "ue_rl/session.py":
        return
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and node.attr == "state" and not isinstance(node.ctx, ast.Load):
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            assert not name.endswith("session"), f"{place(path)}:{node.lineno}"
