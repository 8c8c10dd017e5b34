#!/usr/bin/env bash
# Gymnasium: what NormalizeReward scales a reward to depends on the vector env's autoreset mode.
#
# Guess: the modes say when the next episode's first observation comes; the same episodes give the same scale.
# Seen (gymnasium 1.4.0): an env earns 1 a step and is over after 5. After 20 000 steps a reward of 1 becomes, by
#   NEXT_STEP, SAME_STEP and the wrapper of one env: 0.73, 0.87 and 0.73 where it terminates; 0.09, 0.73 and 0.20 where
#   it is truncated. After episodes of 2 that terminate SAME_STEP makes it 7071, one over the root of epsilon: all
#   discounted returns that it counts are equal. The step at which NEXT_STEP only resets counts as a reward of 0.
# Here: docs/recipes.md says so beside the recipes, and what to choose for short time limits.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  gymnasium==1.4.0 numpy==2.4.6
cd "$work"
"$work/venv/bin/python" - <<'PY'
import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import NormalizeReward as OfOneEnv
from gymnasium.wrappers.vector import NormalizeReward


class Short(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, limit, terminates):
        self.limit = limit
        self.terminates = terminates

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.at += 1
        over = self.at == self.limit
        return np.zeros(1, np.float32), 1.0, over and self.terminates, over and not self.terminates, {}


def scale(statistics):
    return round(float(1 / np.sqrt(statistics.return_rms.var + statistics.epsilon)), 2)


def of_many(mode, limit, terminates):
    envs = NormalizeReward(SyncVectorEnv([lambda: Short(limit, terminates)] * 4, autoreset_mode=mode))
    envs.reset()
    for _ in range(5000):
        envs.step(np.zeros(4, np.int64))
    return scale(envs)


def of_one(limit, terminates):
    env = OfOneEnv(Short(limit, terminates))
    env.reset()
    for _ in range(20_000):
        _, _, terminated, truncated, _ = env.step(0)
        if terminated or truncated:
            env.reset()
    return scale(env)


seen = {}
for limit in (2, 5):
    for terminates in (True, False):
        seen[limit, "terminated" if terminates else "truncated"] = (
            of_many(AutoresetMode.NEXT_STEP, limit, terminates),
            of_many(AutoresetMode.SAME_STEP, limit, terminates),
            of_one(limit, terminates),
        )
print(f"gymnasium {gymnasium.__version__}: 1 is scaled by NEXT_STEP, SAME_STEP, the wrapper of one env to", seen)
assert seen == {
    (2, "terminated"): (2.02, 7071.07, 2.02),
    (2, "truncated"): (0.08, 2.02, 0.2),
    (5, "terminated"): (0.73, 0.87, 0.73),
    (5, "truncated"): (0.09, 0.73, 0.2),
}, "this has changed"
PY
