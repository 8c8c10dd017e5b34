#!/usr/bin/env bash
# Stable-Baselines3: DQN draws once for all envs whether to explore.
#
# Guess: with an exploration rate of 0.05 and 8 envs, each env acts at random in one of 20 steps, and in one of three
#   steps some env does.
# Seen (stable-baselines3 2.9.2, torch 2.13.0): in 955 of 1000 steps no env does, in the other 45 all 8 do. The share
#   is right and the steps are not: the more envs, the longer all of them follow one greedy policy without a break.
# Here: ue-rl train runs this DQN as it is: more envs are more of the same policy, not more exploration.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  stable-baselines3==2.9.2 "gymnasium[classic-control]==1.4.0" numpy==2.4.6
cd "$work"
"$work/venv/bin/python" -W ignore - <<'PY'
import stable_baselines3
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env

env = make_vec_env("CartPole-v1", 8, seed=0)
model = DQN("MlpPolicy", env, policy_kwargs={"net_arch": [8]}, seed=0)
model.exploration_rate = 0.05
observations = env.reset()
together = 0
some = 0
drawn = []
sample = model.action_space.sample
model.action_space.sample = lambda: drawn.append(1) or sample()  # a random action: for how many envs in a step
for _ in range(1000):
    drawn.clear()
    model.predict(observations)
    together += len(drawn) == 8
    some += 0 < len(drawn) < 8
print(f"stable-baselines3 {stable_baselines3.__version__}: of 1000 steps, random in all 8 {together}, in some {some}")
assert 30 < together < 70 and some == 0, "this has changed"
PY
