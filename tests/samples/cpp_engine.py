"""Programs of samples/cpp and of tests/samples/cpp: compiled, and running as engines."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.samples import building, programs

ROOT = Path(__file__).resolve().parents[2]
SAMPLE, SOURCES = ROOT / "samples" / "cpp", Path(__file__).parent / "cpp"
DEPLOY, STAND_INS = ROOT / "samples" / "deploy" / "cpp", Path(__file__).parent / "deploy"
STRICT = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-ffp-contract=off", "-pthread"]
SANITIZED = ["-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]

MARKS = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
    pytest.mark.skipif(sys.platform == "win32", reason="the header's Windows side was never run"),
]
needs_shm = pytest.mark.skipif(sys.platform != "linux", reason="shared memory of the header was run on Linux only")


@functools.cache
def sanitizer() -> str:
    return CLANG if building.sanitizes(CLANG) else "g++"


def compile_(compiler: str, source: Path, binary: Path, *flags: str) -> None:
    building.compiled([compiler, *STRICT, *flags, "-I", SAMPLE, "-o", binary, source])


def program(compiler: str, source: Path, *flags: str) -> Path:
    headers = [*SAMPLE.glob("*.hpp"), *SOURCES.glob("*.hpp"), *DEPLOY.glob("*.hpp"), *STAND_INS.glob("*.h")]
    command = [compiler, *STRICT, *flags, "-I", SAMPLE, "-o", "OUT", source, "-lrt"]
    return building.built(source.stem, command, [source, *headers])


CLANG = shutil.which("clang++") or "g++"  # half as long as g++ for the same
PROGRAMS: dict[str, tuple[str, Path, Sequence[str]]] = {  # "": the compiler that has the sanitizers
    "lab-asan": ("", SOURCES / "lab.cpp", SANITIZED),
    "vectors": (CLANG, SOURCES / "vectors.cpp", []),
    "vectors-asan": ("", SOURCES / "vectors.cpp", SANITIZED),
    "reach": ("g++", SAMPLE / "reach.cpp", ["-O1"]),
    "vectors-own": (CLANG, SOURCES / "vectors.cpp", ["-DUE_RL_OWN_FLOATS"]),  # as with libc++
}


def made(name: str) -> Path:
    """Of PROGRAMS; `*-asan`: under AddressSanitizer and UBSan."""
    compiler, source, flags = PROGRAMS[name]
    return program(compiler or sanitizer(), source, *flags)


ENVIRONMENT = {"ASAN_OPTIONS": "detect_leaks=0"}  # libc keeps its locale


def running(binary: Path, *arguments: str) -> Any:
    return programs.running(binary, *arguments, env=ENVIRONMENT)


def played(binary: Path, *words: str) -> list[str]:
    return programs.said(binary, *words, env=ENVIRONMENT)


def lab(built: dict[str, Path], kind: str, *words: str) -> Any:
    return running(built["lab-asan"], kind, *words)


def reach(built: dict[str, Path], *arguments: str) -> Any:
    return running(built["reach"], "--port", "0", *arguments)
