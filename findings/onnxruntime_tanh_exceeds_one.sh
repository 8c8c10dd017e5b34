#!/usr/bin/env bash
# onnxruntime: Tanh gives more than 1, and Sigmoid gives more than 1 and exactly 0.
#
# Guess: a float32 Tanh lies in [-1, 1] and a Sigmoid in (0, 1), so an action scaled by tanh needs no clipping, and the
#   logarithm of a probability from a Sigmoid is finite until float32 itself underflows, near -88.
# Seen (onnxruntime 1.32.0, onnx 1.23.2, Linux x86-64): Tanh is up to 1.0000002 for inputs from 8.23 to 9; Sigmoid is
#   1.0000001 at most, is 0 for some inputs from -15.8 down and for all below -18, where 1.5e-8 is right. numpy's tanh
#   of the same numbers stays within 1.
# Here: an exported file clips to -1 and 1 behind its tanh.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cd "$work"
"$work/venv/bin/python" - <<'PY'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper


def session(name):
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, ["n"]) for end in "xy"]
    graph = helper.make_graph([helper.make_node(name, ["x"], ["y"])], name, ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def of(name, numbers):
    return made[name].run(None, {"x": numbers.astype(np.float32)})[0]


made = {name: session(name) for name in ("Tanh", "Sigmoid")}
numbers = np.linspace(-20, 20, 4_000_001, dtype=np.float32)
tanh = of("Tanh", numbers)
over = np.abs(numbers[np.abs(tanh) > 1])
sigmoid = of("Sigmoid", numbers)
zero = numbers[sigmoid == 0]
print(f"onnxruntime {onnxruntime.__version__}: Tanh up to {tanh.max():.9g} for inputs {over.min():.3f} to "
      f"{over.max():.3f}; Sigmoid up to {sigmoid.max():.9g}, 0 for some up to {zero.max():.2f}, "
      f"least beside 0: {sigmoid[sigmoid > 0].min():.2g}")
assert 1 < tanh.max() < 1.0000003 and 8.2 < over.min() < over.max() < 9.01, "this has changed"
assert 1 < sigmoid.max() < 1.0000003 and -16 < zero.max() < -15, "this has changed"
assert np.all(sigmoid[numbers < -18] == 0), "this has changed"
assert np.abs(np.tanh(numbers)).max() <= 1, "this has changed"
PY
