"""The whole exported graph as one torch module, and its conversion to ONNX bytes.

`plan_graph` decides what a model's graph is (or refuses the model, with the reason), `to_onnx` converts it. torch's
TorchScript converter is preferred: it is some thirty times faster than the newer one and writes files that old
runtimes read; where torch no longer has it, the newer one is used. Python control flow that depends on the observation
cannot be in a graph: the tracer's warning about it is an error here.
"""

from __future__ import annotations

import inspect
import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch as th
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn
from torch.jit import TracerWarning  # type: ignore[attr-defined]

from ue_rl.inference.export.observations import (
    ObservationLeaf,
    ObservationNet,
    check_normalize,
    check_starts,
    find_leaves,
    starts_of,
)
from ue_rl.inference.export.policies import ALGORITHMS, BoxHead, Lstm, check_counts, make_head
from ue_rl.inference.metadata import (
    ACTION_MASKS,
    ACTIONS,
    EPISODE_START,
    NOISE,
    OBSERVATION,
    STATE,
    TensorInfo,
    space_size,
    space_to_json,
)
from ue_rl.system.errors import ExportError

_TRUSTED = ("torch.", "stable_baselines3.", "sb3_contrib.", "ue_rl.")
_STATE_NAMES = ("state_h", "state_c")
_OLDEST_OF_DYNAMO = 18  # the oldest opset that torch's newer converter writes
SCORES = "ue_rl_scores"  # a further output of the converted graph, for the comparison; the file does not have it
_RESERVED = {ACTIONS, SCORES, *_STATE_NAMES, "state_h_out", "state_c_out", EPISODE_START, NOISE, ACTION_MASKS}


@dataclass(frozen=True)
class Plan:
    """What is to be exported: the module, and its inputs and outputs in order."""

    algorithm: str
    leaves: list[ObservationLeaf]
    net: PolicyGraph
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    stochastic: bool
    flat_input: bool


class PolicyGraph(nn.Module):
    """observation [, state, episode start] [, noise] [, masks] -> actions [, state], scores.

    Args:
        roles: of the inputs, in their order. starts: what the engine counts each choice from; (): 0, as the head does.
    """

    starts: th.Tensor

    def __init__(
        self,
        observation: ObservationNet,
        extractor: nn.Module,
        lstm: Lstm | None,
        trunk: nn.Module,
        head: nn.Module,
        roles: tuple[str, ...],
        starts: tuple[int, ...],
    ) -> None:
        super().__init__()
        if starts:
            self.register_buffer("starts", th.tensor(starts, dtype=th.float32))
        self.observation = observation
        self.extractor = extractor
        self.lstm = lstm
        self.trunk = trunk
        self.head = head
        self.roles = roles

    def _latent(self, inputs: tuple[th.Tensor, ...]) -> tuple[th.Tensor, tuple[th.Tensor, ...]]:
        """The head's input, and the new state (empty if not recurrent)."""
        by_role: dict[str, list[th.Tensor]] = {}
        for role, value in zip(self.roles, inputs, strict=True):
            by_role.setdefault(role, []).append(value)
        seen = self.observation(*by_role[OBSERVATION])
        features = self.extractor(seen)
        state: tuple[th.Tensor, ...] = ()
        if self.lstm is not None:
            keep = 1.0 - by_role[EPISODE_START][0].unsqueeze(2)
            h, c = (keep * s for s in by_role[STATE])
            features, *new = self.lstm(features, h, c)
            state = tuple(new)
        return self.trunk(features), state

    def scores(self, raw: th.Tensor, *inputs: th.Tensor) -> list[th.Tensor]:
        """Of discrete policies: what the argmax is taken over, one [N, choices] per action number.

        Args:
            raw: what the graph gives last for these `inputs`.
        """
        given = self._one(NOISE, inputs), self._one(ACTION_MASKS, inputs)
        return self.head.scores(raw, *given)  # type: ignore[no-any-return, operator]

    def forward(self, *inputs: th.Tensor) -> tuple[th.Tensor, ...]:
        """(actions, state.., scores), all float32, the batch first; scores: what the last layer gives, with noise."""
        latent, state = self._latent(inputs)
        noise = self._one(NOISE, inputs)
        raw = self.head.net(latent)  # type: ignore[operator]
        if noise is not None and isinstance(self.head, BoxHead):
            raw = self.head.sampled(raw, latent, noise)
        actions = self.head(raw, noise, self._one(ACTION_MASKS, inputs))
        return (actions + self.starts if hasattr(self, "starts") else actions, *state, raw)

    def _one(self, role: str, inputs: tuple[th.Tensor, ...]) -> th.Tensor | None:
        if role in self.roles:
            return inputs[self.roles.index(role)]
        return None


def algorithm_of(model: Any) -> str:
    """The algorithm's name, such as "PPO"; a subclass counts as what it is made from.

    Raises:
        ExportError: not one of the supported algorithms.
    """
    for cls in type(model).__mro__:
        if cls.__name__ in ALGORITHMS and cls.__module__.startswith(_TRUSTED):
            return cls.__name__
    raise ExportError(
        f"{type(model).__name__} is not an algorithm that can be exported",
        expected=", ".join(ALGORITHMS),
        got=f"{type(model).__module__}.{type(model).__qualname__}",
        cure="pass a model of Stable-Baselines3 or sb3-contrib, not a policy or an env",
    )


def plan_graph(
    model: Any,
    vec_normalize: VecNormalize | None,
    env: Any = None,
    *,
    stochastic: bool = False,
    flat_input: bool = False,
    action_masks: bool | None = None,
    image_layout: str = "auto",
    allow_custom: bool = False,
    order: tuple[str, ...] = (),
) -> Plan:
    """What the graph of `model` is; `env` is the env it was trained in, if that is at hand.

    Args:
        action_masks: None: where the algorithm takes them. order: of the parts of the engine's row, see find_leaves.

    Raises:
        ExportError: the model is not supported; the message names the part and the reason.
    """
    algorithm = algorithm_of(model)
    policy = model.policy
    space = model.action_space
    check_starts(space, "action")
    check_starts(model.observation_space, "observation")
    _check_class(policy, "policy", allow_custom)
    extractor, trunk, head = make_head(algorithm, policy, space, stochastic)
    for part in (extractor, trunk, head):
        for module in part.modules():
            what = "layer"
            if part is extractor:
                what = "features extractor"
            _check_class(module, what, allow_custom)
    if not all(bool(th.isfinite(p).all()) for part in (extractor, trunk, head) for p in part.parameters()):
        raise ExportError(
            "the weights of the policy hold NaN or infinity", fault="policy", cure="export an earlier checkpoint"
        )
    if action_masks and algorithm != "MaskablePPO":
        raise ExportError(f"{algorithm} takes no action masks", field="action_masks", expected="MaskablePPO")
    check_counts(getattr(head, "counts", ()))

    if action_masks is None:
        action_masks = algorithm == "MaskablePPO"
    leaves = find_leaves(model.observation_space, env, image_layout, order)
    check_normalize(vec_normalize, leaves)
    observation = ObservationNet(leaves, vec_normalize, bool(policy.normalize_images), flat_input)
    inputs = observation_ports(leaves, flat_input)
    outputs = [TensorInfo("actions", (space_size(space_to_json(space)),), ACTIONS)]
    lstm = None
    if algorithm == "RecurrentPPO":
        lstm = Lstm(policy.lstm_actor)
        shape = (policy.lstm_actor.num_layers, policy.lstm_actor.hidden_size)
        inputs += [TensorInfo(name, shape, STATE) for name in _STATE_NAMES]
        inputs.append(TensorInfo("episode_start", (1,), EPISODE_START))
        outputs += [TensorInfo(f"{name}_out", shape, STATE, key=name) for name in _STATE_NAMES]
    if stochastic:
        kind = "uniform"
        if isinstance(head, BoxHead):
            kind = "normal"
        inputs.append(TensorInfo("noise", head.noise_shape, NOISE, distribution=kind))  # type: ignore[arg-type]
    if action_masks:
        inputs.append(TensorInfo("action_masks", (sum(head.counts),), ACTION_MASKS))  # type: ignore[arg-type]
    roles = tuple(port.role for port in inputs)
    net = PolicyGraph(observation, extractor, lstm, trunk, head, roles, starts_of(space))
    net.to(policy.device).eval()  # else the converter would leave it, and with it the policy, in training mode
    return Plan(algorithm, leaves, net, tuple(inputs), tuple(outputs), stochastic, flat_input)


def observation_ports(leaves: list[ObservationLeaf], flat_input: bool) -> list[TensorInfo]:
    """The inputs of a graph for these parts of an observation: one each, or one in all."""
    if flat_input:
        return [TensorInfo("obs", (sum(leaf.size for leaf in leaves),), OBSERVATION)]
    if leaves[0].key is None:
        return [TensorInfo("obs", leaves[0].shape, OBSERVATION)]
    clash = [leaf.name for leaf in leaves if leaf.name in _RESERVED or not leaf.name]
    if clash:
        raise ExportError(
            "a key of the observation has the name of another input or output",
            field=clash[0],
            cure="rename the key, or export with flat_input=True",
        )
    # torch takes no name of digits alone for an input; the other side goes by the key
    taken = {str(leaf.name) for leaf in leaves}
    ports = []
    for leaf in leaves:
        name = str(leaf.name)
        while name.isdigit() or (name != leaf.name and name in taken):
            name = f"obs_{name}"
        ports.append(TensorInfo(name, leaf.shape, OBSERVATION, key=leaf.name))
    return ports


def is_trusted(net: nn.Module) -> bool:
    """Whether all of it is code of torch, Stable-Baselines3, sb3-contrib or this library."""
    return all(f"{type(module).__module__}.".startswith(_TRUSTED) for module in net.modules())


def _check_class(module: nn.Module, what: str, allow_custom: bool) -> None:
    cls = type(module)
    if allow_custom or f"{cls.__module__}.".startswith(_TRUSTED):
        return
    raise ExportError(
        f"the {what} {cls.__qualname__} is custom code, which a graph may not be able to hold",
        field=what,
        expected="classes of torch, Stable-Baselines3 and sb3-contrib",
        got=f"{cls.__module__}.{cls.__qualname__}",
        cure="pass allow_custom=True to try: the file is then compared with predict() like any other",
    )


@contextmanager
def evaluation_mode(policy: Any) -> Iterator[None]:
    """Dropout and batch norm as in predict(); afterwards as they were."""
    before = {module: module.training for module in policy.modules()}
    policy.set_training_mode(False)
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training


def to_onnx(plan: Plan, opset: int, exporter: str = "auto") -> tuple[bytes, str]:
    """The graph as the bytes of an ONNX file, and the converter used ("torchscript" or "dynamo").

    Its outputs are those of the plan, and SCORES.

    Raises:
        ExportError: it cannot be converted; the message holds the converter's reason.
    """
    if exporter not in ("auto", "torchscript", "dynamo"):
        raise ExportError("no such exporter", field="exporter", expected="auto, torchscript or dynamo", got=exporter)
    device = next((t.device for t in (*plan.net.parameters(), *plan.net.buffers())), th.device("cpu"))
    # Two rows, so that no converter takes the batch for a constant 1; noise inside (0, 1), as uniform noise needs.
    examples = tuple(
        th.full((2, *port.shape), 0.5 if port.role == NOISE else 0.0, device=device) for port in plan.inputs
    )
    takes_choice = "dynamo" in inspect.signature(th.onnx.export).parameters
    names = {"input_names": [p.name for p in plan.inputs], "output_names": [*(p.name for p in plan.outputs), SCORES]}
    if exporter in ("auto", "torchscript"):
        axes = {name: {0: "batch"} for name in (*names["input_names"], *names["output_names"])}
        choice: dict[str, Any]
        if takes_choice:
            choice = {"dynamo": False}
        else:
            choice = {}
        try:
            content = _convert(plan, examples, dynamic_axes=axes, opset_version=opset, **names, **choice)
            return without_idle_casts(content), "torchscript"
        except (TypeError, ValueError, AttributeError, ImportError) as error:
            if exporter == "torchscript" or find_spec("onnxscript") is None:
                raise _refusal(error) from error
            logging.getLogger(__name__).info("this torch has no TorchScript converter (%s); using dynamo", error)
    dims = ({0: th.export.Dim("batch")},) * len(plan.inputs)
    written = max(opset, _OLDEST_OF_DYNAMO)
    form: dict[str, Any] = {"dynamic_shapes": (dims,), "opset_version": written, "external_data": False}
    try:
        content = without_idle_casts(_convert(plan, examples, dynamo=True, **form, **names))
    except (TypeError, ValueError, AttributeError, ImportError) as error:
        raise _refusal(error) from error
    if written != opset:
        logging.getLogger(__name__).warning(
            "the file has opset %d instead of %d: torch's newer converter writes none that is older",
            written,
            opset,
        )
    return content, "dynamo"


def without_idle_casts(content: bytes) -> bytes:
    """The file without nodes that cast numbers to the type that they have.

    torch's converter writes one for each `.float()`. They do nothing, but the usual converters to float16 leave them as
    they are, and the file that comes out is of two types and cannot be loaded.
    """
    import onnx

    proto = onnx.load_from_string(content)
    graph = onnx.shape_inference.infer_shapes(proto).graph
    weights = {tensor.name for tensor in graph.initializer}
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info):
        types[value.name] = value.type.tensor_type.elem_type
    fixed = {value.name for value in (*graph.input, *graph.output)}  # names that the file promises
    renamed: dict[str, str] = {}
    kept = []

    def final(name: str) -> str:
        while name in renamed:
            name = renamed[name]
        return name

    for node in proto.graph.node:
        if node.op_type == "Cast" and types.get(node.input[0]) == node.attribute[0].i:
            source = final(node.input[0])
            result = node.output[0]
            if result not in fixed:
                renamed[result] = source
                continue
            if source not in fixed and source not in weights:
                renamed[source] = result  # what gives the number gives it under the promised name
                continue
        kept.append(node)
    for node in kept:
        node.input[:] = [final(name) for name in node.input]
        node.output[:] = [final(name) for name in node.output]
    del proto.graph.node[:]
    proto.graph.node.extend(kept)
    del proto.graph.value_info[:]  # of names that may be gone; the runtime finds out anew
    changed: bytes = proto.SerializeToString()  # type: ignore[no-untyped-call]
    return changed


def _convert(plan: Plan, examples: tuple[th.Tensor, ...], **options: Any) -> bytes:
    sink: Any = io.BytesIO()
    try:
        with th.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", TracerWarning)
            th.onnx.export(plan.net, examples, sink, verbose=False, **options)
    except (TracerWarning, SystemError) as error:  # SystemError: the warning came through torch's C++
        cause = error if isinstance(error, TracerWarning) else error.__cause__
        if not isinstance(cause, TracerWarning):
            raise _refusal(error) from error
        raise ExportError(
            "the policy has control flow, or numbers taken out of tensors, that depend on the observation",
            got=str(cause).partition("\n")[0],
            cure="write it with tensor operations such as torch.where",
        ) from error
    except (RuntimeError, NotImplementedError, AssertionError) as error:  # the converters' own errors derive from these
        raise _refusal(error) from error
    return sink.getvalue()  # type: ignore[no-any-return]


def _refusal(error: BaseException) -> ExportError:
    lines = [line for line in str(error).splitlines() if line.strip()]
    first = ""
    if lines:
        first = lines[0]
    cure = "use layers that have an ONNX form, or another opset"
    if "Unsupported onnx_opset_version" in first:
        cure = "leave the opset out, or give a lower one: this torch does not write it"
    return ExportError("torch cannot convert the policy to ONNX", got=f"{type(error).__name__}: {first}", cure=cure)
