#!/usr/bin/env bash
# Stable-Baselines3: loading a model that was made with a seed seeds random, numpy and torch of the whole process.
#
# Guess: PPO.load reads a file; what the process draws afterwards has nothing to do with it.
# Seen (stable-baselines3 2.9.2, torch 2.13.0): after each load of one file random.random(), numpy.random.rand() and
#   torch.rand() start again at the same numbers; after a load of a model without a seed they go on. An opponent that
#   is loaded in the middle of a run makes the learner repeat its random numbers, each time it is loaded.
# Here: an opponent that a run meets is loaded without a change of torch's random numbers.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  stable-baselines3==2.9.2 "gymnasium[classic-control]==1.4.0" numpy==2.4.6
cd "$work"
"$work/venv/bin/python" -W ignore - <<'PY'
import io
import random

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import PPO


def drawn_after_loads(seed):
    """What three generators give after each of two loads, when all were seeded from the system before."""
    model = PPO("MlpPolicy", gymnasium.make("CartPole-v1"), seed=seed, policy_kwargs={"net_arch": [8]})
    file = io.BytesIO()
    model.save(file)
    drawn = []
    for _ in range(2):
        random.seed()
        np.random.seed()
        torch.seed()
        file.seek(0)
        PPO.load(file)
        drawn.append((random.random(), np.random.rand(), torch.rand(1).item()))
    return [first == second for first, second in zip(*drawn)]


seen = {seed: drawn_after_loads(seed) for seed in (7, None)}
print(f"stable-baselines3 {stable_baselines3.__version__}: random, numpy, torch the same again, by seed: {seen}")
assert seen == {7: [True, True, True], None: [False, False, False]}, "this has changed"
PY
