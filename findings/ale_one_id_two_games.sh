#!/usr/bin/env bash
# Atari: gymnasium.make_vec("ALE/Qbert-v5") is another game than gymnasium.make("ALE/Qbert-v5").
#
# Guess: one id is one game; make_vec makes several of what make makes.
# Seen (ale-py 0.12.1, gymnasium 1.4.0): make shows 210 x 160 pixels in colour, rewards are the game's points (25, 300),
#   and an action is repeated with probability 0.25. make_vec takes ale-py's own vector env: four grey frames of 84 x 84,
#   rewards clipped to 1, nothing repeated by chance, up to 30 idle steps first. With vectorization_mode="sync" it is the
#   first game again. So returns of the two are no measure of each other, and a policy of one cannot play the other.
# Here: GymnasiumBridge, ue-rl serve and --env make each env by gymnasium.make; what else a game needs is a wrapper.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  ale-py==0.12.1 gymnasium==1.4.0 numpy==2.4.6
cd "$work"
"$work/venv/bin/python" - <<'PY'
import ale_py
import gymnasium
import numpy as np

gymnasium.register_envs(ale_py)
GAME = "ALE/Qbert-v5"


def seen(env, num_envs):
    """Shape of one observation, and which rewards there were."""
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    rewards = set()
    for _ in range(2000):
        action = int(rng.integers(6))
        _, reward, terminated, truncated, _ = env.step(np.full(num_envs, action) if num_envs else action)
        rewards |= set(np.ravel(reward).tolist())
        if not num_envs and (terminated or truncated):
            env.reset()
    space = env.single_observation_space if num_envs else env.observation_space
    return space.shape, sorted(rewards)


shape, points = seen(gymnasium.make(GAME), 0)
vector_shape, clipped = seen(gymnasium.make_vec(GAME, num_envs=2), 2)
sync_shape, sync_points = seen(gymnasium.make_vec(GAME, num_envs=2, vectorization_mode="sync"), 2)
print(f"ale-py {ale_py.__version__}, gymnasium {gymnasium.__version__}")
print(f"make: {shape} {points}; make_vec: {vector_shape} {clipped}; make_vec, sync: {sync_shape} {sync_points}")
assert shape == sync_shape == (210, 160, 3), "this has changed"
assert vector_shape == (4, 84, 84), "this has changed"
assert max(points) >= 25, "this has changed"
assert max(sync_points) >= 25, "this has changed"
assert clipped == [0, 1], "this has changed"
PY
