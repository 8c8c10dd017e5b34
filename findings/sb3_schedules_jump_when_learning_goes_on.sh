#!/usr/bin/env bash
# Stable-Baselines3: a second learn() puts the learning rate back to half, neither to its end nor to its start.
#
# Guess: learn(500) and then learn(500, reset_num_timesteps=False) is one run in two halves: a linear schedule either
#   stays at its end or, since each learn has a total of its own, starts again at 1.
# Seen (stable-baselines3 2.9.2, torch 2.13.0): rates of PPO's updates with a schedule from 1 to 0 are 0.8, 0.6, 0.4,
#   0.2, 0, and then 0.4, 0.3, 0.2, 0.1, 0: the total becomes 1000, of which half is done. One learn(1000) has ten even
#   steps. The third learn starts from a third. So a run that is resumed in parts is not the run without a break.
# Here: ue-rl train --resume asks learn() for what is left of the whole run's total, so that a schedule goes on.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  stable-baselines3==2.9.2 "gymnasium[classic-control]==1.4.0" numpy==2.4.6
cd "$work"
"$work/venv/bin/python" -W ignore - <<'PY'
import gymnasium
import stable_baselines3
from stable_baselines3 import PPO


def rates(*parts):
    """The learning rate of each update."""
    model = PPO(
        "MlpPolicy",
        gymnasium.make("CartPole-v1"),
        learning_rate=lambda left: left,
        n_steps=100,
        batch_size=50,
        n_epochs=1,
        policy_kwargs={"net_arch": [8]},
    )
    found = []
    train = model.train

    def noted():
        train()
        found.append(round(model.policy.optimizer.param_groups[0]["lr"], 2))

    model.train = noted
    for part in parts:
        model.learn(part, reset_num_timesteps=model.num_timesteps == 0)
    return found


seen = rates(1000), rates(500, 500)
print(f"stable-baselines3 {stable_baselines3.__version__}: in one part {seen[0]}, in two {seen[1]}")
assert seen == (
    [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0],
    [0.8, 0.6, 0.4, 0.2, 0.0, 0.4, 0.3, 0.2, 0.1, 0.0],
), "this has changed"
PY
