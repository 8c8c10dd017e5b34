"""PPO in one file, as CleanRL writes it: torch and gymnasium.make_vec, nothing else.

python samples/recipes/cleanrl_ppo.py [TIMESTEPS]
"""

import functools
import sys

import gymnasium as gym
import torch
from torch import distributions, nn

from ue_rl.bridges import GymnasiumBridge, run_in_process

N, T, GAMMA, LAMBDA, CLIP = 8, 64, 0.98, 0.9, 0.2


def train(url: str, timesteps: int) -> list[float]:
    """The returns of all episodes, in the order in which they ended."""
    envs = gym.wrappers.vector.RecordEpisodeStatistics(gym.make_vec("ue_rl.envs:ue_rl/Engine-v0", N, url=url))
    inputs, choices = envs.single_observation_space.shape[0], int(envs.single_action_space.n)
    actor = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, choices))
    critic = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 1), nn.Flatten(0))
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-3)
    obs, over, returns = torch.as_tensor(envs.reset(seed=0)[0]), torch.zeros(N), []
    for _ in range(timesteps // (N * T)):
        steps = []
        for _ in range(T):
            policy = distributions.Categorical(logits=actor(obs).detach())
            action = policy.sample()
            after, reward, terminated, truncated, info = envs.step(action.numpy())
            returns += info["episode"]["r"][info["_episode"]].tolist() if "episode" in info else []
            reward, dead, ended = (torch.as_tensor(x).float() for x in (reward, terminated, terminated | truncated))
            steps.append((obs, action, policy.log_prob(action), reward, dead, ended, over))
            obs, over = torch.as_tensor(after), ended  # NEXT_STEP: the step after an episode's end is a reset
        o, a, logp, r, dead, ended, skip = (torch.stack(part) for part in zip(*steps, strict=True))
        v = critic(torch.cat([o, obs[None]]).flatten(0, 1)).detach().reshape(T + 1, N)
        gae, last = torch.zeros(T, N), torch.zeros(N)
        for t in reversed(range(T)):
            delta = r[t] + GAMMA * v[t + 1] * (1 - dead[t]) - v[t]
            gae[t] = last = delta + GAMMA * LAMBDA * (1 - ended[t]) * last
        o, a, logp, gae, target = (x.flatten(0, 1)[skip.flatten() == 0] for x in (o, a, logp, gae, gae + v[:-1]))
        gae = (gae - gae.mean()) / (gae.std() + 1e-8)
        for i in (i for _ in range(10) for i in torch.randperm(len(o)).split(128)):
            policy = distributions.Categorical(logits=actor(o[i]))
            ratio = (policy.log_prob(a[i]) - logp[i]).exp()
            gain = torch.minimum(ratio * gae[i], ratio.clamp(1 - CLIP, 1 + CLIP) * gae[i])
            (0.5 * (critic(o[i]) - target[i]).square() - gain - 0.01 * policy.entropy()).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    envs.close()
    return returns


if __name__ == "__main__":
    torch.manual_seed(0)
    with run_in_process(functools.partial(GymnasiumBridge, "CartPole-v1", N)) as engine:
        returns = train(engine.url, int(sys.argv[1]) if len(sys.argv) > 1 else 40_000)
    print(f"mean return {sum(returns[:10]) / 10:.1f} -> {sum(returns[-10:]) / 10:.1f}")
