"""NumPy's threads in `ue-rl train`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SAID = """
import os
import ue_rl.cli.train
import numpy
numpy.ones((600, 600)) @ numpy.ones((600, 600))
tasks = "/proc/self/task"
print(len(os.listdir(tasks)) if os.path.isdir(tasks) else 0, os.environ.get("OPENBLAS_NUM_THREADS"))
"""


def said(**more: str) -> list[str]:
    """In a process of its own: OpenBLAS starts its threads as it is loaded."""
    environ = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    ran = subprocess.run([sys.executable, "-c", SAID], capture_output=True, text=True, env=environ | more, check=True)
    return ran.stdout.split()[-2:]


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_products_have_one_thread() -> None:
    assert said() == ["1", "None"]


def test_who_has_set_a_number_of_threads_keeps_it() -> None:
    assert said(OPENBLAS_NUM_THREADS="2")[1] == "2"
