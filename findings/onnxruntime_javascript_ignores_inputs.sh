#!/usr/bin/env bash
# onnxruntime for JavaScript: an input that it does not list is dropped without a word, optional ones among them.
#
# Guess: a graph input with an initializer is an optional input, as ONNX says: what is fed for it takes the default's
#   place. And a misspelt name is an error, as in Python.
# Seen (onnxruntime-node and onnxruntime-web 1.30.0; onnxruntime 1.32.0 of Python beside them): x + bias with x = 1 and
#   a default bias of 10 is 11 in all three. With bias = 100 fed, Python gives 101; Node and the web give 11 and list
#   `x` as the only input. An input `nonsense` raises InvalidArgument in Python, and is nothing to the others.
# Here: the action masks of an exported file must be fed; optional they are only where asked for, and docs/deploy.md
#   names the runtimes that know optional inputs.
# Needs Node 20.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cd "$work"
# their install scripts would fetch what a GPU needs
npm install --silent --no-fund --no-audit --ignore-scripts onnxruntime-node@1.30.0 onnxruntime-web@1.30.0
"$work/venv/bin/python" - 2>/dev/null <<'PY' | tee out
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

x, bias, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "bias", "y"))
default = helper.make_tensor("bias", TensorProto.FLOAT, [1], [10.0])
graph = helper.make_graph([helper.make_node("Add", ["x", "bias"], ["y"])], "add", [x, bias], [y], [default])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), "add.onnx")
session = onnxruntime.InferenceSession("add.onnx")
seen = []
for more in ({}, {"bias": 100}, {"nonsense": 100}):
    feeds = {name: np.full(1, value, np.float32) for name, value in ({"x": 1} | more).items()}
    try:
        seen.append(int(session.run(None, feeds)[0][0]))
    except Exception as error:
        seen.append(type(error).__name__)
print("python", *seen)
PY
cat > add.cjs <<'JS'
const fs = require("fs")

async function main() {
  for (const name of ["onnxruntime-node", "onnxruntime-web"]) {
    const ort = require(name)
    const session = await ort.InferenceSession.create(new Uint8Array(fs.readFileSync("add.onnx")))
    const number = (value) => new ort.Tensor("float32", Float32Array.of(value), [1])
    const seen = []
    for (const more of [{}, { bias: number(100) }, { nonsense: number(100) }]) {
      const result = await session.run({ x: number(1), ...more })
      seen.push(result.y.data[0])
    }
    console.log(name, ...seen, "of", ...session.inputNames)
  }
  process.exit(0)
}
main()
JS
node add.cjs 2>/dev/null | tee -a out
expected='python 11 101 InvalidArgument
onnxruntime-node 11 11 11 of x
onnxruntime-web 11 11 11 of x'
test "$(cat out)" = "$expected" || { echo "this has changed; expected: $expected"; exit 1; }
