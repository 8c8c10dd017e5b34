"""What the library does where sys.platform is win32, as far as Linux can stand in for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ue_rl.connections.launching.template import windows_words

# msvcrt.locking, whose range begins at the file's position, by POSIX locks.
MSVCRT = """
import fcntl, os, socket, sys, types
def locking(descriptor, mode, count):
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, count, 0, os.SEEK_CUR)
sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
socket.SO_EXCLUSIVEADDRUSE = socket.SO_REUSEADDR  # an option that Linux takes
from ue_rl.connections.launching import ports
sys.platform = "win32"
del os.getuid
taken = ports.take(int(sys.argv[1]))
print(taken.number, flush=True)
sys.stdin.read()
"""


def test_two_processes_never_hold_the_lock_of_one_port(tmp_path: Path) -> None:
    number = 20_000 + sum(map(ord, __file__)) % 9_000
    words = [sys.executable, "-c", MSVCRT, str(number)]
    fresh = {**os.environ, "TMPDIR": str(tmp_path)}  # no lock file of an earlier run, which has other positions
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=fresh) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == f"{number}\n"
        second = subprocess.run(words, input="", capture_output=True, text=True, check=False, env=fresh)
        first.communicate("")
    assert f"port {number} belongs to an engine that another run has started" in second.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (r"C:\Games\a.exe --port {port}", [r"C:\Games\a.exe", "--port", "{port}"]),
        (r'"C:\My Games\a.exe" -ExecCmds="t.MaxFPS 0" -log', [r"C:\My Games\a.exe", "-ExecCmds=t.MaxFPS 0", "-log"]),
        (r'a "C:\folder\\" b', ["a", "C:\\folder\\", "b"]),
        (r"a \"b c", ["a", '"b', "c"]),
        (r"a\\\"b", [r"a\"b"]),
        (r'"he said ""hi"" there"', ['he said "hi" there']),
        ('a ""', ["a", ""]),
        ("a 'b c' it's", ["a", "b c", "it's"]),
        ("a\tb\n", ["a", "b"]),
        ("", []),
    ],
)
def test_a_command_is_split_as_programs_on_windows_split_it(command: str, words: list[str]) -> None:
    assert windows_words(command) == words


@pytest.mark.parametrize("command", ['a "b', "a 'b"])
def test_a_quote_is_closed(command: str) -> None:
    with pytest.raises(ValueError, match="quotation"):
        windows_words(command)
