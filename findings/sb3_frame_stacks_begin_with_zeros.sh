#!/usr/bin/env bash
# Two wrappers that stack frames show an episode's first observations differently: zeros here, copies there.
#
# Guess: VecFrameStack of Stable-Baselines3 and FrameStackObservation of Gymnasium give a policy the same four frames.
# Seen (stable-baselines3 2.9.2, gymnasium 1.4.0): after a reset VecFrameStack shows three frames of zeros and the first
#   one last, FrameStackObservation the first one four times; from the third step on both show the same. So a policy
#   that learnt with one of them and plays with the other acts otherwise for an episode's first three decisions.
# Here: ue-rl train stacks with VecFrameStack, and docs/training.md says which frames an engine has to fill with zeros.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  stable-baselines3==2.9.2 gymnasium==1.4.0 numpy==2.4.6
cd "$work"
"$work/venv/bin/python" -W ignore - <<'PY'
import gymnasium
import numpy as np
import stable_baselines3
from gymnasium.wrappers import FrameStackObservation
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack


class Count(gymnasium.Env):
    """Shows 1, 2, 3 and so on."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.shown = 1
        return np.float32([1]), {}

    def step(self, action):
        self.shown += 1
        return np.float32([self.shown]), 0.0, False, False, {}


stacked = VecFrameStack(DummyVecEnv([Count]), 4)
sb3 = [stacked.reset()[0].tolist()]
one = FrameStackObservation(Count(), 4)
gym = [one.reset()[0].ravel().tolist()]
for _ in range(4):
    sb3.append(stacked.step([0])[0][0].tolist())
    gym.append(one.step(0)[0].ravel().tolist())
print(f"VecFrameStack of stable-baselines3 {stable_baselines3.__version__}: {sb3}")
print(f"FrameStackObservation of gymnasium {gymnasium.__version__}: {gym}")
assert sb3 == [[0, 0, 0, 1], [0, 0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]], "this has changed"
assert gym == [[1, 1, 1, 1], [1, 1, 1, 2], [1, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5]], "this has changed"
PY
