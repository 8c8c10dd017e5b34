#!/usr/bin/env bash
# MessagePack from JavaScript: a number's type in the message follows its value, and -0 loses its sign.
#
# Guess: a game's numbers are doubles there and stay floats on the way, so what arrives in Python is an array of
#   floats.
# Seen (@msgpack/msgpack 3.1.3, Node 20; msgpack 1.2.4 and numpy 2.4.6): 1.0 is written as the integer 1 and -0 as 0. A
#   row that holds whole numbers arrives as ints: np.array makes int64 of [0, 1], and float64 of [0, 0.5]. Halving it
#   in place raises UFuncTypeError in an episode's first steps only, and 1 / -0 changes its sign.
# Here: an engine side in JavaScript sends text, or the bytes of a Float32Array, whose type does not follow the values.
# Needs Node 20.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  msgpack==1.2.4 numpy==2.4.6
cd "$work"
npm install --silent --no-fund --no-audit @msgpack/msgpack@3.1.3
cat > write.mjs <<'JS'
import { encode } from "@msgpack/msgpack"

process.stdout.write(encode([[0.0, 1.0], [0.0, 0.5], [-0.0, 1.5]]))
JS
node write.mjs > rows
"$work/venv/bin/python" - <<'PY'
import msgpack
import numpy as np

with open("rows", "rb") as file:
    rows = msgpack.unpackb(file.read())
seen = [str(np.array(row).dtype) for row in rows]
sign = bool(np.signbit(rows[2][0]))
halved = "fine"
try:
    array = np.array(rows[0])
    array /= 2
except TypeError as error:
    halved = type(error).__name__
print(f"msgpack {'.'.join(map(str, msgpack.version))}: rows {rows} are {seen}, -0 kept: {sign}, halved: {halved}")
assert (seen, sign, halved) == (["int64", "float64", "float64"], False, "UFuncTypeError"), "this has changed"
PY
