"""samples/unity/UeRlBridge.cs, compiled and run with Debian's mono.

tests/samples/unity holds what the tests compile beside it; Unity's few types are stand-ins there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.samples import building, programs

ROOT = Path(__file__).resolve().parents[2]
SAMPLE, OWN = ROOT / "samples" / "unity", Path(__file__).resolve().parent / "unity"
BRIDGE = SAMPLE / "UeRlBridge.cs", SAMPLE / "UeRlSharedMemory.cs", SAMPLE / "UeRlHeuristic.cs"
MONO, MCS = shutil.which("mono"), shutil.which("mcs")
NUM_ENVS = 4

MARKS = [
    pytest.mark.skipif(MONO is None or MCS is None, reason="mono (mono-mcs, mono-runtime) is not installed"),
    pytest.mark.usefixtures("no_segment_stays"),
]

CONSOLE = (*BRIDGE, *sorted((SAMPLE / "console").glob("*.cs")))
PROBE = (*BRIDGE, SAMPLE / "UeRlBehaviour.cs", SAMPLE / "console" / "ReachGame.cs", *sorted(OWN.glob("*.cs")))


def compiled(name: str, *sources: Path) -> Path:
    command = ["mcs", "-langversion:7", "-optimize+", "-warn:4", "-warnaserror+", "-out:OUT", *sources]
    return building.built(name, command, sources)


@contextlib.contextmanager
def started(words: Sequence[str | Path], **environment: str) -> Iterator[int]:
    """The port on which the engine listens, by its own word."""
    command = [str(MONO), *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline().replace(":", " ").split()[-1])
        assert process.poll() is None, "the engine has ended"
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


def segments() -> set[str]:
    """Of engines in C# that this process has started: others run meanwhile, in C# too."""
    found = {path.name for path in Path("/dev/shm").glob("ue_rl_*_*")}
    mine = {str(each.pid) for each in psutil.Process().children(recursive=True)}
    mine = {pid for pid in mine if Path(f"/proc/{pid}/exe").resolve().name.startswith("mono")}
    return {name for name in found if name.split("_")[2] in mine}


def played(*words: str | Path, text: str | None = None, **environment: str) -> list[str]:
    """The lines of a program; text: its standard input."""
    return programs.said(str(MONO), *words, text=text, env=environment)


def asked(probe: Path, lines: Sequence[tuple[str, str, str]]) -> list[str]:
    """What the codec says to each line: its kind, a handshake, and what is read or written."""
    text = "".join("\t".join(line) + "\n" for line in lines)
    answers = played(probe, "codec", text=text, PROBE_CULTURE="comma")
    assert len(answers) == len(lines)
    return answers
