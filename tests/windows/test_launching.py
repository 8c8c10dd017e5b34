"""Launching on Windows, under Wine: locks of ports, and the words of a command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.windows import wine
from ue_rl.connections.launching.template import windows_words

pytestmark = wine.MARKS

FOLDER = Path(__file__).parent
# What the library calls where sys.platform is win32, as lines: a call and its numbers.
RECORDED = """
import os, socket, sys, types
def locking(descriptor, mode, count):
    print("locking", os.lseek(descriptor, 0, os.SEEK_CUR), count, mode, os.fstat(descriptor).st_size)
sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
socket.SO_EXCLUSIVEADDRUSE = socket.SO_REUSEADDR  # an option that Linux takes
from ue_rl.connections.launching import ports
sys.platform = "win32"
del os.getuid
taken = ports.take(int(sys.argv[1]))
print("written", (ports.folder() / f"{taken.number}.lock").read_text() == str(os.getpid()))
"""


def library_calls(folder: Path) -> tuple[str, str]:
    """Offset and count of what the library locks."""
    number = 20_000 + sum(map(ord, __file__)) % 9_000
    (folder / "ue_rl_ports").mkdir()
    (folder / "ue_rl_ports" / f"{number}.lock").write_text("12345")  # of an earlier run
    done = subprocess.run(
        [sys.executable, "-c", RECORDED, str(number)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    call, written = done.stdout.splitlines()
    name, offset, count, mode, size = call.split()
    assert (name, mode, size) == ("locking", "2", "5"), "it locks before it empties the file"
    assert written == "written True"
    return offset, count


def asked_at_once(binary: Path, *words: str) -> tuple[list[bytes], list[int]]:
    """What two processes say and return that ask at the same time, while both live."""
    with wine.start(binary, *words) as one, wine.start(binary, *words) as other:
        said = []
        for process in (one, other):
            assert process.stdout is not None
            said.append(process.stdout.readline().strip())
        for process in (one, other):
            process.communicate()
    return said, [one.returncode, other.returncode]


def contest(binary: Path, file: Path, offset: str, count: str) -> list[bytes]:
    """What the two say. A program that says nothing and returns 1 was never begun: lock.c returns 0, or 2 to 5.

    Of programs that start at the same moment, Wine 8 fails to begin one in some thousands.
    """
    for _ in range(5):
        said, codes = asked_at_once(binary, wine.path(file), offset, count)
        if (b"", 1) not in zip(said, codes, strict=True):
            assert codes == [0, 0]
            return sorted(said)
    pytest.fail("Wine began none of five pairs")


def test_two_processes_never_hold_the_lock_of_one_port(tmp_path: Path) -> None:
    offset, count = library_calls(tmp_path)
    binary = wine.program(FOLDER / "lock.c")
    for _ in range(10):
        assert contest(binary, tmp_path / "20000.lock", offset, count) == [b"held", b"refused"]
    assert (tmp_path / "20000.lock").stat().st_size < 12  # one pid


def test_without_a_seek_both_hold_it(tmp_path: Path) -> None:
    """Each locks the byte behind what it found: that is why the library seeks."""
    binary = wine.program(FOLDER / "lock.c")
    path = wine.path(tmp_path / "20000.lock")
    with wine.start(binary, path, "-1", "1") as one:
        assert one.stdout is not None
        assert one.stdout.readline().strip() == b"held"
        assert wine.run(binary, path, "-1", "1") == b"held\n"
        one.communicate()


@pytest.mark.parametrize(
    "words",
    [
        '-ExecCmds="t.MaxFPS 0"',
        r'--port 7777 -ExecCmds="t.MaxFPS 0" -log',
        r'-Save="C:\My Games\\" b',
        r"a\\\"b \"c",
        r'"he said ""hi"" there" C:\a\b',
        "'b c' it's",
        'a "" b',
    ],
)
def test_a_command_arrives_as_the_words_that_it_was_split_into(tmp_path: Path, words: str) -> None:
    folder = tmp_path / "My Games"
    folder.mkdir()
    shutil.copy(wine.program(FOLDER / "words.c"), folder)
    command = windows_words(f'"{wine.path(folder)}\\words.exe" {words}')
    line = subprocess.list2cmdline(command)  # as Popen makes one of them there
    arrived = wine.run(folder / "words.exe", stdin=line.encode() + b"\n").decode().split("\n")
    assert arrived == [*command[1:], ""]
    if words.startswith("-Exec"):
        assert arrived == ["-ExecCmds=t.MaxFPS 0", ""]
