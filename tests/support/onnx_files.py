"""ONNX files of a few nodes, with and without a description, for what reads them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from ue_rl.inference.metadata import METADATA_KEY, PolicyMetadata, TensorInfo


def floats(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def graph(nodes, inputs, outputs, weights=(), metadata=None):
    """The bytes of a file; `metadata`: a description, or its text."""
    made = helper.make_graph(nodes, "policy", inputs, outputs, [numpy_helper.from_array(w, n) for n, w in weights])
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if metadata is not None:
        text = metadata if isinstance(metadata, str) else metadata.to_json()
        helper.set_model_props(model, {METADATA_KEY: text})
    return model.SerializeToString()


def of_one_node(kind, *shape):
    """obs -> actions, both of this shape, by one operator."""
    return graph([helper.make_node(kind, ["obs"], ["actions"])], [floats("obs", *shape)], [floats("actions", *shape)])


def scaled(factor, size=3, inputs=("obs",), metadata=None):
    """A policy that gives `factor` times the first input."""
    node = helper.make_node("Mul", [inputs[0], "factor"], ["actions"])
    ports = [floats(name, "b", size) for name in inputs]
    return graph([node], ports, [floats("actions", "b", size)], [("factor", np.float32([factor]))], metadata)


def box_of(size, low="-inf", high="inf", dtype="float32"):
    return {"type": "Box", "shape": [size], "dtype": dtype, "low": low, "high": high}


def parts(kind="Dict", **spaces):
    return {"type": kind, "spaces": spaces}


def gun(n, start=0):
    return {"type": "Discrete", "n": n, "start": start}


SEEN = parts(a=box_of(2), b=box_of(1))
DONE = parts(aim=box_of(2, -1, 1), gun=gun(4))
OBS_PORT = TensorInfo("obs", (3,), "observation")


def described(factor, observed=SEEN, acted=DONE, inputs=(OBS_PORT,), **more):
    """As `scaled`, with a description of three numbers each way."""
    done = (TensorInfo("actions", (3,), "actions"),)
    metadata = PolicyMetadata("PPO", "Policy", observed, acted, inputs, done, flat_input=True, **more)
    return scaled(factor, inputs=[port.name for port in inputs], metadata=metadata)
