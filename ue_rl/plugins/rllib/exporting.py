"""export_rl_module: what an RLModule does, as one ONNX file that is known to do the same.

The file has the description and the names of those of `ue_rl.inference.export_onnx`, and is compared and written as
they are: `ue-rl play`, OnnxInference, the policy server, the samples in C++ and C# and the plugin take it. See
docs/rllib.md.

Source: ray.rllib.core.distribution.torch.torch_distribution, ray.rllib.connectors.module_to_env (Ray 2.60).
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import copy
import time
from os import PathLike
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from numpy.typing import NDArray
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchSquashedGaussian
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.core.rl_module.torch.torch_rl_module import TorchDDPRLModule
from ray.rllib.utils.spaces.space_utils import clip_action, unsquash_action
from ray.rllib.utils.torch_utils import convert_to_torch_tensor

from ue_rl.inference.export.file import (
    DEFAULT_OPSET,
    TOLERANCE,
    ExportReport,
    check_libraries,
    check_sizes,
    check_target,
    describe,
    export,
)
from ue_rl.inference.export.graph import Plan, PolicyGraph, observation_ports
from ue_rl.inference.export.observations import ObservationLeaf, ObservationNet, starts_of
from ue_rl.inference.metadata import ACTIONS, OBSERVATION, TensorInfo, space_size, space_to_json
from ue_rl.plugins.rllib.heads import convertible, find_head
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system.errors import ExportError

_BATCHES = (1, 7)  # compared in batches of these sizes, beside those of the verifier
_REFERENCE = "forward_inference()"


def export_rl_module(
    module: Any,
    path: str | PathLike[str],
    observation_space: Any,
    action_space: Any,
    *,
    normalize_actions: bool,
    clip_actions: bool,
    algorithm: str | None = None,
    num_timesteps: int = 0,
    spec: EnvSpec | None = None,
    flat_input: bool = False,
    recorded: Any = None,
    n_verify: int | None = None,
    tolerance: float = TOLERANCE,
    opset: int = DEFAULT_OPSET,
) -> ExportReport:
    """Export an RLModule to `path`, compare the file with forward_inference(), and write it only if both agree.

    The file holds the deterministic action: the largest logit or value of each choice, the mean of a Gaussian, or what
    tanh makes of it where it is squashed (SAC; with explore=False RLlib itself leaves out that tanh). Then it does what
    RLlib's connector NormalizeAndClipActions does. Connectors of your own are not part of a module, nor of the file.

    Args:
        module: RLlib's default modules for PPO, APPO, IMPALA, SAC and DQN, or one of your own that torch can convert;
            or a MultiRLModule with one module. It is not changed.
        path: the file to write; its folder must exist.
        observation_space: as the env has it: a Box, or a Dict of them. action_space: a Box of floats, Discrete or
            MultiDiscrete; choices of the file count from its start.
        normalize_actions, clip_actions: as the algorithm's config has them. A bounded Box's actions are stretched from
            -1..1 to its bounds, or else cut to them.
        algorithm, num_timesteps: for the description in the file; the algorithm is the module's class if not given.
        spec: the engine's handshake, for the names of its numbers.
        flat_input: one input `obs` [N, total] for a Dict.
        recorded: observations of the env to compare on as well: [N, ...], or a mapping of keys.
        n_verify: how many observations to compare on besides, at least 1000; None: 10 000.
        tolerance, opset: see export_onnx.

    Raises:
        ExportError: the module has a state (an LSTM), its spaces are not those above, torch cannot convert it, it acts
            differently from its file, or the file cannot be written. No file is left behind.
    """
    target = check_target(path, n_verify)
    check_libraries()
    began = time.perf_counter()
    module = _alone(module)
    name = type(module).__name__
    _check_spaces(module, observation_space, action_space)
    twin = copy.deepcopy(module).to("cpu").eval()
    leaves = _leaves(observation_space)
    zeros: Any = {leaf.key: th.zeros(2, *leaf.shape) for leaf in leaves}
    zeros = zeros.get(None, zeros)
    outputs, head = find_head(convertible(twin), zeros, action_space, normalize_actions, clip_actions)
    ports = tuple(observation_ports(leaves, flat_input))
    done = (TensorInfo("actions", (space_size(space_to_json(action_space)),), ACTIONS),)
    seen = ObservationNet(leaves, None, False, flat_input)
    trunk = th.nn.Identity()
    roles = (OBSERVATION,) * len(ports)
    net = PolicyGraph(seen, outputs, None, trunk, head, roles, starts_of(action_space)).eval()
    named = algorithm
    if not named:
        named = name
    plan = Plan(named, leaves, net, ports, done, stochastic=False, flat_input=flat_input)
    metadata = describe(plan, spec, policy=name, action_space=action_space, num_timesteps=num_timesteps)
    if spec is not None:
        check_sizes(spec, metadata)
    reference = _Reference(twin, action_space, normalize_actions, clip_actions)
    return export(
        reference,
        plan,
        metadata,
        target,
        began,
        n_verify=n_verify,
        recorded=recorded,
        tolerance=tolerance,
        opset=opset,
        reference=_REFERENCE,
        batches=_BATCHES,
    )


class _Reference:
    """RLlib's module and RLlib's own functions behind it, with predict() as Stable-Baselines3 has it."""

    def __init__(self, module: Any, action_space: Any, normalize: bool, clip: bool) -> None:
        self.action_space = action_space
        self.policy = SimpleNamespace(device=th.device("cpu"))
        self._module = module
        self._normalize = normalize
        self._clip = clip

    def in_float64(self) -> _Reference:
        """The same, with the module's parameters in float64."""
        return _Reference(copy.deepcopy(self._module).double(), self.action_space, self._normalize, self._clip)

    def predict(self, obs: Any, **_: Any) -> tuple[NDArray[Any], None]:
        """The env's actions; choices count from 0."""
        with th.no_grad():
            out = self._module.forward_inference({Columns.OBS: convert_to_torch_tensor(obs)})
            if Columns.ACTIONS in out:
                actions = out[Columns.ACTIONS]
            else:
                logits = out[Columns.ACTION_DIST_INPUTS]
                how = self._module.get_inference_action_dist_cls().from_logits(logits)
                if isinstance(how, TorchSquashedGaussian):
                    actions = how._squash(how.loc)
                else:
                    actions = how.to_deterministic().sample()
        found = actions.cpu().numpy()
        if self._normalize:
            found = unsquash_action(found, self.action_space)
        elif self._clip:
            found = clip_action(found, self.action_space)
        return np.asarray(found), None


def _alone(module: Any) -> Any:
    """The one module in `module`, without what trains it on several GPUs."""
    if isinstance(module, TorchDDPRLModule):
        module = module.unwrapped()
    if isinstance(module, MultiRLModule):
        names = list(module.keys())
        if len(names) != 1:
            what = "a file holds one module"
            cure = "export each on its own: module[NAME]"
            raise ExportError(what, field="module", got=", ".join(map(str, names)), cure=cure)
        return _alone(module[names[0]])
    if not hasattr(module, "forward_inference") or getattr(module, "framework", None) != "torch":
        what = "not an RLModule of torch"
        cure = "pass algorithm.get_module()"
        raise ExportError(what, field="module", expected="a TorchRLModule", got=type(module).__name__, cure=cure)
    if module.is_stateful():
        raise ExportError(
            "a module with a state cannot be exported",
            fault="policy",
            field="module",
            got=type(module).__name__,
            expected="a module whose action follows from the observation alone",
            cure="train with use_lstm=False; stacked observations in the env stand in for a memory",
        )
    return module


def _check_spaces(module: Any, observation_space: Any, action_space: Any) -> None:
    boxes = observation_space.spaces.values() if isinstance(observation_space, spaces.Dict) else [observation_space]
    if not all(isinstance(box, spaces.Box) for box in boxes):
        raise ExportError(
            "these observations cannot be exported",
            field="observation_space",
            expected="a Box, or a Dict of them",
            got=observation_space,
            cure="flatten them in the env: what a connector does is not in the file",
        )
    fits = isinstance(action_space, (spaces.Discrete, spaces.MultiDiscrete)) or (
        isinstance(action_space, spaces.Box) and np.issubdtype(action_space.dtype, np.floating)
    )
    if not fits:
        raise ExportError(
            "these actions cannot be exported",
            field="action_space",
            got=action_space,
            expected="a Box of floats, Discrete or MultiDiscrete",
            cure="give the env an action of one kind",
        )
    for field, given in (("observation_space", observation_space), ("action_space", action_space)):
        own = getattr(module, field, None)
        if own is not None and own.shape != given.shape:
            what = "the module was made for other spaces than the env's"
            cure = "do in the env what a connector does now: it is no part of the module, nor of the file"
            raise ExportError(what, field=field, expected=own, got=given, cure=cure)


def _leaves(space: Any) -> list[ObservationLeaf]:
    if isinstance(space, spaces.Dict):
        return [ObservationLeaf(key, part, part, False) for key, part in space.spaces.items()]
    return [ObservationLeaf(None, space, space, False)]
