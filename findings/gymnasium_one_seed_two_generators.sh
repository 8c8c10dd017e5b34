#!/usr/bin/env bash
# Gymnasium: an env and its action space that get the same seed draw the same numbers.
#
# Guess: env.reset(seed=7) and env.action_space.seed(7) make two generators that have nothing to do with each other.
# Seen (gymnasium 1.4.0, numpy 2.4.6): both are PCG64 of this very seed. Pendulum-v1's start angle is the first "random"
#   action, scaled, for each of 100 seeds; in an env that draws a number in each step the random actions equal it.
# Here: Stable-Baselines3 seeds both with one number, so the random warm-up of SAC, TD3 and DQN acts on what the env just
#   drew. Where ue_rl seeds both, the action space gets a stream of its own.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check "gymnasium[classic-control]==1.4.0" numpy==2.4.6
cd "$work"
"$work/venv/bin/python" - <<'PY'
import gymnasium
import numpy as np

env = gymnasium.make("Pendulum-v1")
same = 0
for seed in range(100):
    env.reset(seed=seed)
    env.action_space.seed(seed)
    angle = env.unwrapped.state[0]
    same += np.isclose(env.action_space.sample()[0] / 2, angle / np.pi, atol=1e-6)


class Windy(gymnasium.Env):
    """In each step a wind blows from -1 to 1."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action):
        self.wind = self.np_random.uniform(-1, 1, (1,))
        return self.wind, 0.0, False, False, {}


windy = Windy()
windy.reset(seed=7)
windy.action_space.seed(7)
equal = sum(bool(windy.action_space.sample() == windy.step(None)[0]) for _ in range(100))
print(f"gymnasium {gymnasium.__version__}: start angle told by the action {same} of 100, action equals wind {equal}")
assert (same, equal) == (100, 100), "this has changed"
PY
