"""The handshake line: EnvSpec <-> `CONFIG:OBS=..;ACT=..;..`. Text only, no I/O. Source: docs/protocol.md, section 3."""

from __future__ import annotations

import difflib
import functools
import re
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from ue_rl.protocol.spaces.forms import FORMS
from ue_rl.protocol.spaces.tree import Leaf, Space, box
from ue_rl.protocol.spec import (
    DEFAULT_FPS,
    FEATURES,
    PROTOCOL_VERSION,
    ActionKind,
    ActionSpec,
    AgentGroup,
    Channel,
    EnvSpec,
    EnvType,
    ImageSpec,
    Parameter,
)
from ue_rl.protocol.text.notices import ended_by
from ue_rl.protocol.text.settings import number_text
from ue_rl.protocol.text.space_text import bound_text, name_text, read_name, read_space, space_text
from ue_rl.system.errors import ConfigurationError, HandshakeError, printable, shorten

MAX_HANDSHAKE = 65_536
MAX_GROUP_TEXT = 262_144  # what groups that differ say of themselves, the keys that they share counted for each
_NUMBERS_PER_BYTE = 32  # in that sum: a group's OBS and ACT cost something too
_MOST_ADVICE = 10

_ONE_AGENT = ("OBS", "ACT", "ACT_SPACE", "OBS_SPACE", "OBS_NAMES", "ACT_NAMES")  # may stand for one group: OBS.goalie
_SAID_ONCE = ("ENV_TYPE", "ENV_COUNT", "VERSION", "CHANNEL", "FEATURES", "IMAGE", "SHM", "PARAMS", "AGENTS")
_KNOWN = frozenset((*_ONE_AGENT, *_SAID_ONCE, "RENDER_FPS"))
KNOWN_KEYS = tuple(sorted(_KNOWN))
_BOX = re.compile(r"\s*BOX\s*\([^()]*\)\s*", re.IGNORECASE)  # without a shape: the numbers are those of OBS or ACT
_FORMS = f"{', '.join(form.example for form in FORMS.values() if form.in_row)}, DICT(name:..,..) or TUPLE(..,..)"
_CURE = "check the engine's handshake against docs/protocol.md, section 3"


def encode_handshake(spec: EnvSpec) -> bytes:
    """The CONFIG line of `spec`, with its newline. Extension keys appear only where they say something.

    Raises:
        ConfigurationError: images with version 0, which has no word for them; a line longer than MAX_HANDSHAKE.
    """
    if spec.image is not None and not spec.version:
        raise ConfigurationError(
            "a handshake without a version cannot say that there are images",
            field="IMAGE",
            expected=f"VERSION={PROTOCOL_VERSION}",
            got=f"VERSION={spec.version}",
        )
    fields = [f"OBS={spec.obs_size}", f"ACT={spec.act_size}", f"ENV_TYPE={spec.env_type.value}"]
    if spec.env_type is EnvType.MULTI:
        fields.append(f"ENV_COUNT={spec.num_envs}")
    if spec.version:
        fields.append(f"VERSION={spec.version}")
        if spec.channel is not None:
            fields.append(f"CHANNEL={spec.channel.value}")
        fields += _space_fields(spec)
        if spec.features:
            fields.append(f"FEATURES={','.join(sorted(spec.features))}")
        if spec.image is not None:
            fields.append(f"IMAGE={spec.image.text()}")
        fields += _name_fields(spec)
        if spec.parameters:
            fields.append(f"PARAMS={','.join(map(_parameter_text, spec.parameters))}")
        if spec.render_fps != DEFAULT_FPS:
            fields.append(f"RENDER_FPS={spec.render_fps}")
        if spec.groups:
            fields += _group_fields(spec)
        if spec.shm:
            fields.append(f"SHM={spec.shm}")
    line = f"CONFIG:{';'.join(fields)}\n".encode("ascii")
    if len(line) > MAX_HANDSHAKE:
        raise ConfigurationError(
            "the handshake is longer than a reader takes",
            field="CONFIG",
            expected=f"at most {MAX_HANDSHAKE} bytes",
            got=len(line),
            cure="say less: leave OBS_NAMES out, or give the numbers of a BOX the same bounds",
        )
    return line


def decode_handshake(line: bytes | bytearray | memoryview) -> EnvSpec:
    """The EnvSpec of a CONFIG line, with or without its newline.

    Raises:
        HandshakeError: not a CONFIG line, a required key missing, a repeated known key, a value
            that is invalid, or a protocol version newer than this library's.
        EngineDisconnected: the engine says instead why it serves nobody (ERROR).
    """
    raw = bytes(line)
    keys = _keys(raw)
    try:
        return _spec_of(keys, raw.decode("ascii").strip())
    except ConfigurationError as error:
        raise HandshakeError(
            f"invalid handshake: {error.message}", field=error.field, expected=error.expected, got=raw, cure=_CURE
        ) from error


def handshake_sizes(line: bytes | bytearray | memoryview) -> tuple[int, int]:
    """OBS and ACT of a CONFIG line and nothing else: cheap however large they are, to be compared before decoding.

    Raises:
        HandshakeError: not a CONFIG line, or OBS or ACT missing, given twice or not an integer.
    """
    keys = _keys(bytes(line))
    return _integer(keys, "OBS"), _integer(keys, "ACT")


def unknown_words(spec: EnvSpec) -> list[str]:
    """One sentence for each key and FEATURE of a handshake that nobody here knows, with what may have been meant."""
    given = [("key", word, _KNOWN) for word in spec.unknown]
    given += [("word in FEATURES", word, FEATURES) for word in sorted(spec.features - FEATURES)]
    sentences = []
    for kind, word, known in given[:_MOST_ADVICE]:
        name, dot, group = word.partition(".")
        near = []
        if name not in known:
            near = difflib.get_close_matches(name[:40], sorted(known), 1)
        meant = ""
        if near:
            meant = f": did you mean {near[0]}{dot}{group}?"
        if name in known:
            what = f"a {kind} of a group that AGENTS does not name"
        else:
            what = f"an unknown {kind}"
        sentences.append(printable(f"the engine's handshake has {what}, which is ignored: {shorten(word)}{meant}"))
    return sentences


def _keys(raw: bytes) -> dict[str, str]:
    """The fields of a CONFIG line; ASCII only, since other spaces and digits would be read differently elsewhere."""
    text = raw.decode("ascii", "backslashreplace").strip()
    if not raw.isascii() or text[:7].upper() != "CONFIG:":
        if ended := ended_by(raw):
            raise ended
        raise HandshakeError(
            "the first line is not a handshake",
            expected="CONFIG:OBS=..;ACT=..;.. in ASCII",
            got=raw,
            cure="is this port the game's, and did the game start its bridge in training mode?",
        )
    keys: dict[str, str] = {}
    for part in filter(str.strip, text[7:].split(";")):
        key, equals, value = part.partition("=")
        key = key.strip().upper()
        if not equals or (key in keys and key.partition(".")[0] in _KNOWN):
            what = "a handshake field has no value"
            if equals:
                what = "a handshake key comes twice"
            raise HandshakeError(what, field=key, got=raw, cure=_CURE)
        keys[key] = value.strip()
    return keys


def _spec_of(keys: dict[str, str], text: str) -> EnvSpec:
    obs_size = _integer(keys, "OBS")
    act_size = _integer(keys, "ACT")
    env_type = _choice(keys, "ENV_TYPE", EnvType, EnvType.RLBASE)
    if env_type is EnvType.MULTI:
        default = None
    else:
        default = 1
    num_envs = _integer(keys, "ENV_COUNT", default)
    version = _integer(keys, "VERSION", 0)
    if version > PROTOCOL_VERSION:
        raise HandshakeError(
            "the engine speaks a newer protocol",
            fault="caller",
            field="VERSION",
            expected=f"at most {PROTOCOL_VERSION}",
            got=version,
            cure="upgrade ue_rl",
        )
    features = frozenset(name.strip().upper() for name in keys.get("FEATURES", "").split(",") if name.strip())
    groups = _groups(keys) if "AGENTS" in keys else ()
    if "CHANNEL" not in keys:
        channel = None
    else:
        channel = _choice(keys, "CHANNEL", Channel, Channel.ANY)
    if "IMAGE" not in keys:
        image = None
    else:
        image = ImageSpec.parse(keys["IMAGE"])
    shm = keys.get("SHM")
    if not shm:
        shm = None
    return EnvSpec(
        obs_size=obs_size,
        act_size=act_size,
        env_type=env_type,
        num_envs=num_envs,
        version=version,
        channel=channel,
        features=features,
        image=image,
        shm=shm,
        parameters=_parameters(keys["PARAMS"]) if "PARAMS" in keys else (),
        render_fps=_integer(keys, "RENDER_FPS", DEFAULT_FPS),
        groups=groups,
        unknown=tuple(sorted(set(keys) - _KNOWN - _of_groups(groups))),
        text=text,
        **({} if groups else _spaces(keys, obs_size, act_size)),
    )


def _spaces(keys: dict[str, str], obs_size: int, act_size: int) -> dict[str, Any]:
    """Of one env, or of one agent: action, observation space and names, as arguments of EnvSpec."""
    if "ACT_SPACE" not in keys:
        action = None
    else:
        action = _action(keys["ACT_SPACE"], act_size)
    spaces: dict[str, Any] = {"action": action}
    if "OBS_SPACE" in keys:
        tree = _tree("OBS_SPACE", keys["OBS_SPACE"])
        text = keys["OBS_SPACE"]
        if isinstance(tree, Leaf) and _BOX.fullmatch(text):
            spaces["obs_low"], spaces["obs_high"] = _ranges(tree)
        else:
            spaces["obs_space"] = tree
    for key, name in (("OBS_NAMES", "obs_names"), ("ACT_NAMES", "act_names")):
        if key in keys:
            spaces[name] = tuple(_named(key, text) for text in keys[key].split(","))
    return spaces


def _groups(keys: dict[str, str]) -> tuple[AgentGroup, ...]:
    """The groups of AGENTS; what a group does not say for itself is what the handshake says without a group's name."""
    groups = []
    kinds: dict[tuple[str | None, ...], EnvSpec] = {}  # one for the groups that say the same: a short line costs little
    said = 0
    for part in keys["AGENTS"].split(","):
        text, colon, count = part.partition(":")
        if not colon or not (count.strip().isdigit() and count.isascii() and len(count) < 10):
            raise _bad("AGENTS", "name:count,..", part)
        name = _named("AGENTS", text)
        own = tuple(keys.get(f"{key}.{text.strip().upper()}", keys.get(key)) for key in _ONE_AGENT)
        try:
            if own not in kinds:
                given = {key: value for key, value in zip(_ONE_AGENT, own, strict=True) if value is not None}
                sizes = _integer(given, "OBS"), _integer(given, "ACT")
                said += sum(map(len, given.values())) + sum(sizes) // _NUMBERS_PER_BYTE
                if kinds and said > MAX_GROUP_TEXT:
                    raise _bad("AGENTS", f"groups that differ to say {MAX_GROUP_TEXT} bytes at most in all", name)
                kinds[own] = EnvSpec(*sizes, **_spaces(given, *sizes))
            groups.append(AgentGroup(name, int(count), kinds[own]))
        except (HandshakeError, ConfigurationError) as error:
            error.field = f"{error.field}, AGENTS {text.strip()}"
            raise
    return tuple(groups)


def _of_groups(groups: tuple[AgentGroup, ...]) -> set[str]:
    return {f"{key}.{name_text(group.name).upper()}" for key in _ONE_AGENT for group in groups}


def _parameters(text: str) -> tuple[Parameter, ...]:
    parameters = []
    for part in text.split(","):
        name, *numbers = part.split(":")
        try:
            if len(numbers) not in (1, 3) or "_" in "".join(numbers):
                raise ValueError
            parameters.append(Parameter(_named("PARAMS", name), *map(float, numbers)))
        except ValueError:
            raise _bad("PARAMS", "name:value or name:value:low:high, ..", part) from None
    return tuple(parameters)


def _named(key: str, text: str) -> str:
    try:
        return read_name(text)
    except ConfigurationError as error:
        raise _bad(key, error.message, text) from error


@functools.lru_cache(16)  # groups share texts
def _tree(key: str, text: str) -> Space:
    try:
        return read_space(text)
    except ConfigurationError as error:
        expected = error.expected
        if not expected:
            expected = _FORMS
        got = error.got
        if not got:
            got = text
        raise HandshakeError(error.message, field=key, expected=expected, got=got, cure=_CURE) from error


def _bad(key: str, expected: str, got: str | None) -> HandshakeError:
    problem = "a required handshake key is missing"
    if got is not None:
        problem = "a handshake value cannot be read"
    return HandshakeError(
        problem,
        field=key,
        expected=expected,
        got=got,
        cure=_CURE,
    )


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


@functools.lru_cache(16)  # groups share texts
def _action(text: str, act_size: int) -> ActionSpec:
    tree = _tree("ACT_SPACE", text)
    if isinstance(tree, Leaf) and _BOX.fullmatch(text):
        low, high = _ranges(tree)
        return ActionSpec(ActionKind.BOX, low, high, size=act_size)
    if tree.size != act_size:
        raise _bad("ACT_SPACE", f"{act_size} numbers, as ACT says", text)
    return ActionSpec.of(tree)


def _ranges(box: Leaf) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(low, high) of each range that the text has: one for all numbers, or one for each."""
    times = box.size // len(box.low)  # equal ones are kept as one
    return box.low * times, box.high * times


# -- writing


def _space_fields(spec: EnvSpec, suffix: str = "") -> list[str]:
    """ACT_SPACE and OBS_SPACE where they say something. `suffix`: of a group's keys."""
    fields = []
    if spec.action_spec != ActionSpec.box(spec.act_size):
        action = spec.action_spec
        plain = action.space is None and action.kind is ActionKind.BOX
        fields.append(f"ACT_SPACE{suffix}={_box_text(action.low, action.high) if plain else space_text(action.tree)}")
    if spec.obs_low:
        fields.append(f"OBS_SPACE{suffix}={_box_text(spec.obs_low, spec.obs_high)}")
    elif spec.obs_space is not None:
        fields.append(f"OBS_SPACE{suffix}={space_text(spec.obs_space)}")
    return fields


def _name_fields(spec: EnvSpec, suffix: str = "") -> list[str]:
    named = (("OBS_NAMES", spec.obs_names), ("ACT_NAMES", spec.act_names))
    return [f"{key}{suffix}={','.join(map(name_text, names))}" for key, names in named if names]


def _group_fields(spec: EnvSpec) -> list[str]:
    """AGENTS, and what its groups do not have in common."""
    groups = [(name_text(group.name), group) for group in spec.groups]
    fields = [f"AGENTS={','.join(f'{name}:{group.count}' for name, group in groups)}"]
    differ = any(group.spec != spec.groups[0].spec for group in spec.groups)
    for name, group in groups:
        one = group.spec
        sizes = (("OBS", one.obs_size, spec.obs_size), ("ACT", one.act_size, spec.act_size))
        fields += [f"{key}.{name}={own}" for key, own, common in sizes if own != common]
        if differ:
            fields += [*_space_fields(one, f".{name}"), *_name_fields(one, f".{name}")]
    return fields


def _parameter_text(parameter: Parameter) -> str:
    bounds = () if np.isinf([parameter.low, parameter.high]).all() else (parameter.low, parameter.high)
    return ":".join([name_text(parameter.name), *map(_parameter_number, (parameter.value, *bounds))])


def _parameter_number(value: float) -> str:
    if np.isfinite(value):
        return number_text(value)
    return bound_text(value)


def _box_text(low: tuple[float, ...], high: tuple[float, ...]) -> str:
    """Without a shape."""
    return space_text(box((len(low),), low, high)).partition("[")[0]
