#!/usr/bin/env bash
# Gymnasium: vector envs seeded with neighbouring numbers play nearly the same episodes.
#
# Guess: 8 envs reset with seed 0 and 8 envs reset with seed 1 have nothing in common, so runs with the seeds 0 to 4
#   are five independent ones, and seed 1 may test what was trained with seed 0.
# Seen (gymnasium 1.4.0): env i gets seed + i, and each env goes on with its generator. Env i of seed 1 starts all its
#   episodes as env i + 1 of seed 0: 700 of 800 starts of CartPole are shared.
# Here: as Gymnasium in a script. `ue-rl train` seeds its envs by a hash of --seed, so that the runs of --seeds 5 share no
#   episode; evaluations play seeds from 1 000 000 above the run's.
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


def starts(seed):
    """How the first 100 episodes of each of 8 envs begin."""
    envs = gymnasium.make_vec("CartPole-v1", num_envs=8, vectorization_mode="sync")
    found = [envs.reset(seed=seed)[0]]
    while len(found) < 100:
        found.append(envs.reset()[0])
    return {start.tobytes() for start in np.concatenate(found)}


shared = len(starts(0) & starts(1))
far = len(starts(0) & starts(1000))
print(f"gymnasium {gymnasium.__version__}: of 800 starts, seeds 0 and 1 share {shared}, seeds 0 and 1000 share {far}")
assert (shared, far) == (700, 0), "this has changed"
PY
