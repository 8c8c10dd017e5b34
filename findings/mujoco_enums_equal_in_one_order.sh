#!/usr/bin/env bash
# MuJoCo 4: an enum equals a model's number in one order, and not in the other.
#
# Guess: a joint's type can be looked for: `model.jnt_type[0] in (mjtJoint.mjJNT_HINGE, mjtJoint.mjJNT_SLIDE)`.
# Seen (mujoco 4.0.0, numpy 2.4.6, Linux x86-64): `model.jnt_type[0] == mjJNT_SLIDE` is True, `mjJNT_SLIDE ==
#   model.jnt_type[0]` is False, without an error. `in` asks in the second order, and a dict finds nothing, whatever
#   their hashes. With `int(model.jnt_type[0])` all are True. In mujoco 3.3.7 all are True without it.
#   gymnasium-robotics 1.4.2 allows mujoco 4, and its Fetch and HandReach end there with an AssertionError that is empty.
# Here: `MujocoBridge` compares int(..); seeded_episodes.py has those envs with an older mujoco.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat > "$work/seen.py" <<'PY'
import sys

import mujoco

model = mujoco.MjModel.from_xml_string(
    "<mujoco><worldbody><body><joint type='slide'/><geom size='.1'/></body></worldbody></mujoco>"
)
kind = model.jnt_type[0]
slide = mujoco.mjtJoint.mjJNT_SLIDE
hinge = mujoco.mjtJoint.mjJNT_HINGE
seen = [bool(kind == slide), bool(slide == kind), kind in (hinge, slide), kind in {slide: 1}]
by_int = [int(kind) == slide, slide == int(kind), int(kind) in (hinge, slide), int(kind) in {slide: 1}]
print(f"mujoco {mujoco.__version__}: number == enum, enum == number, in a tuple, in a dict: {seen}; int(number): {by_int}")
assert seen == eval(sys.argv[1]) and all(by_int), "this has changed"
PY
for each in "4.0.0 [True,False,False,False]" "3.3.7 [True,True,True,True]"; do
  read -r version expected <<<"$each"
  python3 -m venv "$work/$version"
  "$work/$version/bin/pip" install -q --disable-pip-version-check --only-binary :all: "mujoco==$version" numpy==2.4.6
  "$work/$version/bin/python" "$work/seen.py" "$expected"
done
