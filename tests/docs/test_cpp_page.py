"""The engine of docs/cpp.md: it compiles without a warning, and a trainer steps it."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ue_rl

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed"),
    pytest.mark.skipif(sys.platform == "win32", reason="the header's Windows side was never run"),
]


def test_the_page_s_engine(tmp_path: Path) -> None:
    (source,) = re.findall(r"```cpp engine\n(.*?)```", (ROOT / "docs" / "cpp.md").read_text("utf-8"), re.S)
    assert source.count("\n") <= 55
    (tmp_path / "carts.cpp").write_text(source, "utf-8")
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread", "-I", str(ROOT / "samples" / "cpp")]
    command = ["g++", *flags, "-o", "carts", "carts.cpp", "-lrt"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen([str(tmp_path / "carts"), str(port)]) as process:
        try:
            env = ue_rl.connect(f"tcp://127.0.0.1:{port}", timeout=10, wait=10)
            env.seed(20)
            assert env.reset()[:, 0].tolist() == pytest.approx([0.2, 0.21, 0.22, 0.23])
            dones = [env.step(np.zeros((4, 1), np.float32))[2].all() for _ in range(100)]
            assert dones == [False] * 99 + [True]
            env.close()
        finally:
            process.terminate()
