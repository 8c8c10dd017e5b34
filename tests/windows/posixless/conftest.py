"""Tests in a process whose library sees no POSIX: tests/windows/without_posix.py; elsewhere there is nothing here."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

if "without_posix" not in sys.modules:
    collect_ignore_glob = ["test_*.py"]

UE_RL = [sys.executable, "-m", "ue_rl"]


class Running:
    """A command that was started.

    Attributes:
        popen: its process.
    """

    def __init__(self, words: list[str], folder: Path, output: Path) -> None:
        self._output = output
        with output.open("wb") as file:
            self.popen = subprocess.Popen(
                words, cwd=folder, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
            )

    @property
    def text(self) -> str:
        """What it has printed so far."""
        return self._output.read_text("utf-8", "replace")

    def wait_for(self, pattern: str, timeout: float = 300.0) -> re.Match[str]:
        """Waits until its output has this."""
        deadline = time.monotonic() + timeout
        while True:
            over = self.popen.poll() is not None or time.monotonic() > deadline
            found = re.search(pattern, self.text)
            if found is not None:
                return found
            assert not over, f"no {pattern!r} in:\n{self.text}"
            time.sleep(0.02)

    def wait(self, timeout: float = 300.0) -> int:
        """Its exit code."""
        return self.popen.wait(timeout)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts `ue-rl` with these words, in a folder whose name has a blank."""
    running: list[Running] = []
    folder = tmp_path / "my games"
    folder.mkdir()

    def begin(*words: Any) -> Running:
        output = tmp_path / f"output-{len(running)}.txt"
        running.append(Running([*UE_RL, *map(str, words)], folder, output))
        return running[-1]

    yield begin
    for each in running:
        if each.popen.poll() is None:
            for child in psutil.Process(each.popen.pid).children(recursive=True):
                child.kill()
            each.popen.kill()
            each.popen.wait()


@pytest.fixture
def run(start: Callable[..., Running]) -> Callable[..., str]:
    """What `ue-rl` with these words prints; its exit code is to be 0, or `code`."""

    def done(*words: Any, code: int = 0) -> str:
        running = start(*words)
        assert running.wait() == code, running.text
        assert "Traceback" not in running.text
        return running.text

    return done


def until(condition: Callable[[], object], timeout: float = 60.0) -> None:
    """Waits for it."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
