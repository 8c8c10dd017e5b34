#!/usr/bin/env bash
# skrl: with time_limit_bootstrap=True a time limit counts on the next episode's first observation.
#
# Guess: this option exists so that a truncated episode is worth what its last observation is worth, and a vector env
#   in SAME_STEP gives that observation in infos["final_obs"].
# Seen (skrl 2.1.1, gymnasium 1.4.0): an env shows how far it is, 0 to 3, earns 1 a step and is truncated at 3; the
#   critic says ten times what it sees. The advantages must be 33, 22, 11 (3 steps and 30 to come, less what is said
#   now). They are 3, -8, -19 with the option; without it the next episode is joined: 6, -5, -16 and 3, -8, -19.
# Here: samples/recipes/skrl_ppo.py puts the last observation in its place; tests/samples/test_time_limits.py holds it.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --no-compile --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  skrl==2.1.1 gymnasium==1.4.0 numpy==2.4.6 tensorboard==2.21.0 torch==2.13.0
cd "$work"
export OMP_NUM_THREADS=1
"$work/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.trainers.torch import SequentialTrainer
from skrl.utils.model_instantiators.torch import categorical_model, deterministic_model


class HowFar(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 3, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.at += 1
        return np.array([self.at], np.float32), 1.0, False, self.at == 3, {}


def advantages(bootstrap):
    """Of the first env's two episodes, with gamma = lambda = 1."""
    env = wrap_env(SyncVectorEnv([HowFar] * 2, autoreset_mode=AutoresetMode.SAME_STEP), wrapper="gymnasium")
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": "cpu"}
    layers = [{"name": "net", "input": "OBSERVATIONS", "layers": [8], "activations": "tanh"}]
    policy = categorical_model(**spaces, network=layers, output="ACTIONS")
    value = deterministic_model(**spaces, network=layers, output="ONE")
    act = value.act
    # 0 times its own, so that there is something to learn from
    value.act = lambda inputs, role="": (10 * inputs["observations"] + 0 * act(inputs, role=role)[0], {})
    config = PPO_CFG(
        rollouts=6,
        learning_epochs=1,
        mini_batches=1,
        discount_factor=1.0,
        gae_lambda=1.0,
        time_limit_bootstrap=bootstrap,
    )
    config.experiment.write_interval = 0
    config.experiment.checkpoint_interval = 0
    found = []

    class Noted(PPO):
        def update(self, **given):
            super().update(**given)
            returns, values = (self.memory.get_tensor_by_name(name) for name in ("returns", "values"))
            found.extend((returns - values)[:, 0, 0].round().tolist())

    memory = RandomMemory(memory_size=6, num_envs=2, device="cpu")
    agent = Noted(models={"policy": policy, "value": value}, memory=memory, cfg=config, **spaces)
    how = {"timesteps": 6, "headless": True, "disable_progressbar": True}
    SequentialTrainer(env=env, agents=agent, cfg=how).train()
    return found


seen = advantages(False), advantages(True)
print(f"skrl {version('skrl')}: right are 33, 22, 11; without the option {seen[0]}, with it {seen[1]}")
assert seen == ([6, -5, -16, 3, -8, -19], [3, -8, -19, 3, -8, -19]), "this has changed"
PY
