"""The policy of dialect J: an ONNX file that gives the logits of one observation, run for N of them at once.

Source: captured from Ray 2.48: one input [1, obs_size], one output [1, logits], both of a fixed size of one row. The
sizes are opened before the file is loaded. A file comes from a stranger: what could loop, fill the memory or open other
files is refused before it is loaded.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.system.errors import ConfigurationError, UnsupportedNetwork
from ue_rl.system.onnx_runtime import import_onnxruntime

Array = NDArray[np.float32]
_MOST_NUMBERS = 1 << 20
_OPERATORS = frozenset(
    {
        "Add", "Cast", "Clip", "Concat", "Constant", "Div", "Elu", "Erf", "Exp", "Flatten", "Gelu", "Gemm", "Identity",
        "MatMul", "Max", "Min", "Mul", "Neg", "Relu", "Reshape", "Sigmoid", "Slice", "Softplus", "Split", "Squeeze",
        "Sub", "Tanh", "Unsqueeze",
    }
)  # fmt: skip


class OnnxNetwork:
    """See ue_rl.plugins.rllib.rllink.networks.Network.

    Args:
        file: the bytes of the ONNX file.

    Attributes:
        obs_size, num_logits: numbers of an observation, and of what comes out.

    Raises:
        ConfigurationError: onnx or onnxruntime is missing. UnsupportedNetwork: no file of one input and one output row.
    """

    def __init__(self, file: bytes) -> None:
        try:
            import onnx

            onnxruntime = import_onnxruntime()
        except ImportError as error:
            what = "RLlink with Ray 2.41 to 2.48 sends ONNX files"
            cure = "pip install onnx onnxruntime -c constraints.txt"
            raise ConfigurationError(what, field="dialect", got=str(error), cure=cure) from error
        try:
            model: Any = onnx.load_from_string(file)
            _judge(onnx, model)
            for value in (*model.graph.input, *model.graph.output):
                value.type.tensor_type.shape.dim[0].dim_param = "N"
            del model.graph.value_info[:]  # shapes of one row
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            options.log_severity_level = 4
            self._session: Any = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"], enable_fallback=False
            )
            (self._input,) = self._session.get_inputs()
            (self._output,) = self._session.get_outputs()
            self.obs_size = int(self._input.shape[1])
            self.num_logits = int(self._output.shape[1])
        except UnsupportedNetwork:
            raise
        except Exception as error:  # protobuf's and onnxruntime's own kinds
            raise _refused("one input and one output, a row each", f"{type(error).__name__}: {error}") from error

    def __call__(self, obs: Array) -> Array:
        """float32 [N, num_logits] of float32 [N, obs_size]; raises UnsupportedNetwork: something else comes out."""
        try:
            logits: Array = self._session.run([self._output.name], {self._input.name: obs})[0]
        except Exception as error:  # onnxruntime's own kinds
            raise _refused("it runs", f"{type(error).__name__}: {error}") from error
        if logits.shape != (len(obs), self.num_logits) or logits.dtype != np.float32:
            raise _refused(f"float32 {[len(obs), self.num_logits]}", f"{logits.dtype} {list(logits.shape)}")
        return logits


def _judge(onnx: Any, model: Any) -> None:
    """Refuses a file that does more than compute, row for row, with numbers that fit into memory."""
    graph = model.graph
    if model.functions or model.training_info or graph.sparse_initializer:
        raise _refused("one graph of numbers", "functions, training or sparse numbers")
    tensors = list(graph.initializer)
    for node in graph.node:
        if node.domain not in ("", "ai.onnx") or node.op_type not in _OPERATORS:
            raise _refused(", ".join(sorted(_OPERATORS)), f"{node.domain} {node.op_type}".strip())
        for attribute in node.attribute:
            if attribute.graphs or attribute.HasField("g") or attribute.HasField("sparse_tensor"):
                raise _refused("numbers", f"a graph within {node.op_type}")
            tensors += [attribute.t, *attribute.tensors]
    if any(tensor.data_location or tensor.external_data for tensor in tensors):
        raise _refused("numbers in the file itself", "the name of another file")
    shaped = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    sizes = {
        value.name: math.prod(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in (*shaped.input, *shaped.value_info, *shaped.output)
    }
    for node in graph.node:
        for name in node.output:
            if not 0 < sizes.get(name, 0) <= _MOST_NUMBERS:
                raise _refused(f"1 to {_MOST_NUMBERS} numbers for each observation", f"{sizes.get(name)} in {name}")


def _refused(expected: str, got: str) -> UnsupportedNetwork:
    return UnsupportedNetwork(
        "the server's ONNX file is not a policy that can be run here", field="onnx_file", expected=expected, got=got
    )
