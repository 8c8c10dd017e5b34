"""The policy server's handshake and its last line, without I/O; docs/policy-server.md.

The lines between the two are read and written by ue_rl/wire/codec.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ue_rl.errors import HandshakeError, UeRlError
from ue_rl.inference.metadata import space_size
from ue_rl.inference.runtime.onnx import OnnxInference
from ue_rl.spec import ActionKind, EnvSpec, EnvType
from ue_rl.wire.codec import require_lines
from ue_rl.wire.handshake import decode_handshake, handshake_sizes


def read_hello(line: bytes, model: OnnxInference, max_rows: int) -> EnvSpec:
    """The engine's sizes, which are known to be the model's; what concerns training only is left out.

    Raises:
        HandshakeError: not a CONFIG line; other sizes than the model's; an ACT_SPACE of other choices; more than
            `max_rows` envs.
    """
    sizes = handshake_sizes(line)  # before the rest is decoded, which takes memory and time in proportion to them
    if any(own not in (None, size) for own, size in zip((model.obs_size, model.act_size), sizes, strict=True)):
        raise HandshakeError(
            "the engine's sizes are not the model's", fault="engine", expected=f"OBS={model.obs_size};"
            f"ACT={model.act_size}", got=line, cure="serve the model that was trained for this game",
        )  # fmt: skip
    spec = decode_handshake(line)
    require_lines(spec)
    if spec.num_envs > max_rows:
        raise HandshakeError(
            "more envs than the server answers at once", fault="engine", field="ENV_COUNT",
            expected=f"at most {max_rows}", got=spec.num_envs, cure="use several connections, or raise --max-batch",
        )  # fmt: skip
    if spec.groups:
        raise HandshakeError(
            "the server answers envs, not their agents", fault="engine", field="AGENTS",
            expected="no AGENTS", got=line,
            cure="count each agent of the model's group as an env, and serve each group's model on a port of its own",
        )  # fmt: skip
    if model.metadata is not None and b"ACT_SPACE" in line.upper():
        mine = _choices(model.metadata.action_space)
        if (spec.action_spec.kind, spec.action_spec.counts, spec.action_spec.starts) != mine:
            first = f" from {mine[2]}" if mine[2] else ""
            raise HandshakeError(
                "the engine's action space is not the model's", fault="engine", field="ACT_SPACE",
                expected=f"{mine[0].value} {mine[1] or ''}{first}".strip(), got=line,
            )  # fmt: skip
    kept = spec.features & {"MASK"} if model.takes_masks else frozenset[str]()
    return replace(spec, env_type=EnvType.MULTI if spec.num_envs > 1 else EnvType.SINGLE, features=kept)


def write_refusal(error: UeRlError) -> bytes:
    """The last line that a dropped engine gets: `ERROR=` and a sentence in printable ASCII."""
    text = f"{type(error).__name__}: {error}".encode("ascii", "backslashreplace")[:600]
    return b"ERROR=" + bytes(b if 0x20 <= b < 0x7F and b not in b";|" else 0x20 for b in text) + b"\n"


def _choices(space: dict[str, Any]) -> tuple[ActionKind, tuple[int, ...], tuple[int, ...]]:
    """Kind, counts and starts of a policy file's action space, as ActionSpec has them."""
    kind = space["type"]
    if kind == "Discrete":
        start = int(space.get("start", 0))
        return ActionKind.DISCRETE, (int(space["n"]),), (start,) if start else ()
    if kind == "MultiDiscrete":
        counts = tuple(np.ravel(space["nvec"]).astype(int).tolist())
        return ActionKind.MULTI_DISCRETE, counts, tuple(int(start) for start in space.get("start", ()))
    if kind == "MultiBinary":
        return ActionKind.MULTI_BINARY, (2,) * math.prod(space["shape"]), ()
    if kind in ("Dict", "Tuple"):
        parts = [(part, _choices(part)) for part in space["spaces"].values()]
        counts = tuple(n for part, (_, found, _) in parts for n in found or (0,) * space_size(part))
        return ActionKind.HYBRID, counts, ()
    return ActionKind.BOX, (), ()
