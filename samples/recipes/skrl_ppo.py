"""skrl: its PPO over all envs of one engine.

python samples/recipes/skrl_ppo.py [TIMESTEPS]
"""

import functools
import sys
from typing import Any

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
from ue_rl.connecting import open_transport

N, T = 8, 64
LAYERS = [{"name": "net", "input": "OBSERVATIONS", "layers": [64, 64], "activations": "tanh"}]


def train(url: str, timesteps: int) -> tuple[float, float]:
    """The mean return of the first 10 episodes and of the last 10."""
    # skrl keeps what a step returns as the next observation: the episode that follows must begin in the same step
    engine = UnrealVectorEnv(open_transport(url), autoreset_mode=AutoresetMode.SAME_STEP)
    counted = RecordEpisodeStatistics(engine, buffer_length=10_000)
    env = wrap_env(counted, wrapper="gymnasium")
    spaces: dict[str, Any] = {"observation_space": env.observation_space, "action_space": env.action_space}
    models = {
        "policy": categorical_model(**spaces, device="cpu", network=LAYERS, output="ACTIONS"),
        "value": deterministic_model(**spaces, device="cpu", network=LAYERS, output="ONE"),
    }
    config = PPO_CFG(
        rollouts=T, learning_epochs=10, mini_batches=4, discount_factor=0.98, gae_lambda=0.9, entropy_loss_scale=0.01
    )
    config.experiment.write_interval = config.experiment.checkpoint_interval = 0
    agent = PPO(models=models, memory=RandomMemory(memory_size=T, num_envs=N), cfg=config, device="cpu", **spaces)
    SequentialTrainer(env=env, agents=agent, cfg={"timesteps": timesteps // N, "headless": True}).train()
    returns = list(counted.return_queue)
    counted.close()
    return sum(returns[:10]) / 10, sum(returns[-10:]) / 10


if __name__ == "__main__":
    set_seed(0)
    with run_in_process(functools.partial(GymnasiumBridge, "CartPole-v1", N)) as engine:
        first, last = train(engine.url, int(sys.argv[1]) if len(sys.argv) > 1 else 40_960)
    print(f"mean return {first:.1f} -> {last:.1f}")
