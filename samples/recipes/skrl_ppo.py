"""skrl: its PPO over all envs of one engine.

python samples/recipes/skrl_ppo.py [TIMESTEPS]
"""

import functools
import sys
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.trainers.torch import SequentialTrainer
from skrl.utils import set_seed
from skrl.utils.model_instantiators.torch import categorical_model, deterministic_model

from ue_rl import UnrealVectorEnv
from ue_rl.bridges import GymnasiumBridge, run_in_process
from ue_rl.connections import open_transport

N, T = 8, 64
LAYERS = [{"name": "net", "input": "OBSERVATIONS", "layers": [64, 64], "activations": "tanh"}]
HOW = {"mini_batches": 4, "learning_epochs": 10, "discount_factor": 0.98, "gae_lambda": 0.9, "entropy_loss_scale": 0.01}


class BootstrappedPPO(PPO):
    """A time limit counts on what the episode showed last: skrl itself looks at the next one's first observation."""

    def record_transition(self, **step: Any) -> None:  # noqa: D102
        seen = step["next_observations"] = step["next_observations"].clone()  # the trainer acts on its own
        for env in np.flatnonzero(step["infos"].get("_final_obs", ())):
            seen[env] = torch.as_tensor(step["infos"]["final_obs"][env])
        super().record_transition(**step)


def train(url: str, timesteps: int) -> list[float]:
    """The returns of all episodes, in the order in which they ended."""
    # skrl acts on what a step returns: the episode that follows must begin in the same step
    engine = UnrealVectorEnv(open_transport(url), autoreset_mode=AutoresetMode.SAME_STEP)
    env = wrap_env(counted := RecordEpisodeStatistics(engine, buffer_length=10_000), wrapper="gymnasium")
    spaces: dict[str, Any] = {"observation_space": env.observation_space, "action_space": env.action_space}
    policy = categorical_model(**spaces, device="cpu", network=LAYERS, output="ACTIONS")
    models = {"policy": policy, "value": deterministic_model(**spaces, device="cpu", network=LAYERS, output="ONE")}
    config, memory = PPO_CFG(rollouts=T, time_limit_bootstrap=True, **HOW), RandomMemory(memory_size=T, num_envs=N)
    config.experiment.write_interval = config.experiment.checkpoint_interval = 0
    agent = BootstrappedPPO(models=models, memory=memory, cfg=config, device="cpu", **spaces)
    SequentialTrainer(env=env, agents=agent, cfg={"timesteps": timesteps // N, "headless": True}).train()
    counted.close()
    return list(counted.return_queue)


if __name__ == "__main__":
    set_seed(0)
    with run_in_process(functools.partial(GymnasiumBridge, "CartPole-v1", N)) as engine:
        returns = train(engine.url, int(sys.argv[1]) if len(sys.argv) > 1 else 40_960)
    print(f"mean return {sum(returns[:10]) / 10:.1f} -> {sum(returns[-10:]) / 10:.1f}")
