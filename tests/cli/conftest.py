"""What the tests of the commands share."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of `ue-rl serve` with the words of the parameter (TMP is its folder), and the address it prints."""
    (tmp_path / "mine.py").write_text(
        "from ue_rl.testing.do_nothing import DoNothingBridge\nclass Mine(DoNothingBridge):\n    pass\n"
    )
    words = [word.replace("TMP", str(tmp_path)) for word in request.param]
    process = subprocess.Popen(
        [sys.executable, "-m", "ue_rl", "serve", *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := re.search(r"(tcp|shm)://[^\s,]+", line):
                yield process, found.group()
                break
        else:
            pytest.fail("the server said no address")
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
