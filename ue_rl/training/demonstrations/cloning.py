"""Behaviour cloning: the policy of an SB3 model learns to act as demonstrations do, before it learns by itself."""

from __future__ import annotations

import copy
import csv
import logging
import operator
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecNormalize
from torch.nn import functional

from ue_rl.protocol.spaces.walks import map_leaves
from ue_rl.system.errors import ConfigurationError
from ue_rl.training.demonstrations.dataset import DemoEpisode, Demonstrations
from ue_rl.training.demonstrations.trees import joined

_log = logging.getLogger(__name__)

# observations, actions, returns -> of the actions, by which cloning is judged; and of the critic
Loss = Callable[[Any, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor | float]]


class Cloned(NamedTuple):
    """How it went. Losses are means over a step.

    Attributes:
        epochs: that were learnt. best: the epoch whose weights were kept, from 1.
        first, last: loss on the held-out episodes before the first epoch and after the best one.
    """

    epochs: int
    best: int
    first: float
    last: float
    steps: int
    held_out: int


def clone(
    model: BaseAlgorithm,
    demonstrations: Demonstrations,
    table: Path | None = None,
    *,
    epochs: int = 1000,
    patience: int = 30,
    held_out: float = 0.1,
    batch_size: int = 256,
    learning_rate: float = 1e-3,
    seed: int | None = None,
    tell: Callable[[str], object] | None = None,
    told_every: float = 10.0,
) -> Cloned:
    """Clones until the loss on the held-out episodes has not fallen for `patience` epochs; keeps the best weights.

    On-policy algorithms raise the likelihood of the actions, and their critic learns the returns, unjudged.
    SAC's, TD3's and TQC's actors come close in the mean action; DQN's values are highest for the choice that was made.

    Args:
        demonstrations: of the model's spaces (Demonstrations.of).
        table: a CSV file of the losses of each epoch. held_out: this share of the episodes, at least one.
        tell: shows a sentence: at the beginning, and every `told_every` seconds how far it is. None: nothing is shown.

    Raises:
        ConfigurationError: fewer than two episodes, or a policy that cannot be cloned.
    """
    if len(demonstrations.episodes) < 2:
        what = "behaviour cloning needs two episodes or more: one is held out"
        raise ConfigurationError(what, field="bc", expected=2, got=len(demonstrations.episodes))
    statistics = model.get_vec_normalize_env()
    if statistics is not None and statistics.norm_obs:
        _take_in(statistics, demonstrations)
    loss, networks, copies = _loss_of(model)
    random = np.random.default_rng(seed)
    order = random.permutation(len(demonstrations.episodes))
    kept = max(1, round(held_out * len(order)))
    test, train = ([demonstrations.episodes[n] for n in part] for part in (order[:kept], order[kept:]))
    learnt, judged = (_arrays(model, demonstrations, part) for part in (train, test))
    optimizer = torch.optim.Adam([p for network in networks for p in network.parameters()], lr=learning_rate)
    best = _mean(loss, judged, batch_size)
    state = [copy.deepcopy(network.state_dict()) for network in networks]
    first = best
    at = 0
    rows = []
    model.policy.set_training_mode(True)
    if tell is not None:
        tell(f"cloning {len(learnt[1]):,} steps of {len(train)} episodes, until it gets no better on {kept} more")
    told = time.monotonic()
    for epoch in range(1, epochs + 1):
        total = 0.0
        for batch in _batches(learnt, batch_size, random):
            value, critic = loss(*batch)
            optimizer.zero_grad()
            (value + critic).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += float(value.detach()) * len(batch[1])
        now = _mean(loss, judged, batch_size)
        rows.append((epoch, total / len(learnt[1]), now))
        _log.info("cloning, epoch %d: loss %.5g, held out %.5g", *rows[-1])
        if tell is not None and time.monotonic() - told >= told_every:
            told = time.monotonic()
            tell(f"cloning, epoch {epoch}: loss {rows[-1][1]:.4g}, of held-out episodes {now:.4g}")
        if now < best:
            best = now
            at = epoch
            state = [copy.deepcopy(network.state_dict()) for network in networks]
        elif epoch - at >= patience:
            break
    for network, weights in zip(networks, state, strict=True):
        network.load_state_dict(weights)
    for target, source in copies:
        target.load_state_dict(source.state_dict())
    model.policy.set_training_mode(False)
    if table is not None:
        with table.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("epoch", "loss", "held_out_loss"), *rows])
    return Cloned(len(rows), at, first, best, len(learnt[1]), kept)


def _loss_of(model: Any) -> tuple[Loss, list[torch.nn.Module], list[tuple[torch.nn.Module, torch.nn.Module]]]:
    """(loss, the networks that it teaches, (target, source) of what is copied afterwards)."""
    policy = model.policy
    if isinstance(model, OnPolicyAlgorithm) and not hasattr(policy, "lstm_actor"):

        def likelihood(seen: Any, acted: torch.Tensor, returns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            values, log_prob, _ = policy.evaluate_actions(seen, acted)
            return -log_prob.mean(), 0.5 * functional.mse_loss(values.flatten(), returns)

        return likelihood, [policy], []
    if hasattr(policy, "actor"):

        def distance(seen: Any, acted: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, float]:
            if squashed:
                mean = policy.actor(seen, deterministic=True)
            else:
                mean = policy.actor(seen)
            return functional.mse_loss(mean, acted), 0.0

        squashed = hasattr(policy.actor, "log_std")
        target = getattr(policy, "actor_target", None)
        copies = []
        if target is not None:
            copies = [(target, policy.actor)]
        return distance, [policy.actor], copies
    network = getattr(policy, "q_net", None) or getattr(policy, "quantile_net", None)
    if network is None:
        what = f"{type(model).__name__} cannot clone"
        cure = "use ppo, a2c, trpo, maskable_ppo, sac, td3, ddpg, tqc, dqn or qrdqn"
        raise ConfigurationError(what, field="bc", cure=cure)

    def choice(seen: Any, acted: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, float]:
        values = network(seen)
        if values.ndim == 2:
            mean = values
        else:
            mean = values.mean(1)
        return functional.cross_entropy(mean, acted.long().flatten()), 0.0

    return (
        choice,
        [network],
        [(getattr(policy, f"{name}_target"), network) for name in ("q_net", "quantile_net") if hasattr(policy, name)],
    )


def _arrays(model: Any, demonstrations: Demonstrations, episodes: list[DemoEpisode]) -> tuple[Any, Any, Any]:
    """(observations, actions, returns) as the networks take them, of all steps."""
    seen, acted = demonstrations.pairs(episodes)
    statistics = model.get_vec_normalize_env()
    if statistics is not None:
        seen = statistics.normalize_obs(seen)
    if hasattr(model.policy, "actor"):
        acted = model.policy.scale_action(acted)
    scale = 1.0
    if statistics is not None:
        scale = float(np.sqrt(statistics.ret_rms.var + statistics.epsilon))
    returns = np.concatenate([_returns(episode.rewards / scale, model.gamma) for episode in episodes])
    seen, _ = model.policy.obs_to_tensor(seen)
    return seen, torch.as_tensor(acted, device=model.device), torch.as_tensor(returns, device=model.device)


def _returns(rewards: Any, gamma: float) -> Any:
    found = np.zeros(len(rewards) + 1, np.float32)
    for at in range(len(rewards) - 1, -1, -1):
        found[at] = rewards[at] + gamma * found[at + 1]
    return found[:-1]


def _take_in(statistics: VecNormalize, demonstrations: Demonstrations) -> None:
    """The statistics of observations begin with those of the demonstrations, which the networks are shown first."""
    seen: Any = joined([episode.observations for episode in demonstrations.episodes])
    rms: Any = statistics.obs_rms
    for name in rms if isinstance(rms, dict) else ():
        rms[name].update(seen[name])
    if not isinstance(rms, dict):
        rms.update(seen)


def _batches(arrays: tuple[Any, Any, Any], size: int, random: np.random.Generator | None) -> Iterator[Any]:
    count = len(arrays[1])
    if random is None:
        order_of_rows = np.arange(count)
    else:
        order_of_rows = random.permutation(count)
    order = torch.as_tensor(order_of_rows)
    for start in range(0, count, size):
        chosen = order[start : start + size].to(arrays[1].device)
        yield tuple(map_leaves(operator.itemgetter(chosen), part) for part in arrays)


def _mean(loss: Loss, arrays: tuple[Any, Any, Any], size: int) -> float:
    with torch.no_grad():
        found = [(float(loss(*batch)[0]), len(batch[1])) for batch in _batches(arrays, size, None)]
    return float(np.average([value for value, _ in found], weights=[count for _, count in found]))
