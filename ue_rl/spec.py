"""What engine and trainer agree on in the handshake: EnvSpec, ActionSpec, ImageSpec, AgentGroup, Parameter.

Plain, frozen, checked when made; no gymnasium here (ue_rl/envs/spaces.py turns these into spaces), no text
(ue_rl/wire/handshake.py reads and writes the CONFIG line). Sources: docs/protocol.md, section "Handshake".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.errors import ConfigurationError
from ue_rl.space_tree import Leaf, LeafKind, Space, bounds, choices, leaves

PROTOCOL_VERSION = 1
MAX_ENVS = 65_536
MAX_NUMBERS = 16_777_216
MAX_LISTED = 65_536  # numbers with the same bounds, listed one by one all the same: a short handshake must cost little
MAX_SWITCHES = 262_144  # of a MULTI_BINARY, for the same reason
MAX_SIDE = 65_535
MAX_BYTES = 2**32  # of all envs' images in one step

_SIZE = r"\s*(\d{1,5})\s*"
_IMAGE = re.compile(rf"\s*(HWC|CHW)\s*\({_SIZE},{_SIZE},{_SIZE}\)\s*(?:,\s*(ONLY)\s*)?", re.I | re.A)
MAX_AGENTS = 4096  # of one env
# What an engine can do beyond the base; docs/protocol.md, section 3, says what each one means.
FEATURES = frozenset(
    {"TRUNC", "SEED", "OPTIONS", "INFO", "MASK", "ERROR", "TIME_SCALE", "PAUSE", "RENDER", "GOAL_REWARD"}
)


class EnvType(str, Enum):
    """The ENV_TYPE of the handshake: how many envs, and which message form."""

    MULTI = "MULTI"
    SINGLE = "SINGLE"
    RLBASE = "RLBASE"


class Channel(str, Enum):
    """The CHANNEL of the handshake: which wirings the engine serves."""

    SHARED = "SHARED"
    PER_ENV = "PER_ENV"
    ANY = "ANY"


class ActionKind(str, Enum):
    """The kinds of action space that the wire can name; HYBRID is a DICT or TUPLE of the others."""

    BOX = "BOX"
    DISCRETE = "DISCRETE"
    MULTI_DISCRETE = "MULTI_DISCRETE"
    MULTI_BINARY = "MULTI_BINARY"
    HYBRID = "HYBRID"


@dataclass(frozen=True)
class ActionSpec:
    """One env's action space.

    kind BOX: `low` and `high`, one float32 each per action number; where more than MAX_LISTED numbers have the same
        bounds, one for all of them.
    kind DISCRETE / MULTI_DISCRETE: `counts`, the number of choices per action number (0-based on the wire).
    kind MULTI_BINARY: `counts` is (2,) * n.
    kind HYBRID: `counts` has 0 where a number is of a BOX; `bounds` are those of all numbers.

    `size` is how many numbers one action has on the wire (the ACT of the handshake); found where it is not given.
    `starts` are the lowest choices, () where all are 0. `space` is the whole tree where the fields above do not say
    everything (a HYBRID, an array that is not one row, integers), else None; `ActionSpec.of` makes a spec of a tree.
    """

    kind: ActionKind
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    size: int = -1
    starts: tuple[int, ...] = ()
    space: Space | None = None

    def __post_init__(self) -> None:
        if self.kind is ActionKind.HYBRID:
            if self.space is None or self.space.size != len(self.counts) or not self.counts:
                raise _invalid("ACT_SPACE", "a HYBRID is made by ActionSpec.of(space)")
            object.__setattr__(self, "size", len(self.counts))
            return
        if self.kind is ActionKind.BOX:
            size = len(self.low) if self.size < 0 else self.size
            if not self.low or not size:
                raise _invalid("ACT_SPACE", "a BOX action space needs at least one number")
            _set_bounds(self, "ACT", size)
        else:
            size = len(self.counts)
            if not self.counts or min(self.counts) < 1:
                raise _invalid("ACT_SPACE", "an action space needs one choice or more per number", got=self.counts)
            if self.kind is ActionKind.DISCRETE and size != 1:
                raise _invalid("ACT_SPACE", "DISCRETE has one count", got=self.counts)
            if self.kind is ActionKind.MULTI_BINARY and self.counts.count(2) != size:
                raise _invalid("ACT_SPACE", "MULTI_BINARY has two choices each")
            if self.starts and len(self.starts) != size:
                raise _invalid("ACT_SPACE", "there is one lowest choice for each number", size, len(self.starts))
            if max(self.counts) > 2**24:
                raise _invalid("ACT_SPACE", "more than 2**24 choices are not exact in float32")
        object.__setattr__(self, "size", size)

    @property
    def bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(low, high) of a BOX or HYBRID, each float32[size]."""
        if self.kind is ActionKind.HYBRID and self.space is not None:
            return bounds(self.space)
        return np.full(self.size, self.low, np.float32), np.full(self.size, self.high, np.float32)

    @property
    def mask_size(self) -> int:
        """Flags of one action mask: one for each choice of each number; 0 for a BOX."""
        return sum(self.counts)

    @classmethod
    def of(cls, space: Space) -> ActionSpec:
        """The action space that a tree describes.

        Raises:
            ConfigurationError: it has no numbers, an image, or more choices than allowed.
        """
        if any(leaf.kind is LeafKind.IMAGE for _, leaf, _ in leaves(space)) or not space.size:
            raise _invalid("ACT_SPACE", "an action has one number or more, and no image")
        if not isinstance(space, Leaf):
            if space.size > MAX_SWITCHES:
                raise _invalid("ACT_SPACE", "too many numbers in a DICT or TUPLE", f"at most {MAX_SWITCHES}")
            return cls(ActionKind.HYBRID, counts=tuple(choices(space).tolist()), space=space)
        kind, plain = ActionKind(space.kind.value), len(space.shape) == 1
        if kind is ActionKind.BOX:
            plain = plain and space.dtype == "float32"
            return cls(kind, space.low, space.high, size=space.size, space=None if plain else space)
        if kind is ActionKind.MULTI_BINARY:
            return cls(kind, counts=cls.multi_binary(space.size).counts, space=None if plain else space)
        plain = plain or kind is ActionKind.DISCRETE
        return cls(kind, counts=space.counts, starts=space.starts, space=None if plain else space)

    @classmethod
    def box(cls, size: int, low: float = -1.0, high: float = 1.0) -> ActionSpec:
        """A Box of `size` numbers with the same bounds for all."""
        return cls(ActionKind.BOX, low=(float(low),), high=(float(high),), size=max(size, 0))

    @classmethod
    def discrete(cls, n: int) -> ActionSpec:
        """One choice out of `n`."""
        return cls(ActionKind.DISCRETE, counts=(n,))

    @classmethod
    def multi_discrete(cls, counts: tuple[int, ...]) -> ActionSpec:
        """Several choices at once."""
        return cls(ActionKind.MULTI_DISCRETE, counts=tuple(counts))

    @classmethod
    def multi_binary(cls, n: int) -> ActionSpec:
        """`n` switches, at most MAX_SWITCHES."""
        if n > MAX_SWITCHES:
            raise _invalid("ACT_SPACE", "too many switches", f"at most {MAX_SWITCHES}", n)
        return cls(ActionKind.MULTI_BINARY, counts=(2,) * n)


@dataclass(frozen=True)
class ImageSpec:
    """One env's image, uint8, beside its numbers or instead of them. Only shared memory carries images.

    In the handshake: `IMAGE=HWC(84,84,3)` or `IMAGE=CHW(3,84,84)`, with `,ONLY` behind it where the image is the
    whole observation.

    Args:
        height, width, channels: in pixels.
        channels_first: the array is [channels, height, width], as torch's convolutions have it; otherwise
            [height, width, channels], as cameras give it.
        only: the image is the whole observation; otherwise it stands beside the numbers as one key of a Dict.

    Raises:
        ConfigurationError: an invalid size.
    """

    height: int
    width: int
    channels: int = 3
    channels_first: bool = False
    only: bool = False

    def __post_init__(self) -> None:
        for n in self.size:
            if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or not 1 <= n <= MAX_SIDE:
                raise _invalid("IMAGE", "invalid image size", f"integers from 1 to {MAX_SIDE}", self.size)

    @property
    def size(self) -> tuple[int, int, int]:
        """(height, width, channels)."""
        return self.height, self.width, self.channels

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one env's array."""
        return (self.channels, self.height, self.width) if self.channels_first else self.size

    @property
    def nbytes(self) -> int:
        """Of one env's image."""
        return int(self.height) * int(self.width) * int(self.channels)

    def fields(self) -> dict[str, Any]:
        """The header's fields beside the sizes."""
        return {"image_order": int(self.channels_first), "image_role": int(self.only)}

    def text(self) -> str:
        """The value of IMAGE= in the handshake."""
        order = "CHW" if self.channels_first else "HWC"
        return f"{order}({','.join(map(str, self.shape))}){',ONLY' if self.only else ''}"

    @classmethod
    def parse(cls, text: str) -> ImageSpec:
        """The inverse of `text`.

        Raises:
            ConfigurationError: not of that form, or an invalid size.
        """
        match = _IMAGE.fullmatch(text)
        if match is None:
            form = "HWC(height,width,channels) or CHW(channels,height,width), and ,ONLY behind it or not"
            raise _invalid("IMAGE", "malformed IMAGE", form, text)
        order, sizes, only = match[1].upper(), [int(match[i]) for i in (2, 3, 4)], match[5] is not None
        if order == "CHW":
            return cls(sizes[1], sizes[2], sizes[0], channels_first=True, only=only)
        return cls(sizes[0], sizes[1], sizes[2], only=only)

    @classmethod
    def of(cls, header: Any) -> ImageSpec | None:
        """What a segment's header says; None where it has no images."""
        if not header.image_offset:
            return None
        return cls(
            header.image_height, header.image_width, header.image_channels, header.image_order == 1,
            header.image_role == 1,
        )  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """A number of the game that a trainer may set: its name, its value at the start, and its range."""

    name: str
    value: float
    low: float = -np.inf
    high: float = np.inf

    def __post_init__(self) -> None:
        if not self.name or not (np.isfinite(self.value) and self.low <= self.value <= self.high):
            raise _invalid("PARAMS", "a parameter has a name and a value in its range", "low <= value <= high", self)


@dataclass(frozen=True)
class AgentGroup:
    """Agents of one kind: they have the same spaces.

    Args:
        name: of the group.
        count: how many of them one env has at most; who is there may change from step to step.
        spec: the sizes and spaces of one agent, as those of an engine with one env.
    """

    name: str
    count: int
    spec: EnvSpec

    @property
    def agent_names(self) -> tuple[str, ...]:
        """`name_0`, `name_1`, ..; of a group of one, its own name."""
        return (self.name,) if self.count == 1 else tuple(f"{self.name}_{k}" for k in range(self.count))


@dataclass(frozen=True)
class EnvSpec:
    """The agreed sizes and abilities.

    Args:
        obs_size: numbers per observation (OBS).
        act_size: numbers per action (ACT).
        env_type: MULTI, SINGLE or RLBASE.
        num_envs: envs behind the connection (ENV_COUNT; 1 unless MULTI).
        action: the action space; default Box(-1, 1), as the deployed plugin's trainer has it.
        obs_low, obs_high: observation bounds, empty for unbounded; listed as in ActionSpec. One may be given for all.
        version: protocol version; 0 for a peer that does not say, such as the deployed plugin.
        channel: the wirings the engine serves, None where it does not say.
        features: the optional abilities the engine offers, a subset of FEATURES.
        image: each env's image, None where observations are numbers alone.
        shm: the shared-memory offer, verbatim, None where there is none.
        obs_space: what the numbers of an observation are; None: one float32 row with `obs_low` and `obs_high`, beside
            it or instead of it the image, as that says. With a space, its IMAGE leaf says where the image belongs.
        obs_names, act_names: of each number, for people; () where nobody says. A unit may stand behind in brackets.
        parameters: what a trainer may set.
        groups: the agents of each env; () where an env is one agent. The arrays of a step have a row for each agent
            then, `num_rows` in all: row env * agents_per_env + k is env's k-th agent, groups one after the other.
            obs_size and act_size are those of the largest group.
        unknown: keys of the handshake that this version of the library does not know.

    Raises:
        ConfigurationError: sizes that are invalid, or that contradict each other.
    """

    obs_size: int
    act_size: int
    env_type: EnvType = EnvType.MULTI
    num_envs: int = 1
    action: ActionSpec | None = None
    obs_low: tuple[float, ...] = ()
    obs_high: tuple[float, ...] = ()
    version: int = PROTOCOL_VERSION
    channel: Channel | None = None
    features: frozenset[str] = field(default_factory=frozenset)
    image: ImageSpec | None = None
    shm: str | None = None
    obs_space: Space | None = None
    obs_names: tuple[str, ...] = ()
    act_names: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    groups: tuple[AgentGroup, ...] = ()
    unknown: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for name, value, top in (
            ("OBS", self.obs_size, MAX_NUMBERS),
            ("ACT", self.act_size, MAX_NUMBERS),
            ("ENV_COUNT", self.num_envs, MAX_ENVS),
        ):
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not 1 <= value <= top:
                raise _invalid(name, "size out of range", f"an integer from 1 to {top}", value)
        if self.num_rows > MAX_ENVS:
            raise _invalid("AGENTS", "more agents in all envs than allowed", f"at most {MAX_ENVS}", self.num_rows)
        if self.num_rows * max(self.obs_size, self.act_size) > MAX_NUMBERS:
            raise _invalid("ENV_COUNT", "more numbers a step than allowed", f"at most {MAX_NUMBERS} in all")
        if self.image is not None and self.num_envs * self.image.nbytes > MAX_BYTES:
            got = f"{self.num_envs} x {self.image.text()}"
            raise _invalid("IMAGE", "more bytes of images a step than allowed", f"at most {MAX_BYTES} in all", got)
        if self.env_type is not EnvType.MULTI and self.num_envs != 1:
            raise _invalid("ENV_COUNT", f"{self.env_type.value} has one env", 1, self.num_envs)
        if self.action is None:
            object.__setattr__(self, "action", ActionSpec.box(self.act_size))
        if self.action_spec.size != self.act_size:
            raise _invalid("ACT_SPACE", "ACT_SPACE and ACT disagree", self.act_size, self.action_spec.size)
        if self.obs_low or self.obs_high:
            _set_bounds(self, "OBS", self.obs_size)
        if self.obs_space is not None:
            self._check_space(self.obs_space)
        for key, names, size in (("OBS", self.obs_names, self.obs_size), ("ACT", self.act_names, self.act_size)):
            if names and (len(names) != size or not all(names)):
                raise _invalid(f"{key}_NAMES", f"there is one name for each number of {key}", size, len(names))
        if len({parameter.name for parameter in self.parameters}) != len(self.parameters):
            raise _invalid("PARAMS", "a parameter comes twice", got=[p.name for p in self.parameters])
        if self.groups:
            self._check_groups()

    def _check_space(self, space: Space) -> None:
        images = sum(leaf.kind is LeafKind.IMAGE for _, leaf, _ in leaves(space))
        if images != (self.image is not None):
            got = f"{images} IMAGE in OBS_SPACE, {'no' if self.image is None else 'one'} IMAGE key"
            raise _invalid("OBS_SPACE", "OBS_SPACE and IMAGE disagree", "IMAGE once in each, or in neither", got)
        if self.obs_size != (space.size or 1):  # a row has one number at least; of an image alone it means nothing
            raise _invalid("OBS_SPACE", "OBS_SPACE and OBS disagree", self.obs_size, space.size)
        if self.obs_low:
            raise _invalid("OBS_SPACE", "the bounds are those of the space: obs_low and obs_high are for plain rows")
        plain = isinstance(space, Leaf) and space.kind is LeafKind.BOX and space.dtype == "float32"
        if plain and isinstance(space, Leaf) and len(space.shape) == 1:  # one spec for one meaning
            object.__setattr__(self, "obs_space", None)
            if not (np.isinf(space.low).all() and np.isinf(space.high).all()):
                object.__setattr__(self, "obs_low", space.low)
                object.__setattr__(self, "obs_high", space.high)
                _set_bounds(self, "OBS", self.obs_size)

    def _check_groups(self) -> None:
        names = [name.lower() for group in self.groups for name in group.agent_names]  # keys have no letter case
        if len(set(names)) != len(names) or min(group.count for group in self.groups) < 1:
            raise _invalid("AGENTS", "groups have one agent or more, each with a name of its own", got=names[:20])
        if len(names) > MAX_AGENTS:
            raise _invalid("AGENTS", "too many agents in an env", f"at most {MAX_AGENTS}", len(names))
        if self.env_type is not EnvType.MULTI or self.channel is Channel.PER_ENV or self.image is not None:
            raise _invalid("AGENTS", "agents need ENV_TYPE=MULTI and the shared channel, and have no images")
        for key, own in (("OBS", self.obs_size), ("ACT", self.act_size)):
            largest = max(getattr(group.spec, f"{key.lower()}_size") for group in self.groups)
            if own != largest:
                raise _invalid(key, f"{key} is that of the group with the largest", largest, own)
        first = self.groups[0].spec
        same = all(group.spec == first for group in self.groups)  # one spec for one meaning
        for key in ("action", "obs_space", "obs_low", "obs_high", "obs_names", "act_names"):
            empty = ActionSpec.box(self.act_size) if key == "action" else type(self).__dataclass_fields__[key].default
            object.__setattr__(self, key, getattr(first, key) if same else empty)

    @property
    def agents_per_env(self) -> int:
        """Rows of one env: its agents, those that are not there at present among them; 1 where an env is one agent."""
        return sum(group.count for group in self.groups) or 1

    @property
    def num_rows(self) -> int:
        """Rows of the arrays of a step."""
        return self.num_envs * self.agents_per_env

    @property
    def agent_names(self) -> tuple[str, ...]:
        """Of one env's agents in the order of their rows; () where an env is one agent."""
        return tuple(name for group in self.groups for name in group.agent_names)

    @property
    def mask_size(self) -> int:
        """Flags of one row's action mask; 0 where the engine sends none. With groups, of the largest."""
        if "MASK" not in self.features:
            return 0
        return max((group.spec.action_spec.mask_size for group in self.groups), default=self.action_spec.mask_size)

    def group_spec(self, name: str) -> EnvSpec:
        """One group as if each of its agents were an env: env e's k-th agent of the group is env e * count + k.

        Raises:
            ConfigurationError: there is no such group.
        """
        for group in self.groups:
            if group.name == name:
                return replace(
                    group.spec, num_envs=self.num_envs * group.count, features=self.features, version=self.version,
                    parameters=self.parameters, channel=self.channel,
                )  # fmt: skip
        raise ConfigurationError(
            "the engine has no such group of agents", field="group",
            expected=", ".join(group.name for group in self.groups) or "none: each env is one agent", got=name,
        )  # fmt: skip

    @property
    def action_spec(self) -> ActionSpec:
        """The action space, never None."""
        assert self.action is not None
        return self.action

    @property
    def seen_size(self) -> int:
        """Numbers of one observation as a policy sees it: those of the image too, or of the image alone."""
        if self.image is None:
            return self.obs_size
        return self.image.nbytes + (0 if self.image.only else self.obs_size)

    @property
    def obs_bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(low, high), each float32[obs_size]; infinite where unbounded."""
        if self.obs_space is not None and self.obs_space.size:
            return bounds(self.obs_space)
        low, high = (self.obs_low, self.obs_high) if self.obs_low else (-np.inf, np.inf)
        return np.full(self.obs_size, low, np.float32), np.full(self.obs_size, high, np.float32)


def _set_bounds(spec: ActionSpec | EnvSpec, name: str, size: int) -> None:
    """Checks the bounds of `size` numbers, and lists one for each; where they are very many and all the same, one.

    Args:
        name: ACT or OBS. Given are bounds for each number, or one for all.
    """
    field, names = f"{name}_SPACE", ("low", "high") if isinstance(spec, ActionSpec) else ("obs_low", "obs_high")
    low, high = (getattr(spec, key) for key in names)
    if len(low) != len(high):
        raise _invalid(field, "low and high differ in length", len(low), len(high))
    lows, highs = np.array(low, np.float64), np.array(high, np.float64)
    wrong = ~(lows <= highs) | (lows == np.inf) | (highs == -np.inf)
    if wrong.any():
        got = low[wrong.argmax()], high[wrong.argmax()]
        raise _invalid(field, "invalid bounds: low must not exceed high, nor be NaN", "low <= high", got)
    if len(low) not in (1, size):
        raise _invalid(field, f"{field} and {name} disagree", size, len(low))
    for key, values in zip(names, (low, high), strict=True):
        if len(low) < size <= MAX_LISTED:
            object.__setattr__(spec, key, values * size)
        elif size > MAX_LISTED and len(set(zip(low, high, strict=True))) == 1:
            object.__setattr__(spec, key, values[:1])


def _invalid(field: str, what: str, expected: Any = None, got: Any = None) -> ConfigurationError:
    return ConfigurationError(what, field=field, expected=expected, got=got)
