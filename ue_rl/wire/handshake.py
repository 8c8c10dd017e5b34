"""The handshake line: EnvSpec <-> `CONFIG:OBS=..;ACT=..;..`. Text only, no I/O. Source: docs/protocol.md, section 3."""

from __future__ import annotations

import re
from enum import Enum
from typing import TypeVar

import numpy as np

from ue_rl.errors import ConfigurationError, HandshakeError
from ue_rl.spec import PROTOCOL_VERSION, ActionKind, ActionSpec, Channel, EnvSpec, EnvType, ImageSpec
from ue_rl.wire.kernels_pure import float32_text

MAX_HANDSHAKE = 65_536

_KNOWN = frozenset(
    {"OBS", "ACT", "ENV_TYPE", "ENV_COUNT", "VERSION", "CHANNEL", "ACT_SPACE", "OBS_SPACE", "FEATURES", "IMAGE", "SHM"}
)
_SPACE = re.compile(r"\s*([A-Za-z_]+)\s*\(([^()]*)\)\s*")
_CURE = "check the engine's handshake against docs/protocol.md, section 3"


def encode_handshake(spec: EnvSpec) -> bytes:
    """The CONFIG line of `spec`, with its newline. Extension keys appear only where they say something.

    Raises:
        ConfigurationError: images with version 0, which has no word for them.
    """
    if spec.image is not None and not spec.version:
        raise ConfigurationError(
            "a handshake without a version cannot say that there are images", field="IMAGE",
            expected=f"VERSION={PROTOCOL_VERSION}", got=f"VERSION={spec.version}",
        )  # fmt: skip
    fields = [f"OBS={spec.obs_size}", f"ACT={spec.act_size}", f"ENV_TYPE={spec.env_type.value}"]
    if spec.env_type is EnvType.MULTI:
        fields.append(f"ENV_COUNT={spec.num_envs}")
    if spec.version:
        fields.append(f"VERSION={spec.version}")
        if spec.channel is not None:
            fields.append(f"CHANNEL={spec.channel.value}")
        if spec.action_spec != ActionSpec.box(spec.act_size):
            fields.append(f"ACT_SPACE={_space_text(spec.action_spec)}")
        if spec.obs_low:
            fields.append(f"OBS_SPACE=BOX({_ranges_text(spec.obs_low, spec.obs_high)})")
        if spec.features:
            fields.append(f"FEATURES={','.join(sorted(spec.features))}")
        if spec.image is not None:
            fields.append(f"IMAGE={spec.image.text()}")
        if spec.shm:
            fields.append(f"SHM={spec.shm}")
    return f"CONFIG:{';'.join(fields)}\n".encode()


def decode_handshake(line: bytes | bytearray | memoryview) -> EnvSpec:
    """The EnvSpec of a CONFIG line, with or without its newline.

    Raises:
        HandshakeError: not a CONFIG line, a required key missing, a repeated known key, a value
            that is invalid, or a protocol version newer than this library's.
    """
    raw = bytes(line)
    keys = _keys(raw)
    try:
        return _spec_of(keys)
    except ConfigurationError as error:
        raise HandshakeError(
            f"invalid handshake: {error.message}", fault="engine", field=error.field,
            expected=error.expected, got=raw, cure=_CURE,
        ) from error  # fmt: skip


def handshake_sizes(line: bytes | bytearray | memoryview) -> tuple[int, int]:
    """OBS and ACT of a CONFIG line and nothing else: cheap however large they are, to be compared before decoding.

    Raises:
        HandshakeError: not a CONFIG line, or OBS or ACT missing, given twice or not an integer.
    """
    keys = _keys(bytes(line))
    return _integer(keys, "OBS"), _integer(keys, "ACT")


def _keys(raw: bytes) -> dict[str, str]:
    """The fields of a CONFIG line; ASCII only, since other spaces and digits would be read differently elsewhere."""
    text = raw.decode("ascii", "backslashreplace").strip()
    if not raw.isascii() or text[:7].upper() != "CONFIG:":
        raise HandshakeError(
            "the first line is not a handshake", fault="engine", expected="CONFIG:OBS=..;ACT=..;.. in ASCII", got=raw,
            cure="is this port the game's, and did the game start its bridge in training mode?",
        )  # fmt: skip
    keys: dict[str, str] = {}
    for part in filter(str.strip, text[7:].split(";")):
        key, equals, value = part.partition("=")
        key = key.strip().upper()
        if not equals or (key in keys and key in _KNOWN):
            what = "a handshake key comes twice" if equals else "a handshake field has no value"
            raise HandshakeError(what, fault="engine", field=key, got=raw, cure=_CURE)
        keys[key] = value.strip()
    return keys


def _spec_of(keys: dict[str, str]) -> EnvSpec:
    obs_size, act_size = _integer(keys, "OBS"), _integer(keys, "ACT")
    env_type = _choice(keys, "ENV_TYPE", EnvType, EnvType.RLBASE)
    num_envs = _integer(keys, "ENV_COUNT", None if env_type is EnvType.MULTI else 1)
    version = _integer(keys, "VERSION", 0)
    if version > PROTOCOL_VERSION:
        raise HandshakeError(
            "the engine speaks a newer protocol", fault="caller", field="VERSION",
            expected=f"at most {PROTOCOL_VERSION}", got=version, cure="upgrade ue_rl",
        )  # fmt: skip
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    if "OBS_SPACE" in keys:
        kind, body = _space_parts("OBS_SPACE", keys["OBS_SPACE"])
        if kind is not ActionKind.BOX:
            raise _bad("OBS_SPACE", "BOX(low:high,..)", keys["OBS_SPACE"])
        low, high = _ranges("OBS_SPACE", body)
    features = frozenset(name.strip().upper() for name in keys.get("FEATURES", "").split(",") if name.strip())
    return EnvSpec(
        obs_size=obs_size,
        act_size=act_size,
        env_type=env_type,
        num_envs=num_envs,
        action=_action(keys["ACT_SPACE"], act_size) if "ACT_SPACE" in keys else None,
        obs_low=low,
        obs_high=high,
        version=version,
        channel=_choice(keys, "CHANNEL", Channel, Channel.ANY) if "CHANNEL" in keys else None,
        features=features,
        image=ImageSpec.parse(keys["IMAGE"]) if "IMAGE" in keys else None,
        shm=keys.get("SHM") or None,
    )


def _bad(key: str, expected: str, got: str | None) -> HandshakeError:
    return HandshakeError(
        "a handshake value cannot be read" if got is not None else "a required handshake key is missing",
        fault="engine", field=key, expected=expected, got=got, cure=_CURE,
    )  # fmt: skip


def _integer(keys: dict[str, str], key: str, default: int | None = None) -> int:
    text = keys.get(key)
    if text is None:
        if default is None:
            raise _bad(key, "an integer", None)
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise _bad(key, "an integer", text)
    return int(text)


_E = TypeVar("_E", bound=Enum)


def _choice(keys: dict[str, str], key: str, kind: type[_E], default: _E) -> _E:
    text = keys.get(key)
    if text is None:
        return default
    try:
        return kind(text.upper())
    except ValueError:
        raise _bad(key, " or ".join(kind.__members__), text) from None


def _space_parts(key: str, text: str) -> tuple[ActionKind, list[str]]:
    match = _SPACE.fullmatch(text)
    name = match.group(1).upper() if match else ""
    if match is None or name not in ActionKind.__members__:
        raise _bad(key, "BOX(..), DISCRETE(n), MULTI_DISCRETE(n,..) or MULTI_BINARY(n)", text)
    return ActionKind(name), [part.strip() for part in match.group(2).split(",")]


def _action(text: str, act_size: int) -> ActionSpec:
    kind, body = _space_parts("ACT_SPACE", text)
    if kind is ActionKind.BOX:
        low, high = _ranges("ACT_SPACE", body)
        return ActionSpec(kind, low=low, high=high, size=act_size)
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in body):
        raise _bad("ACT_SPACE", "integers", text)
    counts = tuple(int(part) for part in body)
    if kind is ActionKind.MULTI_BINARY:
        if len(counts) != 1 or counts[0] != act_size:
            raise _bad("ACT_SPACE", f"MULTI_BINARY({act_size}), as ACT says", text)
        return ActionSpec.multi_binary(act_size)
    return ActionSpec(kind, counts=counts)


def _ranges(key: str, body: list[str]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    pairs = []
    for part in body:
        low, colon, high = part.partition(":")
        try:
            if not colon:
                raise ValueError
            pairs.append((float(np.float32(float(low))), float(np.float32(float(high)))))
        except ValueError:
            raise _bad(key, "low:high", part) from None
    return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)


def _bound_text(value: float) -> str:
    if np.isinf(value):
        return "inf" if value > 0 else "-inf"
    return float32_text(np.float32(value))


def _ranges_text(low: tuple[float, ...], high: tuple[float, ...]) -> str:
    pairs = list(zip(low, high, strict=True))
    if len(set(pairs)) == 1:
        del pairs[1:]
    return ",".join(f"{_bound_text(lo)}:{_bound_text(hi)}" for lo, hi in pairs)


def _space_text(action: ActionSpec) -> str:
    if action.kind is ActionKind.BOX:
        return f"BOX({_ranges_text(action.low, action.high)})"
    if action.kind is ActionKind.MULTI_BINARY:
        return f"MULTI_BINARY({action.size})"
    return f"{action.kind.value}({','.join(map(str, action.counts))})"
