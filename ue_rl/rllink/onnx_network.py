"""The policy of dialect J: an ONNX file that gives the logits of one observation, run for N of them at once.

Source: captured from Ray 2.48: one input [1, obs_size], one output [1, logits], both of a fixed size of one row. The
sizes are opened before the file is loaded; the arithmetic has no place where one row could see another.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.errors import ConfigurationError, UnsupportedNetwork

Array = NDArray[np.float32]


class OnnxNetwork:
    """See ue_rl.rllink.networks.Network.

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

            onnxruntime: Any = importlib.import_module("onnxruntime")  # it has no types
        except ImportError as error:
            raise ConfigurationError(
                "RLlink with Ray 2.41 to 2.48 sends ONNX files", field="dialect", got=str(error),
                cure="pip install onnx onnxruntime -c constraints.txt",
            ) from error  # fmt: skip
        try:
            model: Any = onnx.load_from_string(file)
            inputs, outputs = list(model.graph.input), list(model.graph.output)
            for value in (*inputs, *outputs):
                value.type.tensor_type.shape.dim[0].dim_param = "N"
            del model.graph.value_info[:]  # shapes of one row
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            self._session: Any = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            (self._input,), (self._output,) = self._session.get_inputs(), self._session.get_outputs()
            self.obs_size, self.num_logits = int(self._input.shape[1]), int(self._output.shape[1])
        except Exception as error:  # protobuf's and onnxruntime's own kinds
            raise UnsupportedNetwork(
                "the server's ONNX file is not a policy that can be run here", fault="server", field="onnx_file",
                expected="one input and one output, a row each", got=f"{type(error).__name__}: {error}",
            ) from error  # fmt: skip

    def __call__(self, obs: Array) -> Array:
        """float32 [N, num_logits] of float32 [N, obs_size]."""
        logits: Array = self._session.run([self._output.name], {self._input.name: obs})[0]
        return logits
