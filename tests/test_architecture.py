"""The dependency rule of docs/architecture.md, read from the imports of every file."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("connections", "bridges", "inference")
JOINERS = ("ue_rl/connecting.py", "ue_rl/__init__.py", "ue_rl/__main__.py", "ue_rl/cli/", "ue_rl/testing/")
ENV_CLASSES = {"spaces.py", "vec_env.py", "gym_env.py", "gym_vector_env.py"}


def files() -> list[Path]:
    found = [p for p in (ROOT / "ue_rl").rglob("*.py") if not any((ROOT / "ue_rl" / r) in p.parents for r in ROOMS)]
    for room in ROOMS:
        found += (ROOT / room).rglob("*.py")
    return found


def imports(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def rooms_seen(path: Path) -> set[str]:
    return {m.group(1) for name in imports(path) if (m := re.match(r"ue_rl\.(connections|bridges|inference)\b", name))}


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_file_keeps_the_rule(path: Path) -> None:
    place = path.relative_to(ROOT).as_posix()
    if place.startswith(JOINERS):
        return
    room = place.split("/")[0]
    assert rooms_seen(path) <= {room}, f"{place} sees another room"
    heavy = {name.split(".")[0] for name in imports(path)} & {"gymnasium", "stable_baselines3", "torch", "onnxruntime"}
    if room == "ue_rl":
        assert not heavy or path.name in ENV_CLASSES, (place, heavy)


@pytest.mark.parametrize("module", ["ue_rl", "ue_rl.inference", "ue_rl.errors", "ue_rl.wire", "ue_rl.connections"])
def test_light_imports_stay_light(module: str) -> None:
    heavy = "('torch', 'stable_baselines3', 'gymnasium', 'numba')"
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


def test_no_file_is_a_stranger_to_its_room() -> None:
    """The links stay links: a copy would be a second module with the same name."""
    for room in ROOMS:
        link = ROOT / "ue_rl" / room
        assert link.is_symlink() or not link.exists()
        assert (ROOT / room / "__init__.py").exists()
