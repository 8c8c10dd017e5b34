#!/usr/bin/env bash
# ONNX Runtime's ArgMax passes over a NaN, or does not, by where it stands; NumPy and torch name its place.
#
# Guess: argmax of logits with a NaN among them is the NaN's place, as numpy.argmax and torch.argmax say, or an error.
# Seen (onnxruntime 1.32.0, numpy 2.4.6): of [1, NaN, 3] ArgMax gives 2, of [NaN, 1, 3] 0, of [3, 1, NaN] 0, of three
#   NaN 0; NumPy gives 1, 0, 2, 0. A policy whose network has become NaN plays its first action for ever, with nothing
#   to be seen in what the file gives: an action is a whole number either way.
# Here: export refuses weights that are not finite, and OnnxInference such observations; both say what is to be done.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cd "$work"
"$work/venv/bin/python" - <<'PY'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper

graph = helper.make_graph(
    [helper.make_node("ArgMax", ["logits"], ["action"], axis=1, keepdims=0)],
    "policy",
    [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [None, 3])],
    [helper.make_tensor_value_info("action", TensorProto.INT64, [None])],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
session = onnxruntime.InferenceSession(model.SerializeToString())
nan = np.nan
logits = np.array([[1, nan, 3], [nan, 1, 3], [3, 1, nan], [nan, nan, nan]], np.float32)
seen = session.run(None, {"logits": logits})[0].tolist()
expected = logits.argmax(axis=1).tolist()
print(f"onnxruntime {onnxruntime.__version__}: {seen}; numpy {np.__version__}: {expected}")
assert (seen, expected) == ([2, 0, 0, 0], [1, 0, 2, 0]), "this has changed"
PY
