"""onnxruntime reports machine and models to its maker by default: not where this library imports it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMPORTS = "from ue_rl.system.onnx_runtime import import_onnxruntime; import_onnxruntime()"
PLAYS = "import sys; from ue_rl.inference import OnnxInference; OnnxInference(sys.argv[1])"
ADOPTS = (
    "import sys; from ue_rl.inference.export.adopting import description_in;"
    "description_in(open(sys.argv[1], 'rb').read())"
)


def run(code: str, home: Path, *arguments: Path, **environ: str) -> str:
    """In a process whose environment says nothing of tests or CI, where onnxruntime would report nothing anyway."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT)} | environ
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=100).stdout


@pytest.mark.skipif(sys.platform == "win32", reason="the cache folder is looked for in HOME")
@pytest.mark.parametrize(
    "code",
    [
        pytest.param(IMPORTS, id="imports", marks=pytest.mark.exhaustive),  # as both others do
        pytest.param(PLAYS, id="plays"),
        pytest.param(ADOPTS, id="adopts"),
    ],
)
def test_no_file_is_left_in_the_home_of_who_plays(code: str, pendulum: Path, tmp_path: Path) -> None:
    run(code, tmp_path, pendulum)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(("decided", "told"), [({}, "1"), ({"ORT_DISABLE_TELEMETRY": "0"}, "0")])
def test_who_has_decided_keeps_that(decided: dict[str, str], told: str, tmp_path: Path) -> None:
    """What onnxruntime is told, by one of our own that only says it: the real one would report."""
    (tmp_path / "onnxruntime.py").write_text("import os; print(os.environ['ORT_DISABLE_TELEMETRY'])")
    places = os.pathsep.join([str(tmp_path), str(ROOT)])
    assert run(IMPORTS, tmp_path, PYTHONPATH=places, **decided) == f"{told}\n"
