#!/usr/bin/env bash
# PettingZoo's Knights Archers Zombies: when the zombies come depends on how long the episode before was.
#
# Guess: env.reset(seed=0) and the same actions give the same episode, whatever the env played before.
# Seen (pettingzoo 1.27.0, Linux x86-64): behind an episode of 50 steps 5 of 5 episodes are others, behind one of 60
#   none is. A zombie comes each 20th step, and a reset does not put that counter back.
# Here: `ue-rl check --engine` says that such an engine remembers earlier episodes; docs/saving.md, that a resumed run is
#   not exact then.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check --only-binary :all: \
  "pettingzoo[butterfly]==1.27.0" gymnasium==1.4.0 numpy==2.4.6
cd "$work"
SDL_VIDEODRIVER=dummy "$work/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import pettingzoo
from pettingzoo.butterfly import knights_archers_zombies_v11


def episode(env, seed, steps):
    """The observations of all agents, under random actions."""
    observations, _ = env.reset(seed=seed)
    seen = [observations[agent].copy() for agent in env.agents]
    actions = np.random.default_rng(seed)
    for _ in range(steps):
        observations, *_ = env.step({agent: int(actions.integers(6)) for agent in env.agents})
        seen += [observations[agent].copy() for agent in env.agents]
    return seen


def others(before):
    """How many of 5 episodes of 100 steps are not what a new env plays, behind one of `before` steps."""
    count = 0
    for seed in range(5):
        new = episode(knights_archers_zombies_v11.parallel_env(), seed, 100)
        used = knights_archers_zombies_v11.parallel_env()
        episode(used, 50 + seed, before)
        again = episode(used, seed, 100)
        count += not all(np.array_equal(one, other) for one, other in zip(new, again))
    return count


seen = {before: others(before) for before in (50, 60)}
print(f"pettingzoo {pettingzoo.__version__}: episodes of 5 that differ behind so many steps: {seen}")
assert seen == {50: 5, 60: 0}, "this has changed"
PY
