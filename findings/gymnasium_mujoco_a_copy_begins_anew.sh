#!/usr/bin/env bash
# Gymnasium's MuJoCo envs: a deep copy in the midst of an episode stands at time 0.
#
# Guess: copy.deepcopy(env) is the env as it is now, or raises.
# Seen (gymnasium 1.4.0, mujoco 4.0.0, Linux x86-64): HalfCheetah is at 0.5 s, its copy at 0.0 s. The copy takes steps
#   without a word, since its wrappers still know of a reset. EzPickle makes a new env from the arguments of the old.
# Here: exact resume takes the recorded steps again and copies no env.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  gymnasium==1.4.0 mujoco==4.0.0 numpy==2.4.6 imageio==2.37.2 packaging==25.0
cd "$work"
MUJOCO_GL=disable "$work/venv/bin/python" -W ignore - <<'PY'
import copy

import gymnasium

env = gymnasium.make("HalfCheetah-v5")
env.reset(seed=0)
for _ in range(10):
    env.step(env.action_space.low)
other = copy.deepcopy(env)
seen = [round(each.unwrapped.data.time, 6) for each in (env, other)]
other.step(env.action_space.low)
print(f"gymnasium {gymnasium.__version__}: seconds of the env and of its copy: {seen}")
assert seen == [0.5, 0.0], "this has changed"
PY
