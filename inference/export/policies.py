"""The second part of an exported graph: from the features to the action, one head per kind of policy.

Each head holds the policy's own modules (not copies) and does what predict() does after them, in the same
order and precision: argmax over probabilities and not over logits, tanh, unscaling, clipping. Whether that is
true of a given policy is not believed but measured (verify.py). A head has two steps: `net`, the policy's last layers,
gives what is compared (normal noise is added to it: `sampled`); `forward` turns that into the action. The `scores` are
what the choices follow from, uniform noise included. `noise_shape` is that of one sampled action.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from torch import nn

from ue_rl.system.errors import ExportError

ACTOR_CRITIC = ("PPO", "A2C", "TRPO", "MaskablePPO", "RecurrentPPO")
GAUSSIAN_ACTOR = ("SAC", "TQC")
PLAIN_ACTOR = ("TD3", "DDPG")
VALUE = ("DQN", "QRDQN")
ALGORITHMS = ACTOR_CRITIC + GAUSSIAN_ACTOR + PLAIN_ACTOR + VALUE


class Lstm(nn.Module):
    """One step of an nn.LSTM, from plain operations: exporters treat sequences in ways that fix the batch."""

    def __init__(self, lstm: nn.LSTM) -> None:
        super().__init__()
        if lstm.bidirectional or lstm.proj_size:
            raise ExportError("a bidirectional or projected LSTM cannot be exported")
        self.lstm = lstm

    def forward(self, x: th.Tensor, h: th.Tensor, c: th.Tensor) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
        """x [N, features], h and c [N, layers, hidden] -> output [N, hidden], new h, new c."""
        new_h = []
        new_c = []
        for layer, weights in enumerate(self.lstm.all_weights):
            gates = nn.functional.linear(x, weights[0], weights[2] if self.lstm.bias else None)
            gates = gates + nn.functional.linear(h[:, layer], weights[1], weights[3] if self.lstm.bias else None)
            i, f, g, o = gates.chunk(4, dim=1)
            cell = th.sigmoid(f) * c[:, layer] + th.sigmoid(i) * th.tanh(g)
            x = th.sigmoid(o) * th.tanh(cell)
            new_h.append(x)
            new_c.append(cell)
        return x, th.stack(new_h, dim=1), th.stack(new_c, dim=1)


class BoxHead(nn.Module):
    """Continuous actions: mean (or sample), squashed or not, in the units of the env.

    Args:
        mean: latent -> mean.
        space: the action space.
        tanh: whether the mean (or sample) goes through tanh.
        unscale: whether the result is in [-1, 1] and must be brought to the bounds.
        clip: whether it is clipped to them where it is not unscaled. What was unscaled always is: runtimes have a
            tanh of their own, which may exceed 1 by a rounding (onnxruntime's does for inputs from 8.2 to 9).
        noisy: the policy or actor that knows the deviation: a net from the latent or a constant, or gSDE's matrix
            [latent, act], by which it follows from the latent; None: there is none.
    """

    std: th.Tensor
    sde_std: th.Tensor
    low: th.Tensor
    high: th.Tensor

    def __init__(
        self,
        mean: nn.Module,
        space: spaces.Box,
        *,
        tanh: bool,
        unscale: bool,
        clip: bool = True,
        noisy: Any = None,
    ) -> None:
        super().__init__()
        self.net = mean
        self.tanh = tanh
        self.unscale = unscale
        self.clip = unscale or (clip and not tanh)
        self.log_std_net = None
        if noisy is not None and noisy.use_sde:
            self.register_buffer("sde_std", noisy.action_dist.get_std(noisy.log_std).detach().clone())
        elif noisy is not None and isinstance(noisy.log_std, nn.Module):
            self.log_std_net = noisy.log_std
        elif noisy is not None:
            self.register_buffer("std", noisy.log_std.detach().exp().clone())
        # NumPy computes with the dtype of the bounds, float32 or float64: so does the graph.
        self.register_buffer("low", th.as_tensor(space.low.ravel().copy()))
        self.register_buffer("high", th.as_tensor(space.high.ravel().copy()))
        self.noise_shape = (int(self.low.numel()),)

    def sampled(self, mean: th.Tensor, latent: th.Tensor, noise: th.Tensor) -> th.Tensor:
        """Mean [N, act], latent [N, features], noise [N, act] -> the sample [N, act]."""
        return mean + self._deviation(latent) * noise

    def forward(self, raw: th.Tensor, noise: th.Tensor | None, masks: th.Tensor | None) -> th.Tensor:
        """Mean or sample [N, act] -> actions float32 [N, act]."""
        # see `clip`
        if self.tanh:
            action = th.clamp(th.tanh(raw), -1.0, 1.0)
        else:
            action = raw
        action = action.to(self.low.dtype)
        if self.unscale:
            action = self.low + 0.5 * (action + 1.0) * (self.high - self.low)
        if self.clip:
            action = th.minimum(th.maximum(action, self.low), self.high)
        return action.float()

    def _deviation(self, latent: th.Tensor) -> th.Tensor:
        if hasattr(self, "sde_std"):
            return th.sqrt(th.mm(latent**2, self.sde_std**2))
        if self.log_std_net is not None:
            return th.exp(th.clamp(self.log_std_net(latent), -20, 2))
        return self.std


class HybridHead(BoxHead):
    """An action of several kinds, which the policy has as a HybridBox (ue_rl/envs/hybrid_box.py): the engine's row."""

    def __init__(self, mean: nn.Module, space: Any, **how: Any) -> None:
        super().__init__(mean, space, **how)
        self.parts = [(leaf, box, leaf.form.from_box(leaf, th)) for leaf, box, _ in space.stretches]
        counts = np.concatenate([leaf.form.counts(leaf) for leaf, _, _ in self.parts])
        self.counts = counts[counts > 0].tolist()

    def scores(self, raw: th.Tensor, noise: th.Tensor | None, masks: th.Tensor | None) -> list[th.Tensor]:
        """The numbers between which a choice is made, one [N, count] per choice; of a flag 0 and its number."""
        numbers = super().forward(raw, noise, masks)
        return [score for leaf, box, _ in self.parts for score in leaf.form.box_scores(leaf, numbers[:, box], th)]

    def forward(self, raw: th.Tensor, noise: th.Tensor | None, masks: th.Tensor | None) -> th.Tensor:
        """As BoxHead; float32 [N, numbers of the engine's row]."""
        numbers = super().forward(raw, noise, masks)
        return th.cat([as_sent(numbers[:, box]).float() for _, box, as_sent in self.parts], dim=1)


class CategoricalHead(nn.Module):
    """Discrete and MultiDiscrete actions: the most probable choice of each, or a sample (Gumbel-max trick).

    Args:
        logits: latent -> logits of all choices in a row.
        counts: number of choices per action number.
        maskable: whether sb3-contrib's maskable distribution is behind it, which normalises twice.
    """

    def __init__(self, logits: nn.Module, counts: Sequence[int], *, maskable: bool = False) -> None:
        super().__init__()
        self.net = logits
        self.counts = [int(n) for n in counts]
        self.maskable = maskable
        self.noise_shape = (sum(self.counts),)

    def scores(self, logits: th.Tensor, noise: th.Tensor | None, masks: th.Tensor | None) -> list[th.Tensor]:
        """Log probabilities, one [N, count] per action number; with noise those of the draw."""
        parts = list(th.split(logits, self.counts, dim=1))
        parts = [part - part.logsumexp(dim=1, keepdim=True) for part in parts]
        if masks is not None:
            allowed = th.split(masks, self.counts, dim=1)
            parts = [th.where(a > 0.5, p, th.full_like(p, -1e8)) for a, p in zip(allowed, parts, strict=True)]
        if self.maskable:
            parts = [part - part.logsumexp(dim=1, keepdim=True) for part in parts]
        if noise is not None:
            drawn = th.split(noise, self.counts, dim=1)
            parts = [part - th.log(-th.log(u)) for part, u in zip(parts, drawn, strict=True)]
        return parts

    def forward(self, logits: th.Tensor, noise: th.Tensor | None, masks: th.Tensor | None) -> th.Tensor:
        """Logits, noise [N, choices] in (0, 1), masks [N, choices] -> actions float32 [N, act]."""
        parts = self.scores(logits, noise, masks)
        if noise is None:
            parts = [th.softmax(part, dim=1) for part in parts]
        return th.stack([part.argmax(dim=1) for part in parts], dim=1).float()


class BernoulliHead(nn.Module):
    """MultiBinary actions: each switch on where its probability rounds to 1, or sampled."""

    def __init__(self, logits: nn.Module, size: int) -> None:
        super().__init__()
        self.net = logits
        self.size = size
        self.noise_shape = (size,)

    def scores(self, logits: th.Tensor, noise: th.Tensor | None, masks: th.Tensor | None) -> list[th.Tensor]:
        """Log odds of off (0) and on, one [N, 2] per switch; with noise the draw and the probability of on."""
        if noise is None:
            off = th.zeros_like(logits)
            on = logits
        else:
            off = noise
            on = th.sigmoid(logits)
        return [th.stack([off[:, i], on[:, i]], dim=1) for i in range(self.size)]

    def forward(self, logits: th.Tensor, noise: th.Tensor | None, masks: th.Tensor | None) -> th.Tensor:
        """Logits [N, size], noise [N, size] in (0, 1) -> actions float32 [N, size]."""
        probs = th.sigmoid(logits)
        if noise is not None:
            return (noise < probs).float()
        return th.round(probs)


class GreedyHead(nn.Module):
    """The greatest number of each choice: a value (DQN), the mean of its quantiles (QR-DQN), or a logit.

    Args:
        values: latent -> the numbers of all choices in a row.
        counts: how many there are for each choice; (): there is one choice.
        quantiles: how many numbers stand for each value; 0: it stands itself.
    """

    def __init__(self, values: nn.Module, counts: Sequence[int] = (), quantiles: int = 0) -> None:
        super().__init__()
        self.net = values
        self.counts = [int(n) for n in counts]
        self.quantiles = quantiles

    def scores(self, values: th.Tensor, noise: th.Tensor | None, masks: th.Tensor | None) -> list[th.Tensor]:
        """The numbers, one [N, count] for each choice."""
        if self.quantiles:
            values = values.reshape(values.shape[0], self.quantiles, -1).mean(dim=1)
        if self.counts:
            return list(th.split(values, self.counts, dim=1))
        return [values]

    def forward(self, values: th.Tensor, noise: th.Tensor | None, masks: th.Tensor | None) -> th.Tensor:
        """Numbers (or quantiles) [N, n] -> actions float32 [N, choices]."""
        return th.stack([part.argmax(dim=1) for part in self.scores(values, noise, masks)], dim=1).float()


def check_counts(counts: Sequence[int]) -> None:
    """Refuse choices whose numbers float32 cannot tell apart; raises ExportError: one of more than 2**24."""
    if max(counts, default=0) > 2**24:
        raise ExportError("more than 2**24 choices are not exact in float32", got=max(counts))


def make_head(algorithm: str, policy: Any, space: Any, stochastic: bool) -> tuple[nn.Module, nn.Module, nn.Module]:
    """(features extractor, features -> latent, head) of a policy of `algorithm`.

    Raises:
        ExportError: the algorithm or its distribution is not known here, or has no stochastic form.
    """
    if stochastic and algorithm in PLAIN_ACTOR + VALUE:
        raise ExportError(
            f"{algorithm} has no stochastic policy: its exploration is added outside of the net",
            cure="export without stochastic=True",
        )
    if algorithm in ACTOR_CRITIC:
        extractor = getattr(policy, "pi_features_extractor", policy.features_extractor)
        return extractor, policy.mlp_extractor.policy_net, _actor_critic_head(algorithm, policy, space)
    if algorithm in GAUSSIAN_ACTOR:
        actor = policy.actor
        head = _box_head(actor.mu, space, tanh=True, unscale=True, noisy=actor)
        return actor.features_extractor, actor.latent_pi, head
    if algorithm in PLAIN_ACTOR:
        actor = policy.actor
        return actor.features_extractor, nn.Identity(), _box_head(actor.mu, space, tanh=False, unscale=True)
    if algorithm == "DQN":
        return policy.q_net.features_extractor, nn.Identity(), GreedyHead(policy.q_net.q_net)
    if algorithm == "QRDQN":
        net = policy.quantile_net
        return net.features_extractor, nn.Identity(), GreedyHead(net.quantile_net, quantiles=net.n_quantiles)
    raise ExportError(f"{algorithm} is not supported", expected=ALGORITHMS)


def _box_head(mean: nn.Module, space: Any, **how: Any) -> nn.Module:
    """See BoxHead; of a HybridBox the numbers of the engine's row."""
    return (HybridHead if hasattr(space, "stretches") else BoxHead)(mean, space, **how)


def _actor_critic_head(algorithm: str, policy: Any, space: Any) -> nn.Module:
    if isinstance(space, spaces.Box):
        squash = bool(policy.squash_output)
        return _box_head(policy.action_net, space, tanh=squash, unscale=squash, noisy=policy)
    maskable = algorithm == "MaskablePPO"
    if isinstance(space, spaces.Discrete):
        return CategoricalHead(policy.action_net, [int(space.n)], maskable=maskable)
    if isinstance(space, spaces.MultiDiscrete):
        return CategoricalHead(policy.action_net, np.asarray(space.nvec).ravel().tolist(), maskable=maskable)
    if isinstance(space, spaces.MultiBinary):
        size = int(np.prod(space.shape))
        if maskable:  # there each switch is a choice between two
            return CategoricalHead(policy.action_net, [2] * size, maskable=True)
        return BernoulliHead(policy.action_net, size)
    raise ExportError(f"a {type(space).__name__} action space is not supported", got=space)
