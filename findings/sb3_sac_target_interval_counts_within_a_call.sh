#!/usr/bin/env bash
# Stable-Baselines3: SAC's target_update_interval counts gradient steps within one call of train(), not of the run.
#
# Guess: target_update_interval=1000 updates the target network at each 1000th gradient step.
# Seen (stable-baselines3 2.9.2, torch 2.13.0): with the default of one gradient step a call each of 200 gradient steps
#   updates the target: the first step of each call does. With 4 a call it is 50 of 200, with 8 a call 26 of 208. DQN's
#   setting of the same name counts the env's steps.
# Here: ue-rl train says where the setting has no effect.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  stable-baselines3==2.9.2 "gymnasium[classic-control]==1.4.0" numpy==2.4.6
cd "$work"
export OMP_NUM_THREADS=1
"$work/venv/bin/python" -W ignore - <<'PY'
import gymnasium
import stable_baselines3
from stable_baselines3 import SAC
from stable_baselines3.sac import sac


def updates(steps):
    """Gradient steps, and how many of them updated the target, with so many gradient steps a call."""
    count = 0
    polyak_update = sac.polyak_update

    def counted(parameters, target, tau):
        nonlocal count
        parameters = list(parameters)
        count += len(parameters) > 0  # there is a second call, for statistics of batches: none here
        polyak_update(parameters, target, tau)

    sac.polyak_update = counted
    model = SAC(
        "MlpPolicy",
        gymnasium.make("Pendulum-v1"),
        target_update_interval=1000,
        gradient_steps=steps,
        train_freq=steps,
        policy_kwargs={"net_arch": [8]},
        seed=0,
    )
    model.learn(300)
    sac.polyak_update = polyak_update
    return model._n_updates, count


seen = {steps: updates(steps) for steps in (1, 4, 8)}
print(f"stable-baselines3 {stable_baselines3.__version__}: steps a call, in all, updates of the target: {seen}")
assert seen == {1: (200, 200), 4: (200, 50), 8: (208, 26)}, "this has changed"
PY
