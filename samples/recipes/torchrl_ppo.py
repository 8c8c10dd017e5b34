"""TorchRL: PPO from its own parts; it resets the envs itself (AutoresetMode.DISABLED, which it prefers).

python samples/recipes/torchrl_ppo.py [TIMESTEPS]
"""

import functools
import sys

import torch
from gymnasium.vector import AutoresetMode
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper, RewardSum, TransformedEnv
from torchrl.modules import OneHotCategorical, ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from ue_rl import UnrealVectorEnv
from ue_rl.bridges import GymnasiumBridge, run_in_process
from ue_rl.connections import open_transport

N, T = 8, 64


def network(inputs: int, outputs: int) -> nn.Module:  # noqa: D103
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


def train(url: str, timesteps: int) -> list[float]:
    """The returns of all episodes, in the order in which they ended."""
    engine = UnrealVectorEnv(open_transport(url), autoreset_mode=AutoresetMode.DISABLED)
    env = TransformedEnv(GymWrapper(engine), RewardSum())
    inputs, choices = engine.single_observation_space.shape[0], int(engine.single_action_space.n)
    logits = TensorDictModule(network(inputs, choices), ["observation"], ["logits"])
    actor = ProbabilisticActor(
        logits, spec=env.action_spec, in_keys=["logits"], distribution_class=OneHotCategorical, return_log_prob=True
    )
    critic = ValueOperator(network(inputs, 1), ["observation"])
    loss, gae = ClipPPOLoss(actor, critic, entropy_coeff=0.01), GAE(gamma=0.98, lmbda=0.9, value_network=critic)
    optimizer, returns = torch.optim.Adam(loss.parameters(), 1e-3), []
    collector = Collector(env, actor, frames_per_batch=N * T, total_frames=timesteps)
    for data in collector:
        returns += data["next", "episode_reward"][data["next", "done"]].tolist()
        for _ in range(10):
            flat = gae(data).reshape(-1)
            for batch in torch.randperm(len(flat)).split(128):
                parts = loss(flat[batch])
                optimizer.zero_grad()
                (parts["loss_objective"] + parts["loss_critic"] + parts["loss_entropy"]).backward()
                optimizer.step()
    collector.shutdown()
    return returns


if __name__ == "__main__":
    torch.manual_seed(0)
    with run_in_process(functools.partial(GymnasiumBridge, "CartPole-v1", N)) as engine:
        returns = train(engine.url, int(sys.argv[1]) if len(sys.argv) > 1 else 40_960)
    print(f"mean return {sum(returns[:10]) / 10:.1f} -> {sum(returns[-10:]) / 10:.1f}")
