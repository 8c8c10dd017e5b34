"""samples/recipes/tune.py: two trials at once, each with an engine of its own."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: .ci/run runs these in a venv of their own")

import psutil

RECIPE = Path(__file__).resolve().parents[3] / "samples" / "recipes" / "tune.py"


def engines_of(run: psutil.Process) -> dict[int, str]:
    """Process id -> port of the engines that run now, without their keepers."""
    found = {}
    for process in run.children(recursive=True):
        try:
            words = process.cmdline()
        except psutil.Error:  # ended meanwhile
            continue
        if "serve" in words and "--port" in words and not any("keeper" in word for word in words):
            found[process.pid] = words[words.index("--port") + 1]
    return found


@pytest.mark.exhaustive
@pytest.mark.timeout(170)
def test_two_trials_at_once_have_engines_and_ports_of_their_own(tmp_path: Path) -> None:
    with tempfile.TemporaryFile("w+") as output:
        recipe = subprocess.Popen(
            [sys.executable, str(RECIPE), "2", "2"],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        seen: dict[int, str] = {}
        at_once: list[dict[int, str]] = []
        try:
            while recipe.poll() is None:
                at_once.append(engines_of(psutil.Process(recipe.pid)))
                seen |= at_once[-1]
                try:
                    recipe.wait(0.2)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            if recipe.poll() is None:  # Ray's daemons are its children
                for process in [*psutil.Process(recipe.pid).children(recursive=True), recipe]:
                    process.kill()
            recipe.wait()
        output.seek(0)
        said = output.read()
    assert recipe.returncode == 0, said
    assert "2 trials at once x 1 env runners with an engine: 2 engines" in said
    best = re.search(r"2 trials, mean return from (\S+) to (\S+): lr=\S+", said)
    assert best is not None, said
    assert 9 < float(best[1]) <= float(best[2])
    most = max(at_once, key=len)
    assert len(most) == len(set(most.values())) == 2
    assert len(seen) == 2  # none was started again, and no third one
    left = []
    for pid in seen:
        with contextlib.suppress(psutil.NoSuchProcess):
            left.append(psutil.Process(pid))
    assert psutil.wait_procs(left, timeout=30)[1] == []
