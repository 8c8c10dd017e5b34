"""What the tests of the commands share."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


def rest_of(process: subprocess.Popen[str]) -> str:
    """What it says until it ends; communicate() would miss what was read ahead, together with its address."""
    assert process.stdout is not None
    output = process.stdout.read()
    process.wait(timeout=60)
    return output


@pytest.fixture
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of `ue-rl serve` with the words of the parameter (TMP is its folder), and the address it prints."""
    (tmp_path / "mine.py").write_text(
        "from ue_rl.cli.do_nothing import DoNothingBridge\nclass Mine(DoNothingBridge):\n    pass\n"
    )
    words = [word.replace("TMP", str(tmp_path)) for word in request.param]
    process = subprocess.Popen(
        [sys.executable, "-m", "ue_rl", "serve", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
    )
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


@pytest.fixture
def tiny_model(tmp_path: Path) -> Path:
    """An ONNX policy of 4 -> 2 numbers."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto
    graph = helper.make_graph(
        [helper.make_node("Slice", ["obs", "from", "to", "axis"], ["actions"])],
        "tiny",
        [helper.make_tensor_value_info("obs", kind.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("actions", kind.FLOAT, ["N", 2])],
        [helper.make_tensor(name, kind.INT64, [1], [n]) for name, n in (("from", 0), ("to", 2), ("axis", 1))],
    )
    path = tmp_path / "tiny.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return path
