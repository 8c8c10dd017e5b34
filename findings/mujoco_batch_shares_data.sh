#!/usr/bin/env bash
# mujoco.batch: a field that a step does not compute holds another simulation's value.
#
# Guess: batch.bind("subtree_linvel")[i] is simulation i's, as the field of an MjData of its own would be.
# Seen (mujoco 4.0.0, CPython 3.11, Linux x86-64): with a sensor that is read each 50 ms, 32 of 60 rows are not those of
#   a loop over MjData; the simulations of a thread take turns in one MjData, and between two readings of the sensor the
#   field keeps what the one before left. With persistent=True: 0 of 60. Nothing is raised, nothing is NaN.
# Here: MujocoBridge gives each env an MjData of its own wherever anything derived is observed.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  mujoco==4.0.0 numpy==2.4.6
cd "$work"
"$work/venv/bin/python" - <<'PY'
import mujoco
import mujoco.batch
import numpy as np

MODEL = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body name="upper">
      <joint type="hinge" axis="0 1 0"/>
      <geom size=".1" pos=".3 0 0" mass="1"/>
    </body>
  </worldbody>
  <sensor><subtreelinvel body="upper" nsample="2" interval="0.05"/></sensor>
</mujoco>
"""
model = mujoco.MjModel.from_xml_string(MODEL)
wrong = {}
for persistent in (False, True):
    batch = mujoco.batch.Batch(model, 3, 1, persistent)
    field = batch.bind("subtree_linvel")
    loop = [mujoco.MjData(model) for _ in range(3)]
    for number, data in enumerate(loop):
        data.qvel[:] = number
        batch.bind("qvel")[number] = number
    wrong[persistent] = 0
    for _ in range(20):
        batch.step(None)
        for number, data in enumerate(loop):
            mujoco.mj_step(model, data)
            wrong[persistent] += not np.array_equal(field[number], data.subtree_linvel)
print(f"mujoco {mujoco.__version__}: rows of 60 that are another simulation's: {wrong}")
assert wrong == {False: 32, True: 0}, "this has changed"
PY
