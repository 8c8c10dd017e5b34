"""ONNX files of dialect J: what a policy needs is run, what a stranger could do with a file is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the files are made by the extra train")

from onnx import TensorProto, helper, load_from_string

from tests.plugins.rllib.rllink.server import RLlinkServer, onnx_of
from ue_rl.plugins.rllib.rllink.onnx_network import OnnxNetwork
from ue_rl.protocol.spaces.actions import ActionSpec
from ue_rl.system.errors import UnsupportedNetwork

POLICY = RLlinkServer(4, ActionSpec.discrete(3), hidden=(5,)).network
FILE = onnx_of(POLICY)
OBS = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)


def changed(change: Callable[[Any], Any]) -> bytes:
    model = load_from_string(FILE)
    change(model)
    return bytes(model.SerializeToString())


def with_nodes(*nodes: Any) -> bytes:
    """Behind the policy's output, which keeps its name."""

    def change(model: Any) -> None:
        last = model.graph.output[0].name
        model.graph.output[0].type.tensor_type.ClearField("shape")
        model.graph.node[-1].output[0] = "before"
        for at, (kind, inputs, attributes) in enumerate(nodes):
            out = last if at == len(nodes) - 1 else f"n{at}"
            model.graph.node.append(helper.make_node(kind, inputs, [out], **attributes))

    return changed(change)


def outside(model: Any) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")


def test_a_policy_is_run_row_for_row() -> None:
    network = OnnxNetwork(FILE)
    assert (network.obs_size, network.num_logits) == (4, 3)
    np.testing.assert_allclose(network(OBS), POLICY(OBS), atol=1e-6)


DOUBLED = [("Concat", [f"n{n - 1}" if n else "before"] * 2, {"axis": 1}) for n in range(40)]
BODY = helper.make_graph([], "body", [], [])


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (b"", "UnsupportedNetwork|one input and one output"),
        (b"garbage", "one input and one output"),
        (with_nodes(("Softmax", ["before"], {"axis": 0})), "got Softmax"),
        (with_nodes(("Loop", ["", "", "before"], {"body": BODY})), "got Loop"),
        (with_nodes(("Tile", ["before", "w0"], {})), "got Tile"),
        (with_nodes(("Identity", ["before"], {"body": BODY})), "a graph within Identity"),
        (with_nodes(("Identity", ["before"], {"domain": "com.microsoft"})), "got com.microsoft Identity"),
        (with_nodes(*DOUBLED), "1 to 1048576 numbers for each observation; got 1572864 in n18"),
        (with_nodes(("Identity", ["nowhere"], {})), "one input and one output"),
        (changed(outside), "the name of another file"),
        (changed(lambda model: model.functions.add(name="f")), "functions"),
        (changed(lambda model: model.graph.input.add(name="more")), "one input and one output"),
    ],
)  # fmt: skip
def test_what_is_no_policy_is_refused_by_name(file: bytes, said: str) -> None:
    with pytest.raises(UnsupportedNetwork, match=said):
        OnnxNetwork(file)


def test_what_comes_out_is_looked_at() -> None:
    network = OnnxNetwork(FILE)
    with pytest.raises(UnsupportedNetwork, match="it runs"):
        network(OBS[:, :2])
