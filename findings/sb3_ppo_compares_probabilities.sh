#!/usr/bin/env bash
# Stable-Baselines3: a deterministic PPO compares probabilities, not scores, and takes the lower of two that are close.
#
# Guess: predict(deterministic=True) takes the action with the greatest score (logit), as argmax over the network's
#   outputs in another runtime does.
# Seen (stable-baselines3 2.9.2, torch 2.13.0): it takes the greatest probability in float32. Of 10 000 pairs of scores
#   between 0.001 and 8 that are one rounding apart, the lower one is taken in about six of ten: their probabilities
#   are the same number, and the first one wins.
# Here: the exported file compares probabilities too, and chooses as predict() does; a game that compares the scores
#   itself chooses otherwise where an untrained policy's scores are close.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  stable-baselines3==2.9.2 torch numpy==2.4.6 gymnasium
cd "$work"
"$work/venv/bin/python" -W ignore - <<'PY'
import gymnasium
import numpy as np
import stable_baselines3
import torch


class Scores(gymnasium.Env):
    """The observation is what the policy's two scores shall be."""

    observation_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, True, False, {}


options = dict(n_steps=8, batch_size=8, device="cpu", policy_kwargs={"net_arch": []})
model = stable_baselines3.PPO("MlpPolicy", Scores(), **options)
with torch.no_grad():
    model.policy.action_net.weight.copy_(torch.eye(2))
    model.policy.action_net.bias.zero_()
low = np.exp(np.random.default_rng(0).uniform(np.log(1e-3), np.log(8), 10_000)).astype(np.float32)
scores = np.stack([low, np.nextafter(low, np.float32(100))], axis=1)
lower = int((model.predict(scores, deterministic=True)[0] == 0).sum())
print(f"stable-baselines3 {stable_baselines3.__version__}: of 10 000 pairs the lower score was taken in {lower}")
assert np.argmax(scores, axis=1).all()
assert 5_000 < lower < 8_000, "this has changed"
PY
