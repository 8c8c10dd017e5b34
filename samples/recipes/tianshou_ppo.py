"""tianshou: its PPO over all envs of one engine; tianshou_envs.py, beside this file, makes them a tianshou vector env.

python samples/recipes/tianshou_ppo.py [TIMESTEPS]
"""

import functools
import sys
from typing import Any

import torch
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from tianshou_envs import EngineEnvs

from ue_rl import UnrealVectorEnv
from ue_rl.bridges import GymnasiumBridge, run_in_process
from ue_rl.connections import open_transport

N, T = 8, 64


def train(url: str, timesteps: int) -> list[float]:
    """The returns of all episodes, in the order in which they ended."""
    engine = UnrealVectorEnv(open_transport(url), autoreset_mode=AutoresetMode.DISABLED)
    envs = RecordEpisodeStatistics(engine, buffer_length=10_000)
    space = engine.single_action_space
    net = {"state_shape": engine.single_observation_space.shape, "hidden_sizes": [64]}
    actor = DiscreteActor(preprocess_net=Net(**net), action_shape=space.n, softmax_output=False)
    policy = DiscreteActorPolicy(actor=actor, action_space=space)
    critic = DiscreteCritic(preprocess_net=Net(**net))
    ppo = PPO(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=3e-3), gamma=0.98, gae_lambda=0.9)
    collector = Collector[Any](ppo, EngineEnvs(envs), VectorReplayBuffer(4096, N))
    ppo.run_training(
        OnPolicyTrainerParams(
            training_collector=collector,
            max_epochs=1,
            epoch_num_steps=timesteps,
            collection_step_num_env_steps=N * T,
            batch_size=128,
            update_step_num_repetitions=10,
            show_progress=False,
            verbose=False,
        )
    )
    envs.close()
    return list(envs.return_queue)


if __name__ == "__main__":
    torch.manual_seed(0)
    with run_in_process(functools.partial(GymnasiumBridge, "CartPole-v1", N)) as engine:
        returns = train(engine.url, int(sys.argv[1]) if len(sys.argv) > 1 else 40_960)
    print(f"mean return {sum(returns[:10]) / 10:.1f} -> {sum(returns[-10:]) / 10:.1f}")
