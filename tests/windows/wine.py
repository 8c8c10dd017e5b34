"""Programs for 64-bit Windows: compiled by MinGW, run under Wine."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.samples import building

ROOT = Path(__file__).resolve().parents[2]
GCC = "x86_64-w64-mingw32-gcc"
GXX = "x86_64-w64-mingw32-g++"
DEBIANS = Path("/usr/lib/wine/wine64")  # which stands on no PATH


def _wine() -> str | None:
    if DEBIANS.exists():
        return str(DEBIANS)
    return shutil.which("wine64") or shutil.which("wine")


WINE = _wine()
_MISSING = [name for name in (GCC, GXX) if shutil.which(name) is None]
if WINE is None:
    _MISSING.append("wine64")
MARKS = [
    pytest.mark.windows,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows needs no Wine"),
    pytest.mark.skipif(bool(_MISSING), reason=f"not installed: {', '.join(_MISSING)}"),
    pytest.mark.timeout(300),  # the first program waits for Wine to make its C: drive
]


def needs_wine(test: Any) -> Any:
    """Marks a test that runs programs under Wine."""
    for mark in MARKS:
        test = mark(test)
    return test


def program(source: Path, *flags: str, reads: Sequence[Path] = ()) -> Path:
    """A C or C++ source as an .exe that needs no DLL of MinGW's. `reads`: files of ours that it includes."""
    compiler = GCC
    standard = "-std=c11"
    if source.suffix == ".cpp":
        compiler = GXX
        standard = "-std=c++17"
    strict = [standard, "-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-static"]
    command = [compiler, *strict, *flags, "-o", "OUT", source, "-lws2_32"]
    return building.built(f"{source.stem}.exe", command, [source, *reads])


def environment() -> dict[str, str]:
    """For all programs of this user one C: drive, which Wine takes some seconds to make."""
    assert WINE is not None
    base = {**os.environ, "WINEDEBUG": "-all", "WINEDLLOVERRIDES": "mscoree,mshtml,winemenubuilder.exe="}
    base.pop("DISPLAY", None)

    def make(folder: Path) -> None:
        command = [WINE or "", "wineboot", "--init"]
        done = subprocess.run(command, env={**base, "WINEPREFIX": str(folder)}, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr

    base["WINEPREFIX"] = str(building.kept([], make, "wine", WINE, os.stat(WINE).st_mtime_ns))
    return base


def path(file: Path) -> str:
    """As programs under Wine name it."""
    return "Z:" + str(file).replace("/", "\\")


def _started(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([WINE or "", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment())


@functools.cache
def _keep_the_server() -> None:
    """Starts a program that waits for as long as this process lives.

    Debian's Wine server ends with its last program (-p0) and turns away whoever asks while it does: without this, one
    program in some hundreds that start right after another has ended fails, "recvmsg: Connection reset by peer".
    """
    for _ in range(10):  # this one, too, may ask a server that ends: that of an earlier run
        waiting = _started("cmd", "/d", "/q", "/c", "echo up& pause")
        assert waiting.stdout is not None
        if waiting.stdout.readline().strip() == b"up":
            atexit.register(waiting.communicate)  # its input ends, and so does it
            return
        waiting.communicate()
    pytest.fail("Wine's server takes no program")


def start(binary: Path, *words: str) -> subprocess.Popen[bytes]:
    """The program under Wine, with pipes."""
    _keep_the_server()
    return _started(str(binary), *words)


def run(binary: Path, *words: str, stdin: bytes = b"", text: bool = True) -> bytes:
    """What the program says, as text without carriage returns; it must be content."""
    with start(binary, *words) as process:
        said, _ = process.communicate(stdin)
    assert process.returncode == 0, said
    if text:
        return said.replace(b"\r\n", b"\n")
    return said
