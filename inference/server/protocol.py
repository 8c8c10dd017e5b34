"""The policy server's handshake and its last line, without I/O; docs/policy-server.md.

The lines between the two are read and written by ue_rl/protocol/text/codec.py.
"""

from __future__ import annotations

from dataclasses import replace

from ue_rl.inference.interface import with_engine
from ue_rl.inference.runtime.onnx import OnnxInference
from ue_rl.protocol.spec import EnvSpec, EnvType
from ue_rl.protocol.text.handshake import decode_handshake, handshake_sizes
from ue_rl.protocol.text.limits import require_lines
from ue_rl.system.errors import HandshakeError, UeRlError


def read_hello(line: bytes, model: OnnxInference, max_rows: int) -> EnvSpec:
    """The engine's sizes, which are known to be the model's; what concerns training only is left out.

    Raises:
        HandshakeError: not a CONFIG line; other sizes than the model's; an ACT_SPACE or OBS_SPACE of other
            numbers; the same ones in another order, as far as they have names; no masks for a model that needs them;
        more than `max_rows` envs.
    """
    sizes = handshake_sizes(line)  # before the rest is decoded, which takes memory and time in proportion to them
    if any(own not in (None, size) for own, size in zip((model.obs_size, model.act_size), sizes, strict=True)):
        what = "the engine's sizes are not the model's"
        cure = "serve the model that was trained for this game"
        raise HandshakeError(what, expected=f"OBS={model.obs_size};ACT={model.act_size}", got=line, cure=cure)
    spec = decode_handshake(line)
    require_lines(spec)
    if spec.num_envs > max_rows:
        what = "more envs than the server answers at once"
        cure = "use several connections, or raise --max-batch"
        raise HandshakeError(what, field="ENV_COUNT", expected=f"at most {max_rows}", got=spec.num_envs, cure=cure)
    if spec.groups:
        raise HandshakeError(
            "the server answers envs, not their agents",
            field="AGENTS",
            expected="no AGENTS",
            got=line,
            cure="count each agent of the model's group as an env, and serve each group's model on a port of its own",
        )
    names = getattr(model, "number_names", ((), ()))  # a model of one's own need not say any
    found = with_engine(spec, *model.spaces, names, says_actions=b"ACT_SPACE" in line.upper())
    if found is not None:  # what the model has is expected of the engine
        what = "the engine's spaces are not the model's"
        cure = "serve the model that was trained for this game"
        raise HandshakeError(what, field=found.field, expected=found.got, got=found.expected, cure=cure)
    if model.takes_masks and model.needs_masks and not spec.mask_size:
        raise HandshakeError(
            "the model must be told which choices are legal, and the engine does not say it",
            field="FEATURES",
            expected="ACT_SPACE and FEATURES=MASK, and MASK in each row with a choice that is not legal",
            got=line,
            cure="send the masks of the training, or serve a file exported with `ue-rl export --masks optional`",
        )
    if model.takes_masks:
        kept = spec.features & {"MASK"}
    else:
        kept = frozenset[str]()
    if spec.num_envs > 1:
        env_type = EnvType.MULTI
    else:
        env_type = EnvType.SINGLE
    return replace(spec, env_type=env_type, features=kept)


def write_refusal(error: UeRlError) -> bytes:
    """The last line that a dropped engine gets: `ERROR=` and a sentence in printable ASCII."""
    text = f"{type(error).__name__}: {error}".encode("ascii", "backslashreplace")[:600]
    return b"ERROR=" + text.translate(bytes.maketrans(b";|\n", b"   ")) + b"\n"  # the rest is printable already
