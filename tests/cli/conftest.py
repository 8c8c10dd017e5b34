"""What the tests of the commands share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.warm_cli import WarmCli, WarmProcess


@pytest.fixture(scope="session")
def light_cli() -> Iterator[WarmCli]:
    """`ue-rl` as processes that have imported the command line, and nothing that any command needs."""
    if not hasattr(os, "fork"):
        pytest.skip("WarmCli forks")
    with WarmCli(modules=("ue_rl.cli",)) as light:
        yield light


@pytest.fixture
def served(request: pytest.FixtureRequest, tmp_path: Path, warm_cli: WarmCli) -> Iterator[tuple[WarmProcess, str]]:
    """A process of `ue-rl serve` with the words of the parameter (TMP is its folder), and the address it prints."""
    (tmp_path / "mine.py").write_text(
        "from ue_rl.cli.do_nothing import DoNothingBridge\nclass Mine(DoNothingBridge):\n"
        "    def close(self):\n        print('closed', self.num_envs, flush=True)\n"
    )
    words = [word.replace("TMP", str(tmp_path)) for word in request.param]
    process = warm_cli.start(["serve", *words], output=tmp_path / "served.txt", cwd=tmp_path)
    try:
        yield process, process.wait_for(r"(tcp|shm)://[^\s,]+(?=[\s,])")
    finally:
        process.signal(signal.SIGKILL)
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
