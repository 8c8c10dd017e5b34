"""The graph of an RLModule: `Outputs`, what the module says of an observation, and a head that makes actions of it."""

# pyright: reportMissingImports=false
from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from ray.rllib.algorithms.dqn.default_dqn_rl_module import QF_PREDS
from ray.rllib.algorithms.dqn.torch.default_dqn_torch_rl_module import DefaultDQNTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import (
    TorchCategorical,
    TorchDeterministic,
    TorchDiagGaussian,
    TorchMultiCategorical,
    TorchSquashedGaussian,
)
from ray.rllib.core.models.base import ENCODER_OUT
from ray.rllib.core.models.torch.heads import TorchFreeLogStdMLPHead
from torch import nn

from ue_rl.errors import ExportError
from ue_rl.inference.export.policies import BoxHead, GreedyHead, check_counts


class Outputs(nn.Module):
    """The first `size` numbers (None: all) of what forward_inference() gives in one column, float32 [N, k]."""

    def __init__(self, module: Any, column: str, size: int | None = None) -> None:
        super().__init__()
        self.module = module
        self.column = column
        self.size = size

    def forward(self, obs: Any) -> th.Tensor:
        """`obs`: one tensor, or a dict of them."""
        out: th.Tensor = self.module._forward_inference({Columns.OBS: obs})[self.column]
        out = out.reshape(out.shape[0], -1)
        if self.size is not None:
            out = out[:, : self.size]
        return out if out.is_floating_point() else out.float()


class FreeHead(nn.Module):
    """RLlib's head with deviations of its own, without the len() of a tensor, which a graph cannot hold."""

    def __init__(self, head: Any) -> None:
        super().__init__()
        self.head = head

    def forward(self, inputs: th.Tensor) -> th.Tensor:
        """float32 [N, 2 k]: means, logs of deviations."""
        head = self.head
        mean, log_std = head.net(inputs), head.log_std
        if head.clip_log_std:
            log_std = th.clamp(log_std, -head.log_std_clip_param_const, head.log_std_clip_param_const)
        return th.cat([mean, log_std.expand_as(mean)], dim=1)


class Values(nn.Module):
    """The values of RLlib's DQN module, float32 [N, n]; a dueling one's with a mean that ONNX has, too."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, obs: Any) -> th.Tensor:
        """See Outputs."""
        batch = {Columns.OBS: obs}
        if self.module.uses_dueling and self.module.num_atoms == 1:
            features = self.module.encoder(batch)[ENCODER_OUT]
            advantage: th.Tensor = self.module.af(features)
            worth: th.Tensor = self.module.vf(features)
            return advantage - advantage.mean(dim=-1, keepdim=True) + worth
        found: th.Tensor = self.module.compute_q_values(batch)[QF_PREDS]
        return found


class ChosenHead(nn.Module):
    """Of a module that chooses itself: its choices as they are."""

    def __init__(self, counts: Sequence[int]) -> None:
        super().__init__()
        self.net = nn.Identity()
        self.counts = [int(count) for count in counts]

    def scores(self, raw: th.Tensor, noise: th.Tensor | None, masks: th.Tensor | None) -> list[th.Tensor]:
        """1 for what was chosen, so that no two choices are equally good."""
        return [nn.functional.one_hot(raw[:, i].long(), count).to(raw.dtype) for i, count in enumerate(self.counts)]

    def forward(self, raw: th.Tensor, noise: th.Tensor | None, masks: th.Tensor | None) -> th.Tensor:
        """float32 [N, choices]."""
        return raw.float()


def convertible(module: Any) -> Any:
    """A copy of a module, on the CPU, whose layers torch can convert where RLlib's own cannot be."""
    made = copy.deepcopy(module).to("cpu").eval()
    for parent in list(made.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is TorchFreeLogStdMLPHead:
                setattr(parent, name, FreeHead(child))
    return made


def find_head(module: Any, obs: Any, space: Any, normalize: bool, clip: bool) -> tuple[nn.Module, nn.Module]:
    """(observation -> numbers, numbers -> action) of a module.

    Args:
        module: from `convertible`. obs: float32 observations of two rows, to try it with.
        space, normalize, clip: of the env's actions, see export_rl_module.

    Raises:
        ExportError: the module fails on `obs`, or makes its actions by a distribution that is not known here.
    """
    counts = [] if isinstance(space, spaces.Box) else np.ravel(getattr(space, "nvec", getattr(space, "n", 0))).tolist()
    check_counts(counts)
    if isinstance(module, DefaultDQNTorchRLModule):
        return Values(module), GreedyHead(nn.Identity(), counts)
    try:
        with th.no_grad():
            out = module.forward_inference({Columns.OBS: obs})
    except Exception as error:  # a module of somebody's own can raise anything
        raise ExportError(
            "forward_inference() fails on observations of zeros",
            fault="policy",
            field="module",
            got=f"{type(error).__name__}: {error}",
            cure="give the spaces of the env that the module was made for",
        ) from error
    if Columns.ACTIONS in out:
        head = ChosenHead(counts) if counts else _number_head(space, False, normalize, clip)
        return Outputs(module, Columns.ACTIONS), head
    if Columns.ACTION_DIST_INPUTS not in out:
        what = "forward_inference() gives no action"
        expected = f"{Columns.ACTIONS} or {Columns.ACTION_DIST_INPUTS}"
        raise ExportError(what, fault="policy", field="module", got=", ".join(map(str, out)), expected=expected)
    kind = module.get_inference_action_dist_cls()
    if counts and issubclass(kind, (TorchCategorical, TorchMultiCategorical)):
        return Outputs(module, Columns.ACTION_DIST_INPUTS), GreedyHead(nn.Identity(), counts)
    if not counts and issubclass(kind, (TorchDiagGaussian, TorchSquashedGaussian, TorchDeterministic)):
        means = Outputs(module, Columns.ACTION_DIST_INPUTS, int(np.prod(space.shape)))  # the deviations stand behind
        return means, _number_head(space, issubclass(kind, TorchSquashedGaussian), normalize, clip)
    raise ExportError(
        "the module's distribution cannot be exported",
        fault="policy",
        field="module",
        got=kind.__name__,
        expected="a categorical one for choices, a Gaussian or squashed Gaussian for a Box",
        cure="let forward_inference() give the action itself, as 'actions'",
    )


def _number_head(space: spaces.Box, tanh: bool, normalize: bool, clip: bool) -> BoxHead:
    """The numbers of a Box as RLlib's connector leaves them: stretched to its bounds, or cut to them."""
    stretch = normalize and bool(np.all(space.bounded_below) and np.all(space.bounded_above))
    return BoxHead(nn.Identity(), space, tanh=tanh, unscale=stretch, clip=stretch or (clip and not normalize))
