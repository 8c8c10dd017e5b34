"""PolicyMetadata: the description inside an exported file, and the JSON form of spaces.

The text is in the ONNX file's `metadata_props` under the key `ue_rl`, as one JSON object (RFC 8259: infinite
bounds are the strings "inf" and "-inf"). A reader skips keys that it does not know and refuses a
`format` greater than its own. Its `sha256` is that of the whole file with zeros in that place: the text stands in the
file as it is, and so no reader needs onnx for it.

Needs NumPy only; gymnasium spaces are recognised by their attributes, so that nothing here imports gymnasium.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from ue_rl.protocol.spaces.engine_leaf import noted_leaf
from ue_rl.protocol.spaces.forms import BY_TYPE, form_of
from ue_rl.protocol.spaces.tree import Branch, Leaf, LeafKind, Space
from ue_rl.protocol.spaces.walks import Key, Path, fold
from ue_rl.protocol.spec import MAX_NUMBERS, PROTOCOL_VERSION, ImageSpec
from ue_rl.system.errors import ModelLoadError, ModelMismatch

METADATA_KEY = "ue_rl"
UNSEALED = "0" * 64
_DIGEST = re.compile(rb'"sha256": "([0-9a-f]{64})"')
FORMAT = 1

OBSERVATION = "observation"
STATE = "state"
EPISODE_START = "episode_start"
NOISE = "noise"
ACTION_MASKS = "action_masks"
ACTIONS = "actions"
ROLES = frozenset({OBSERVATION, STATE, EPISODE_START, NOISE, ACTION_MASKS, ACTIONS})


@dataclass(frozen=True)
class TensorInfo:
    """One input or output of the graph.

    Attributes:
        name: its name in the file.
        shape: its shape without the batch axis, which always comes first.
        role: one of ROLES.
        key: the key of a Dict observation; for a state output, the input that takes it in the next step.
        distribution: for noise only: "normal" or "uniform" (over the open interval from 0 to 1).
    """

    name: str
    shape: tuple[int, ...]
    role: str
    key: str | None = None
    distribution: str | None = None

    @property
    def size(self) -> int:
        """How many numbers one row holds."""
        return math.prod(self.shape)


@dataclass(kw_only=True)
class Comparison:
    """What the comparison of a file with predict() found, over all observations.

    Attributes:
        observations: how many were compared.
        max_abs_difference: largest absolute difference of an action number, in the units of the env; for discrete
            actions 0, since any difference is refused.
        max_relative_difference: the same relative to the action range, per kind of observation: "typical",
            "extreme", "recorded".
        ties: discrete rows on which file and predict() choose differently, between scores that are equal to float32's
            rounding.
        rounded: continuous rows that differ from predict() by more than the tolerance, but only by the rounding of
            float32: the file is off from exact arithmetic by at most 4 times what predict() is (export/verify.py).
        file_error, predict_error: the largest distance of each from exact arithmetic, relative to the action range.
    """

    observations: int = 0
    max_abs_difference: float = 0.0
    max_relative_difference: dict[str, float] = field(default_factory=dict)
    ties: int = 0
    rounded: int = 0
    file_error: float = 0.0
    predict_error: float = 0.0


@dataclass(frozen=True)
class PolicyMetadata:
    """The description of the policy in a file.

    Attributes:
        algorithm: such as "PPO".
        policy: the class of the policy, such as "ActorCriticPolicy".
        observation_space, action_space: as `space_to_json` writes them, as the engine sees them: before
            normalisation, images in the engine's channel order, Dict keys in their order.
        inputs, outputs: the ports of the graph in their order.
        normalization: None, or clip_obs (None: not clipped), epsilon, keys (None: all) and count of the VecNormalize in
            the graph.
        num_timesteps: env steps that the policy was trained for.
        stochastic: whether the actions are sampled from a noise input.
        flat_input: whether the observation is one flat input whatever its space.
        verification: what the comparison with predict() found (the fields of Comparison), and the tolerances.
        versions: library name -> version.
        obs_names, act_names: of each number in the engine's row, for people; () where the handshake has none.
        sha256: of the file, see `seal`; "" in files that have none.
        protocol_version: version of the wire protocol that the exporter spoke.
        format: version of this description.
    """

    algorithm: str
    policy: str
    observation_space: dict[str, Any]
    action_space: dict[str, Any]
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    normalization: dict[str, Any] | None = None
    num_timesteps: int = 0
    stochastic: bool = False
    flat_input: bool = False
    verification: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    obs_names: tuple[str, ...] = ()
    act_names: tuple[str, ...] = ()
    sha256: str = ""
    protocol_version: int = PROTOCOL_VERSION
    format: int = FORMAT

    @property
    def obs_size(self) -> int:
        """Numbers per observation, over all keys."""
        return self.observed.size

    @property
    def act_size(self) -> int:
        """Numbers per action."""
        return self.acted.size

    @cached_property
    def observed(self) -> Space:
        """The observation space as a tree, see `tree_from_json`. Raises ModelLoadError where it cannot be."""
        return _tree(self.observation_space)

    @cached_property
    def acted(self) -> Space:
        """The action space as a tree; as `observed`."""
        return _tree(self.action_space)

    def ports(self, role: str, side: str = "inputs") -> tuple[TensorInfo, ...]:
        """The inputs (or outputs) of one role."""
        ports: tuple[TensorInfo, ...] = getattr(self, side)
        return tuple(port for port in ports if port.role == role)

    def to_json(self) -> str:
        """This description as one JSON object."""
        values = asdict(self)
        for name in ("obs_names", "act_names", "sha256"):
            if not values[name]:
                del values[name]
        return json.dumps(values, allow_nan=False)

    def _check(self) -> None:
        """Raise ValueError for what no exporter writes."""
        observed = self.ports(OBSERVATION)
        acted = self.ports(ACTIONS, "outputs")
        sides = (self.inputs, self.outputs)
        for wrong, what in (
            (self.obs_size < 1 or self.act_size < 1, "empty space"),
            (not observed or len(acted) != 1, "one or more observations and one action are due"),
            (sum(port.size for port in observed) != self.obs_size, "the inputs do not hold the observation space"),
            (sum(port.size for port in acted) != self.act_size, "the output does not hold the action space"),
            (any(len({port.name for port in side}) != len(side) for side in sides), "a name occurs twice"),
            (any(port.size > MAX_NUMBERS for side in sides for port in side), "more numbers than allowed"),
        ):
            if wrong:
                raise ValueError(what)

    @classmethod
    def from_json(cls, text: str) -> PolicyMetadata:
        """Read what `to_json` wrote.

        Raises:
            ModelLoadError: the text is not such a description.
            ModelMismatch: it was written by a later version.
        """
        try:
            raw = json.loads(text)
            if raw["format"] > FORMAT:
                raise ModelMismatch(
                    "the model was exported by a later version of ue_rl",
                    fault="model",
                    field="format",
                    expected=f"at most {FORMAT}",
                    got=raw["format"],
                    cure="update ue_rl here, or export again with this version",
                )
            known = {f.name for f in fields(cls)}
            values = {key: value for key, value in raw.items() if key in known}
            for side in ("inputs", "outputs"):
                values[side] = tuple(_port_from_json(port) for port in raw[side])
            for names in ("obs_names", "act_names"):
                values[names] = tuple(map(str, raw.get(names, ())))
            made = cls(**values)
            made._check()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _unreadable(error) from error
        return made


def _tree(space: Mapping[str, Any]) -> Space:
    try:
        return tree_from_json(space)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> ModelLoadError:
    return ModelLoadError(
        "the model's description (metadata key 'ue_rl') cannot be read",
        fault="model",
        got=f"{type(error).__name__}: {error}",
        cure="export the model again",
    )


def _port_from_json(raw: Mapping[str, Any]) -> TensorInfo:
    shape = tuple(int(n) for n in raw["shape"])
    key = raw.get("key")
    name = None
    if key is not None:
        name = str(key)
    port = TensorInfo(str(raw["name"]), shape, raw["role"], name, raw.get("distribution"))
    if port.role not in ROLES or any(n < 0 for n in port.shape):
        raise ValueError(f"port {port.name}")
    return port


def seal(content: bytes) -> tuple[bytes, str]:
    """An ONNX file whose description's sha256 is UNSEALED with the true one, and that."""
    digest = hashlib.sha256(content).hexdigest()
    at = _digest_in(content)
    assert at is not None
    assert content[at : at + 64] == UNSEALED.encode()
    return content[:at] + digest.encode() + content[at + 64 :], digest


def unsealed(content: bytes) -> bytes | None:
    """A file with UNSEALED in the place of its sha256, ready for `seal`; None where it has none."""
    at = _digest_in(content)
    if at is None:
        return None
    return content[:at] + UNSEALED.encode() + content[at + 64 :]


def is_intact(content: bytes) -> bool:
    """Whether an ONNX file has the sha256 that it says, or says none: older files, and those of other tools."""
    at = _digest_in(content)
    if at is None:
        return True
    whole = hashlib.sha256(content[:at])
    whole.update(UNSEALED.encode())
    whole.update(content[at + 64 :])
    return whole.hexdigest().encode() == content[at : at + 64]


def _digest_in(content: bytes) -> int | None:
    found = list(_DIGEST.finditer(content))
    # the last: the description stands behind the graph
    if found:
        return found[-1].start(1)
    return None


def space_to_json(space: Any) -> dict[str, Any]:
    """A gymnasium space as plain JSON values.

    Box: shape, dtype, low and high (one number where all are equal, else all numbers in C order). Discrete: n, start.
    MultiDiscrete: nvec, and start where the choices do not all begin with 0. MultiBinary: shape. Dict: spaces, in the
    order of the space. Tuple: the same, under the names 0, 1, .. Starts are the engine's, also where the space counts
    from 0 for Stable-Baselines3; a hybrid action is the Dict or Tuple that the engine has.

    Raises:
        ModelMismatch: a space that a policy file cannot name, such as Tuple or Text.
    """
    if hasattr(space, "tree"):  # a HybridBox
        return tree_to_json(space.tree)
    made: dict[str, Any] = fold(space, _leaf_to_json, _parts_to_json)
    return made


def _leaf_to_json(space: Any, _: Path) -> dict[str, Any]:
    noted = noted_leaf(space)
    if noted is not None:
        return noted.form.to_json(noted, ())
    form = form_of(space)
    if form is None:
        raise _no_name(space)
    return form.space_to_json(space)


def _parts_to_json(space: Any, parts: dict[Key, Any], _: Path) -> dict[str, Any]:
    if not isinstance(space, Mapping):
        raise _no_name(space)
    return {"type": "Dict", "spaces": parts}


def _no_name(space: Any) -> ModelMismatch:
    what = f"a {type(space).__name__} space cannot be described in a policy file"
    return ModelMismatch(what, expected=f"{', '.join(BY_TYPE)} or Dict", got=space)


def tree_to_json(tree: Space, image: ImageSpec | None = None) -> dict[str, Any]:
    """A space tree of the handshake, as `space_to_json` writes the Gymnasium space of the same form.

    Args:
        image: what its IMAGE leaf stands for.
    """
    shape: tuple[int, ...] = ()
    if image is not None:
        shape = image.shape

    def branch(node: Branch, parts: dict[Key, Any], _: Path) -> dict[str, Any]:
        kind = "Tuple"
        if node.named:
            kind = "Dict"
        return {"type": kind, "spaces": {str(key): part for key, part in parts.items()}}

    made: dict[str, Any] = fold(tree, lambda leaf, _: leaf.form.to_json(leaf, shape), branch)
    return made


def tree_from_json(space: Mapping[str, Any]) -> Space:
    """The tree of a space in its JSON form: every Box float32, an IMAGE a Box, a MultiDiscrete one row of choices.

    Raises:
        ConfigurationError: a space that cannot be.
    """
    kind = space["type"]
    if kind in ("Dict", "Tuple"):
        parts = tuple((name, tree_from_json(part)) for name, part in space["spaces"].items())
        return Branch(parts, named=kind == "Dict")
    if kind not in BY_TYPE:
        raise ValueError(f"space of type {kind!r}")
    return Leaf(LeafKind(BY_TYPE[kind].word), **BY_TYPE[kind].of_json(space))


def space_size(space: Mapping[str, Any]) -> int:
    """How many numbers one element of a space (in its JSON form) takes when written flat."""
    return tree_from_json(space).size
