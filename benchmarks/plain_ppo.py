"""PPO as one file of torch: a loop over a vector env, with nothing of a library around it; for bench_learner.py."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

GAMMA, LAMBDA, CLIP = 0.99, 0.95, 0.2


def network(sizes: list[int], gain: float) -> nn.Sequential:
    """Layers with tanh between them, orthogonal weights, and `gain` for the last one."""
    layers: list[nn.Module] = []
    for number, (inputs, outputs) in enumerate(pairwise(sizes)):
        is_last = number == len(sizes) - 2
        layer = nn.Linear(inputs, outputs)
        nn.init.orthogonal_(layer.weight, gain if is_last else 2**0.5)
        nn.init.zeros_(layer.bias)
        layers += [layer] if is_last else [layer, nn.Tanh()]
    return nn.Sequential(*layers)


class PlainPpo:
    """An agent for choices.

    Args:
        env: a vector env of Gymnasium with flat observations and Discrete actions. width: of two hidden layers.
    """

    def __init__(self, env: Any, steps: int, batch: int, epochs: int, width: int) -> None:
        self.env, self.steps, self.batch, self.epochs = env, steps, batch, epochs
        size = int(env.single_observation_space.shape[0])
        self.actor = network([size, width, width, int(env.single_action_space.n)], 0.01)
        self.critic = network([size, width, width, 1], 1.0)
        self.parameters = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=3e-4, eps=1e-5)
        self.obs = torch.as_tensor(env.reset(seed=0)[0])
        self.done = torch.zeros(env.num_envs)

    def learn(self, rollouts: int) -> None:
        """So many rollouts, each with its updates."""
        shape = self.steps, self.env.num_envs
        for _ in range(rollouts):
            obs = torch.zeros(*shape, self.obs.shape[1])
            actions, log_probs, rewards, dones, values = (torch.zeros(shape) for _ in range(5))
            for step in range(self.steps):
                obs[step], dones[step] = self.obs, self.done
                with torch.no_grad():
                    choice = Categorical(logits=self.actor(self.obs))
                    action = choice.sample()
                    log_probs[step] = choice.log_prob(action)
                    values[step] = self.critic(self.obs).flatten()
                actions[step] = action
                seen, reward, ended, cut, _ = self.env.step(action.numpy())
                rewards[step] = torch.as_tensor(reward)
                self.obs = torch.as_tensor(seen)
                self.done = torch.as_tensor(np.logical_or(ended, cut)).float()
            advantages = self._advantages(rewards, dones, values)
            returns = (advantages + values).flatten()
            self._update(obs.flatten(0, 1), actions.flatten(), log_probs.flatten(), advantages.flatten(), returns)

    def _advantages(self, rewards: Any, dones: Any, values: Any) -> Any:
        with torch.no_grad():
            following, goes_on, last = self.critic(self.obs).flatten(), 1 - self.done, 0.0
            advantages = torch.zeros_like(rewards)
            for step in reversed(range(self.steps)):
                error = rewards[step] + GAMMA * following * goes_on - values[step]
                advantages[step] = last = error + GAMMA * LAMBDA * goes_on * last
                following, goes_on = values[step], 1 - dones[step]
        return advantages

    def _update(self, obs: Any, actions: Any, log_probs: Any, advantages: Any, returns: Any) -> None:
        for _ in range(self.epochs):
            order = torch.randperm(len(obs))
            for start in range(0, len(obs), self.batch):
                rows = order[start : start + self.batch]
                choice = Categorical(logits=self.actor(obs[rows]))
                ratio = (choice.log_prob(actions[rows]) - log_probs[rows]).exp()
                gain = advantages[rows]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                policy_loss = -torch.min(gain * ratio, gain * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
                value_loss = (self.critic(obs[rows]).flatten() - returns[rows]).square().mean()
                loss = policy_loss + 0.5 * value_loss
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.parameters, 0.5)
                self.optimizer.step()


def vector_env(make: Any, num_envs: int) -> Any:
    """Gymnasium's, in this process."""
    return gym.vector.SyncVectorEnv([make] * num_envs)
