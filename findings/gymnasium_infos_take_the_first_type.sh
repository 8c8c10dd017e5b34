#!/usr/bin/env bash
# Gymnasium: a vector env gives an info the type that the first env has for it, and cuts the others' values to it.
#
# Guess: infos["score"] of two envs that say 0 and 0.5 is [0, 0.5].
# Seen (gymnasium 1.4.0, numpy 2.4.6): [0, 0], without a warning; [0.5, 0] the other way round. Of True and 3 it makes
#   [True, True]. So a score, a share or a distance loses its fraction as soon as the first env happens to be at a
#   whole number, and keeps it in the next step.
# Here: the infos of UnrealVectorEnv have a dtype that holds the values of all envs.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  gymnasium==1.4.0 numpy==2.4.6
cd "$work"
"$work/venv/bin/python" -W error - <<'PY'
import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv


class Scored(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, score):
        self.score = score

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {"score": self.score}


def score(*given):
    envs = SyncVectorEnv([lambda own=own: Scored(own) for own in given])
    return envs.reset()[1]["score"].tolist()


seen = [score(0, 0.5), score(0.5, 0), score(True, 3)]
print(f"gymnasium {gymnasium.__version__}: 0 and 0.5, 0.5 and 0, True and 3 are {seen}")
assert seen == [[0, 0], [0.5, 0.0], [True, True]], "this has changed"
PY
