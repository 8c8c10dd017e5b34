"""The compiled modules for 64-bit Windows: compiled by MinGW, not linked, and never run there."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILER = "x86_64-w64-mingw32-gcc"


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CPython's, but for pyconfig.h, which says what the compiler's platform is."""
    # Copies: of a link GCC may take the file that it leads to, and then the pyconfig.h that stands beside that one.
    folder = tmp_path_factory.mktemp("windows") / "include"
    shutil.copytree(sysconfig.get_path("include"), folder)
    shutil.copy(Path(__file__).with_name("pyconfig.h"), folder)
    return folder


@pytest.mark.windows
@pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"{COMPILER} is not installed")
@pytest.mark.parametrize("source", ["ue_rl/protocol/text/_kernels.c", "ue_rl/protocol/memory/_sync.c"])
def test_it_compiles_without_a_warning(headers: Path, source: str, tmp_path: Path) -> None:
    if not (headers / "Python.h").exists():
        pytest.skip("the headers of this Python are not installed")
    words = [COMPILER, "-std=c11", "-O2", "-Wall", "-Werror", "-isystem", str(headers)]
    done = subprocess.run(
        [*words, "-c", str(ROOT / source), "-o", str(tmp_path / "module.o")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
