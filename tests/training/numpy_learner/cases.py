"""Random policies, minibatches and hyperparameters, and what torch makes of their loss."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.policies import ActorCriticPolicy
from torch.nn import functional

from ue_rl.training.numpy_learner.batches import Minibatch
from ue_rl.training.numpy_learner.binding import Binding
from ue_rl.training.numpy_learner.parameters import Floats
from ue_rl.training.numpy_learner.updates import MinibatchLoss

SPACES: dict[str, tuple[spaces.Space[Any], bool]] = {  # and whether masks are drawn
    "Discrete": (spaces.Discrete(5), False),
    "Discrete, masks": (spaces.Discrete(5), True),
    "Box": (spaces.Box(-1, 1, (3,), np.float32), False),
    "Box, table": (spaces.Box(-1, 1, (2, 2), np.float32), False),
    "MultiDiscrete": (spaces.MultiDiscrete([3, 2, 4]), False),
    "MultiDiscrete, alike": (spaces.MultiDiscrete([3, 3]), False),
    "MultiDiscrete, masks": (spaces.MultiDiscrete([3, 2, 4]), True),
    "MultiBinary": (spaces.MultiBinary(4), False),
    "MultiBinary, masks": (spaces.MultiBinary(4), True),
}
ACTIVATIONS = (torch.nn.Tanh, torch.nn.ReLU, torch.nn.LeakyReLU, torch.nn.ELU)
ARCHITECTURES: tuple[Any, ...] = ([7], [8, 6], {"pi": [5], "vf": [9, 4]}, {"pi": [], "vf": [6]}, [])


class Case(NamedTuple):
    """One of them.

    Attributes:
        batch: in float64, of numbers that float32 can hold. hyper: arguments of MinibatchLoss.
    """

    policy: Any
    batch: Minibatch
    hyper: dict[str, Any]


def case(number: int, kind: str | None = None) -> Case:
    """The same for the same number; `kind`: of SPACES, else one of them after the other."""
    rng = np.random.default_rng(number)
    torch.manual_seed(number)
    space, masked = SPACES[kind or list(SPACES)[number % len(SPACES)]]
    n = int(rng.integers(2, 24))
    inputs = int(rng.integers(1, 7))
    policy_kind = MaskableActorCriticPolicy if masked else ActorCriticPolicy
    policy: Any = policy_kind(
        spaces.Box(-1, 1, (inputs,), np.float32),
        space,
        lambda _: 1e-3,
        net_arch=ARCHITECTURES[rng.integers(len(ARCHITECTURES))],
        activation_fn=ACTIVATIONS[rng.integers(len(ACTIVATIONS))],
    )
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    masks = None
    if masked:
        choices = policy.action_net.out_features
        masks = rng.random((n, choices)) < 0.6
        # Where nothing is allowed, torch subtracts logits of -1e8, and has no digits left.
        masks[:, first_choices(space)] = True
    space.seed(number)
    if masks is None:
        actions = np.array([space.sample() for _ in range(n)]).reshape(n, -1)
    else:
        actions = allowed_actions(policy, masks)
    batch = Minibatch(
        features=rounded(rng.normal(size=(n, inputs))),
        actions=actions,
        old_values=rounded(rng.normal(size=n)),
        old_log_probs=np.zeros(n),
        advantages=rounded(rng.normal(size=n)),
        returns=rounded(rng.normal(size=n)),
        masks=masks,
    )
    hyper = {
        "normalize": bool(rng.random() < 0.7),
        "clip_range": None if rng.random() < 0.25 else float(rng.uniform(0.05, 0.4)),
        "clip_range_vf": float(rng.uniform(0.1, 1)) if rng.random() < 0.4 else None,
        "ent_coef": float(rng.choice([0.0, 0.01, 0.3])),
        "vf_coef": float(rng.uniform(0.1, 1)),
    }
    return Case(policy.double(), with_near_log_probs(policy, batch, rng), hyper)


def first_choices(space: Any) -> list[int]:
    """Which outputs belong to the first choice of each number of an action."""
    if isinstance(space, spaces.Discrete):
        return [0]
    counts = space.nvec.tolist() if isinstance(space, spaces.MultiDiscrete) else [2] * space.n
    return [sum(counts[:k]) for k in range(len(counts))]


def allowed_actions(policy: Any, masks: Any) -> Any:
    """[n, numbers]: as a policy with these masks draws them."""
    outputs = torch.randn(masks.shape)
    distribution = policy.action_dist.proba_distribution(outputs)
    distribution.apply_masking(torch.as_tensor(masks))
    return distribution.sample().numpy().reshape(len(masks), -1)


def rounded(values: Any) -> Floats:
    """To what float32 can hold."""
    return np.asarray(values).astype(np.float32).astype(np.float64)


def with_near_log_probs(policy: Any, batch: Minibatch, rng: np.random.Generator) -> Minibatch:
    """With old log-probabilities so near to the present ones that some ratios are clipped and some are not."""
    _, log_probs, _ = evaluated(policy, batch)
    now = log_probs.detach().numpy()
    return batch._replace(old_log_probs=rounded(now + rng.normal(0, 0.25, len(now))))


def evaluated(policy: Any, batch: Minibatch) -> tuple[Any, Any, Any]:
    """(values, log-probabilities, entropies) by the policy's own networks and distribution."""
    latent_pi, latent_vf = policy.mlp_extractor(torch.as_tensor(batch.features))
    distribution = policy._get_action_dist_from_latent(latent_pi)
    if batch.masks is not None:
        distribution.apply_masking(torch.as_tensor(batch.masks))
    actions = torch.as_tensor(batch.actions)
    space = policy.action_space
    if isinstance(space, spaces.Discrete):
        actions = actions.flatten()
    elif isinstance(space, spaces.MultiBinary) and batch.masks is None:
        actions = actions.to(latent_pi.dtype)
    return policy.value_net(latent_vf).flatten(), distribution.log_prob(actions), distribution.entropy()


def torch_loss(given: Case) -> Any:
    """The loss by torch, from which autograd computes the gradient."""
    batch, hyper = given.batch, given.hyper
    values, log_probs, entropies = evaluated(given.policy, batch)
    advantages = torch.as_tensor(batch.advantages)
    if hyper["normalize"]:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    if hyper["clip_range"] is None:
        policy_loss = -(advantages * log_probs).mean()
    else:
        ratios = torch.exp(log_probs - torch.as_tensor(batch.old_log_probs))
        low, high = 1 - hyper["clip_range"], 1 + hyper["clip_range"]
        policy_loss = -torch.min(advantages * ratios, advantages * torch.clamp(ratios, low, high)).mean()
    if hyper["clip_range_vf"] is not None:
        old, reach = torch.as_tensor(batch.old_values), hyper["clip_range_vf"]
        values = old + torch.clamp(values - old, -reach, reach)
    value_loss = functional.mse_loss(torch.as_tensor(batch.returns), values)
    return policy_loss - hyper["ent_coef"] * entropies.mean() + hyper["vf_coef"] * value_loss


def gradient(binding: Binding, batch: Minibatch, hyper: dict[str, Any]) -> Floats:
    """NumPy's; a copy."""
    binding.flat.gradient[:] = np.nan  # what is not written shows
    MinibatchLoss(binding, batch, **hyper).backward()
    return binding.flat.gradient.copy()


def in_float32(batch: Minibatch) -> Minibatch:
    """Its numbers; actions and masks as they are."""
    return batch.each(lambda part: part.astype(np.float32) if part.dtype == np.float64 else part)
