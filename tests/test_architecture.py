"""The rules of docs/architecture.md, read from the imports of every file, those inside functions too."""

from __future__ import annotations

import ast
import configparser
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.places import GROUND, ROOMS, ROWS, place_of

ROOT = Path(__file__).resolve().parents[1]
# Who imports another project's package: exactly these. NumPy and the standard library are everybody's.
LIBRARIES = {
    "anyio": "ue_rl/plugins/sessions/mcp/",
    "click": "ue_rl/cli/",
    "cloudpickle": "bridges/",
    "flatbuffers": "ue_rl/protocol/commands/",
    "google": "ue_rl/plugins/sessions/",
    "grpc": "ue_rl/plugins/sessions/grpc/ ue_rl/plugins/sessions/grpc/client/ ue_rl/plugins/sessions/",
    "grpc_health": "ue_rl/plugins/sessions/grpc/",
    "grpc_reflection": "ue_rl/plugins/sessions/grpc/",
    "gymnasium": "bridges/ inference/export/ ue_rl/envs/agents/ ue_rl/plugins/arena/ ue_rl/cli/ ue_rl/training/demonstrations/ "
    "ue_rl/envs/ ue_rl/plugins/rllib/ ue_rl/protocol/spaces/ ue_rl/devtools/testing/ ue_rl/training/",
    "matplotlib": "ue_rl/plugins/arena/ ue_rl/training/ ue_rl/training/tuning/",
    "mcp": "ue_rl/plugins/sessions/mcp/",
    "mlflow": "ue_rl/training/",
    "msgpack": "ue_rl/system/",
    "onnx": "inference/export/ ue_rl/cli/ ue_rl/plugins/rllib/rllink/",
    "openai": "ue_rl/plugins/arena/",
    "optuna": "ue_rl/training/tuning/",
    "pettingzoo": "bridges/ ue_rl/envs/agents/",
    "PIL": "ue_rl/training/",
    "portalocker": "ue_rl/training/saving/",
    "prometheus_client": "ue_rl/devtools/metrics/",
    "psutil": "ue_rl/devtools/doctor/ connections/launching/ ue_rl/plugins/rllib/ ue_rl/training/saving/ ue_rl/devtools/testing/",
    "pydantic": "ue_rl/plugins/sessions/openenv/ bridges/serving/ ue_rl/plugins/arena/ bridges/tools/",
    "pytest": "ue_rl/devtools/testing/",
    "ray": "ue_rl/plugins/rllib/",
    "rich": "ue_rl/cli/",
    "sb3_contrib": "ue_rl/envs/agents/ ue_rl/training/",
    "stable_baselines3": "inference/export/ ue_rl/envs/agents/ ue_rl/cli/ ue_rl/training/demonstrations/ ue_rl/envs/ ue_rl/training/saving/ "
    "ue_rl/training/",
    "starlette": "ue_rl/plugins/sessions/mcp/ ue_rl/plugins/sessions/openenv/ bridges/serving/ ue_rl/plugins/arena/",
    "torch": "inference/export/ ue_rl/training/demonstrations/ ue_rl/devtools/doctor/ ue_rl/envs/ ue_rl/plugins/rllib/ ue_rl/training/saving/ "
    "ue_rl/protocol/access/ ue_rl/training/",
    "uvicorn": "bridges/serving/",
    "wandb": "ue_rl/training/",
    "yaml": "ue_rl/plugins/arena/ ue_rl/training/",
    "zstandard": "ue_rl/devtools/recording/",
}  # fmt: skip


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


MODULES = {dotted(file): file for file in files()}


def nodes_that_run(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from nodes_that_run(node)


@cache
def imports(file: Path) -> frozenset[str]:
    """Every module that a file imports, wherever in it."""
    names: set[str] = set()
    for node in nodes_that_run(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            for alias in node.names:  # a compiled module counts as itself, not as its package
                submodule = f"{node.module}.{alias.name}"
                names.add(submodule if submodule in MODULES or alias.name[0] == "_" else node.module or "")
    return frozenset(names)


def seen(file: Path) -> set[str]:
    """The paths of this repository's files that a file imports."""
    return {path_of(MODULES[name]) for name in imports(file) if name in MODULES}


def test_a_file_sees_what_its_place_may_see() -> None:
    places = {path_of(file): place_of(path_of(file)) for file in files()}
    strangers = {
        name: sorted(other for other in seen(ROOT / name) if place_of(other).name not in place.may_see())
        for name, place in places.items()
    }
    assert {f"{name}, of {places[name].name}": others for name, others in strangers.items() if others} == {}


def test_the_table_allows_no_more_than_is_there() -> None:
    used: dict[str, set[str]] = {row.name: {row.name} | GROUND for row in ROWS}
    for file in files():
        used[place_of(path_of(file)).name].update(place_of(other).name for other in seen(file))
    unused = {row.name: row.may_see() - used[row.name] for row in ROWS if row.sees != "*"}
    assert {name: others for name, others in unused.items() if others} == {}
    assert [row.name for row in ROWS if row.sees == "*"] == ["ue_rl/cli/"], "the one place where everything meets"


def test_a_place_sees_only_what_stands_below_it() -> None:
    floors = {row.name: floor for floor, row in enumerate(ROWS)}
    assert [
        (row.name, other)
        for row in ROWS
        for other in row.may_see()
        if floors[other] < floors[row.name] and room_of(other) != room_of(row.name) and row.sees != "*"
    ] == []


def room_of(name: str) -> str:
    """connections of "connections/tcp/", ue_rl/devtools/check of "ue_rl/devtools/check/checks/"."""
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] == "ue_rl" else parts[0]


def test_a_room_of_the_user_sees_no_other() -> None:
    for row in ROWS:
        if row.name.startswith(ROOMS):
            others = {other for other in row.may_see() if other.startswith(ROOMS)}
            assert {room_of(other) for other in others} == {room_of(row.name)}


def test_text_does_not_know_of_shared_memory() -> None:
    for room in ("connections", "bridges"):
        (row,) = (row for row in ROWS if row.name == f"{room}/tcp/")
        assert not [other for other in row.may_see() if "shm" in other]


def test_there_is_no_circle() -> None:
    graph = {path_of(file): seen(file) - {path_of(file)} for file in files()}
    while free := [name for name, others in graph.items() if not others & set(graph)]:
        for name in free:
            del graph[name]
    assert not graph, {name: sorted(others & set(graph)) for name, others in graph.items()}


def test_who_imports_another_projects_package() -> None:
    users: dict[str, set[str]] = {}
    for file in files():
        for package in {name.split(".")[0] for name in imports(file)} - sys.stdlib_module_names:
            if package not in ("ue_rl", "numpy"):
                users.setdefault(package, set()).add(place_of(path_of(file)).name)
    assert {package: " ".join(sorted(places)) for package, places in users.items()} == LIBRARIES


def test_the_picture_is_drawn_from_the_table() -> None:
    script = runpy.run_path(str(ROOT / "docs/architecture_drawing.py"))
    assert script["PICTURE"].read_text("utf-8") == script["drawing"](), "python docs/architecture_drawing.py"


@pytest.mark.parametrize(
    "module", ["ue_rl", "ue_rl.inference", "ue_rl.system.errors", "ue_rl.protocol.text", "ue_rl.connections"]
)
def test_light_imports_stay_light(module: str) -> None:
    heavy = "torch stable_baselines3 gymnasium numba mujoco pydantic msgpack grpc google.protobuf mcp starlette uvicorn"
    heavy += " zstandard prometheus_client psutil"
    code = f"import sys, {module}; print([m for m in '{heavy}'.split() if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


def test_mujoco_is_imported_in_one_file() -> None:
    found = {path_of(file) for file in files() if re.search(r"import(_module\(\")? ?mujoco\b", file.read_text("utf-8"))}
    assert found == {"ue_rl/plugins/mujoco/library.py"}
    own = "bridges/mujoco"
    users = {path_of(file) for file in files() if any(other.startswith(f"{own}_library") for other in seen(file))}
    assert users
    assert all(user.startswith(own) for user in users)


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


def test_every_carrier_has_a_place_of_its_own() -> None:
    """Else it would have its room's, which sees more."""
    folders = [each.parent for room in ("connections", "bridges") for each in (ROOT / room).glob("*/__init__.py")]
    assert [path_of(each) for each in folders if place_of(path_of(each) + "/").name in ROOMS] == []


def test_the_root_of_the_package_is_small() -> None:
    """A file of no room is one that every room needs; all others have a folder."""
    assert len(list((ROOT / "ue_rl").glob("*.py"))) <= 9


def test_only_a_session_sets_its_state() -> None:
    found = []
    for file in files():
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr == "state" and not isinstance(node.ctx, ast.Load):
                owner = node.value
                name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
                found += [f"{path_of(file)}:{node.lineno}"] if name.endswith("session") else []
    assert [place for place in found if not place.startswith("ue_rl/protocol/text/session.py")] == []
