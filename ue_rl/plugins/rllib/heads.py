"""The graph of an RLModule: a `Net`, what the module says of an observation, and a head that makes actions of it."""

# pyright: reportMissingImports=false
from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
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

from ue_rl.inference.export.policies import BoxHead, GreedyHead, check_counts
from ue_rl.system.errors import ExportError


class Net(nn.Module):
    """`compute`, a function of a module and of what comes in, in the module's place."""

    def __init__(self, module: Any, compute: Callable[[Any, Any], th.Tensor]) -> None:
        super().__init__()
        self.module = module
        self.compute = compute

    def forward(self, given: Any) -> th.Tensor:
        """`given`: one tensor, or a dict of them."""
        return self.compute(self.module, given)


def _outputs(module: Any, column: str, size: int | None = None) -> Net:
    """The first `size` numbers (None: all) of what forward_inference() gives in one column, float32 [N, k]."""

    def compute(module: Any, obs: Any) -> th.Tensor:
        out: th.Tensor = module._forward_inference({Columns.OBS: obs})[column]
        out = out.reshape(out.shape[0], -1)[:, :size]
        if out.is_floating_point():
            return out
        return out.float()

    return Net(module, compute)


def _free(head: Any, inputs: th.Tensor) -> th.Tensor:
    """Means and logs of deviations, [N, 2 k], of RLlib's head with deviations of its own.

    Without its len() of a tensor, which a graph cannot hold.
    """
    mean = head.net(inputs)
    log_std = head.log_std
    if head.clip_log_std:
        log_std = th.clamp(log_std, -head.log_std_clip_param_const, head.log_std_clip_param_const)
    return th.cat([mean, log_std.expand_as(mean)], dim=1)


def _values(module: Any, obs: Any) -> th.Tensor:
    """The values of RLlib's DQN module, [N, n]; a dueling one's with a mean that ONNX has, too."""
    batch = {Columns.OBS: obs}
    if module.uses_dueling and module.num_atoms == 1:
        features = module.encoder(batch)[ENCODER_OUT]
        advantage: th.Tensor = module.af(features)
        worth: th.Tensor = module.vf(features)
        return advantage - advantage.mean(dim=-1, keepdim=True) + worth
    found: th.Tensor = module.compute_q_values(batch)[QF_PREDS]
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
                setattr(parent, name, Net(child, _free))
    return made


def find_head(module: Any, obs: Any, space: Any, normalize: bool, clip: bool) -> tuple[nn.Module, nn.Module]:
    """(observation -> numbers, numbers -> action) of a module.

    Args:
        module: from `convertible`. obs: float32 observations of two rows, to try it with.
        space, normalize, clip: of the env's actions, see export_rl_module.

    Raises:
        ExportError: the module fails on `obs`, or makes its actions by a distribution that is not known here.
    """
    if isinstance(space, spaces.Box):
        counts = []
    else:
        counts = np.ravel(getattr(space, "nvec", getattr(space, "n", 0))).tolist()
    check_counts(counts)
    if isinstance(module, DefaultDQNTorchRLModule):
        return Net(module, _values), GreedyHead(nn.Identity(), counts)
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
        return _outputs(module, Columns.ACTIONS), head
    if Columns.ACTION_DIST_INPUTS not in out:
        what = "forward_inference() gives no action"
        expected = f"{Columns.ACTIONS} or {Columns.ACTION_DIST_INPUTS}"
        raise ExportError(what, fault="policy", field="module", got=", ".join(map(str, out)), expected=expected)
    kind = module.get_inference_action_dist_cls()
    if counts and issubclass(kind, (TorchCategorical, TorchMultiCategorical)):
        return _outputs(module, Columns.ACTION_DIST_INPUTS), GreedyHead(nn.Identity(), counts)
    if not counts and issubclass(kind, (TorchDiagGaussian, TorchSquashedGaussian, TorchDeterministic)):
        means = _outputs(module, Columns.ACTION_DIST_INPUTS, int(np.prod(space.shape)))  # the deviations stand behind
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
