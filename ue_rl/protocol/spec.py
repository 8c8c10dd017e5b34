"""What engine and trainer agree on in the handshake: EnvSpec and its parts; ActionSpec is in
ue_rl/protocol/spaces/actions.py.

Plain, frozen, checked when made; no gymnasium here (ue_rl/envs/spaces.py turns these into spaces), no text
(ue_rl/protocol/text/handshake.py reads and writes the CONFIG line). Sources: docs/protocol.md, section "Handshake".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.protocol.spaces.actions import MAX_LISTED, MAX_SWITCHES, ActionKind, ActionSpec, invalid, listed, set_bounds
from ue_rl.protocol.spaces.tree import Branch, Leaf, LeafKind, Space, bounds, leaves, number_path
from ue_rl.system.errors import ConfigurationError, printable

__all__ = [
    "FEATURES", "MAX_BYTES", "MAX_ENVS", "MAX_LISTED", "MAX_NUMBERS", "MAX_SWITCHES", "PROTOCOL_VERSION",
    "ActionKind", "ActionSpec", "AgentGroup", "Channel", "EnvSpec", "EnvType", "ImageSpec", "Parameter",
]  # fmt: skip

PROTOCOL_VERSION = 1
MAX_ENVS = 65_536
MAX_NUMBERS = 16_777_216
MAX_SIDE = 65_535
MAX_FLAGS = 67_108_864  # of all rows' action masks
MAX_BYTES = 2**32  # of all envs' images in one step

_SIZE = r"\s*(\d{1,5})\s*"
_IMAGE = re.compile(rf"\s*(HWC|CHW)\s*\({_SIZE},{_SIZE},{_SIZE}\)\s*(?:,\s*(ONLY)\s*)?", re.I | re.A)
MAX_FPS = 1000
DEFAULT_FPS = 30
MAX_AGENTS = 4096  # of one env
# What an engine can do beyond the base; docs/protocol.md, section 3, says what each one means.
FEATURES = frozenset(
    {
        "TRUNC",
        "SEED",
        "OPTIONS",
        "INFO",
        "MASK",
        "ERROR",
        "TIME_SCALE",
        "PAUSE",
        "RENDER",
        "GOAL_REWARD",
        "SEQ",
        "REALTIME",
        "AUTORESET",
        "DEMO",
        "BINARY",
    }
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
                raise invalid("IMAGE", "invalid image size", f"integers from 1 to {MAX_SIDE}", self.size)

    @property
    def size(self) -> tuple[int, int, int]:
        """(height, width, channels)."""
        return self.height, self.width, self.channels

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one env's array."""
        if self.channels_first:
            return (self.channels, self.height, self.width)
        return self.size

    @property
    def nbytes(self) -> int:
        """Of one env's image."""
        return int(self.height) * int(self.width) * int(self.channels)

    def fields(self) -> dict[str, Any]:
        """The header's fields beside the sizes."""
        return {"image_order": int(self.channels_first), "image_role": int(self.only)}

    def text(self) -> str:
        """The value of IMAGE= in the handshake."""
        order = "HWC"
        if self.channels_first:
            order = "CHW"
        return f"{order}({','.join(map(str, self.shape))}){',ONLY' if self.only else ''}"

    @classmethod
    def parse(cls, text: str) -> ImageSpec:
        """The inverse of `text`; raises ConfigurationError: not of that form, or an invalid size."""
        match = _IMAGE.fullmatch(text)
        if match is None:
            form = "HWC(height,width,channels) or CHW(channels,height,width), and ,ONLY behind it or not"
            raise invalid("IMAGE", "malformed IMAGE", form, text)
        order = match[1].upper()
        sizes = [int(match[i]) for i in (2, 3, 4)]
        only = match[5] is not None
        if order == "CHW":
            return cls(sizes[1], sizes[2], sizes[0], channels_first=True, only=only)
        return cls(sizes[0], sizes[1], sizes[2], only=only)

    @classmethod
    def of(cls, header: Any) -> ImageSpec | None:
        """What a segment's header says; None where it has no images."""
        if not header.image_offset:
            return None
        return cls(
            header.image_height,
            header.image_width,
            header.image_channels,
            header.image_order == 1,
            header.image_role == 1,
        )


@dataclass(frozen=True)
class Parameter:
    """A number of the game that a trainer may set: its name, its value at the start, and its range."""

    name: str
    value: float
    low: float = -np.inf
    high: float = np.inf

    def __post_init__(self) -> None:
        if not self.name or not (np.isfinite(self.value) and self.low <= self.value <= self.high):
            raise invalid("PARAMS", "a parameter has a name and a value in its range", "low <= value <= high", self)


def _slack(bound: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(np.isfinite(bound), 1e-5 * np.maximum(1, np.abs(bound)), 0).astype(np.float32)


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
        if self.count == 1:
            return (self.name,)
        return tuple(f"{self.name}_{k}" for k in range(self.count))


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
        obs_names, act_names: of each number; () where nobody says. A unit may stand behind in brackets.
        parameters: what a trainer may set.
        render_fps: pictures a second at which a film of one picture for each step runs as fast as the game.
        groups: the agents of each env; () where an env is one agent. The arrays of a step have a row for each agent
            then, `num_rows` in all: row env * agents_per_env + k is env's k-th agent, groups one after the other.
            obs_size and act_size are those of the largest group.
        unknown: keys of the handshake that this version of the library does not know.
        text: the handshake as it was sent, for people; "" for a spec that no engine has sent.

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
    render_fps: int = DEFAULT_FPS
    groups: tuple[AgentGroup, ...] = ()
    unknown: tuple[str, ...] = field(default=(), compare=False)
    text: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        for name, value, top in (
            ("OBS", self.obs_size, MAX_NUMBERS),
            ("ACT", self.act_size, MAX_NUMBERS),
            ("ENV_COUNT", self.num_envs, MAX_ENVS),
            ("RENDER_FPS", self.render_fps, MAX_FPS),
        ):
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not 1 <= value <= top:
                raise invalid(name, "size out of range", f"an integer from 1 to {top}", value)
        if self.num_rows > MAX_ENVS:
            raise invalid("AGENTS", "more agents in all envs than allowed", f"at most {MAX_ENVS}", self.num_rows)
        if self.num_rows * max(self.obs_size, self.act_size) > MAX_NUMBERS:
            raise invalid("ENV_COUNT", "more numbers a step than allowed", f"at most {MAX_NUMBERS} in all")
        if self.image is not None and self.num_envs * self.image.nbytes > MAX_BYTES:
            got = f"{self.num_envs} x {self.image.text()}"
            raise invalid("IMAGE", "more bytes of images a step than allowed", f"at most {MAX_BYTES} in all", got)
        if self.env_type is not EnvType.MULTI and self.num_envs != 1:
            raise invalid("ENV_COUNT", f"{self.env_type.value} has one env", 1, self.num_envs)
        if self.action is None:
            object.__setattr__(self, "action", ActionSpec.box(self.act_size))
        if self.action_spec.size != self.act_size:
            raise invalid("ACT_SPACE", "ACT_SPACE and ACT disagree", self.act_size, self.action_spec.size)
        listed(self, "obs_low", "obs_high")
        if self.obs_low or self.obs_high:
            set_bounds(self, "OBS", self.obs_size)
        if self.obs_space is not None:
            self._check_space(self.obs_space)
        for key, names, size in (("OBS", self.obs_names, self.obs_size), ("ACT", self.act_names, self.act_size)):
            if names and (len(names) != size or not all(names)):
                raise invalid(f"{key}_NAMES", f"there is one name for each number of {key}", size, len(names))
        if len({parameter.name for parameter in self.parameters}) != len(self.parameters):
            raise invalid("PARAMS", "a parameter comes twice", got=[p.name for p in self.parameters])
        if self.groups:
            self._check_groups()
        if self.num_rows * self.mask_size > MAX_FLAGS:
            got = f"{self.num_rows} x {self.mask_size}"
            raise invalid("ACT_SPACE", "more mask flags a step than allowed", f"at most {MAX_FLAGS} in all", got)

    def _check_space(self, space: Space) -> None:
        images = sum(not leaf.form.in_row for _, leaf, _ in leaves(space))
        if images != (self.image is not None):
            got = f"{images} IMAGE in OBS_SPACE, {'no' if self.image is None else 'one'} IMAGE key"
            raise invalid("OBS_SPACE", "OBS_SPACE and IMAGE disagree", "IMAGE once in each, or in neither", got)
        size = space.size
        if not size:
            size = 1
        if self.obs_size != size:  # a row has one number at least; of an image alone it means nothing
            raise invalid("OBS_SPACE", "OBS_SPACE and OBS disagree", self.obs_size, space.size)
        if self.obs_low:
            raise invalid("OBS_SPACE", "the bounds are those of the space: obs_low and obs_high are for plain rows")
        plain = isinstance(space, Leaf) and space.kind is LeafKind.BOX and space.dtype == "float32"
        if plain and isinstance(space, Leaf) and len(space.shape) == 1:  # one spec for one meaning
            object.__setattr__(self, "obs_space", None)
            if not (np.isinf(space.low).all() and np.isinf(space.high).all()):
                object.__setattr__(self, "obs_low", space.low)
                object.__setattr__(self, "obs_high", space.high)
                set_bounds(self, "OBS", self.obs_size)

    def _check_groups(self) -> None:
        names = [name.lower() for group in self.groups for name in group.agent_names]  # keys have no letter case
        kinds = {group.name.lower() for group in self.groups}
        if (
            len(kinds) != len(self.groups)
            or len(set(names)) != len(names)
            or min(group.count for group in self.groups) < 1
        ):
            raise invalid("AGENTS", "groups have one agent or more, each with a name of its own", got=names[:20])
        if len(names) > MAX_AGENTS:
            raise invalid("AGENTS", "too many agents in an env", f"at most {MAX_AGENTS}", len(names))
        if self.env_type is not EnvType.MULTI or self.channel is Channel.PER_ENV or self.image is not None:
            raise invalid("AGENTS", "agents need ENV_TYPE=MULTI and the shared channel, and have no images")
        for key, own in (("OBS", self.obs_size), ("ACT", self.act_size)):
            largest = max(getattr(group.spec, f"{key.lower()}_size") for group in self.groups)
            if own != largest:
                raise invalid(key, f"{key} is that of the group with the largest", largest, own)
        first = self.groups[0].spec
        same = all(group.spec == first for group in self.groups)  # one spec for one meaning
        for key in ("action", "obs_space", "obs_low", "obs_high", "obs_names", "act_names"):
            empty = ActionSpec.box(self.act_size) if key == "action" else type(self).__dataclass_fields__[key].default
            if same:
                value = getattr(first, key)
            else:
                value = empty
            object.__setattr__(self, key, value)

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
                    group.spec,
                    num_envs=self.num_envs * group.count,
                    features=self.features,
                    version=self.version,
                    parameters=self.parameters,
                    channel=self.channel,
                )
        expected = ", ".join(group.name for group in self.groups)
        if not expected:
            expected = "none: each env is one agent"
        raise ConfigurationError(
            "the engine has no such group of agents",
            field="group",
            expected=expected,
            got=name,
        )

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
        if self.image.only:
            numbers = 0
        else:
            numbers = self.obs_size
        return self.image.nbytes + numbers

    @property
    def obs_bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(low, high), each float32[obs_size]; infinite where unbounded."""
        if self.obs_space is not None and self.obs_space.size:
            return bounds(self.obs_space)
        low, high = (self.obs_low, self.obs_high) if self.obs_low else (-np.inf, np.inf)
        return np.full(self.obs_size, low, np.float32), np.full(self.obs_size, high, np.float32)

    @property
    def obs_limits(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """`obs_bounds`, wider by rounding that no game can be blamed for."""
        low, high = self.obs_bounds
        return low - _slack(low), high + _slack(high)

    def number_names(self, by_name: bool = False) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(obs_names, act_names); `by_name`: no obs_names where there are parts, which an env class takes by name."""
        return () if by_name and isinstance(self.obs_space, Branch) else self.obs_names, self.act_names

    def obs_name(self, index: int) -> str:
        """Of a number of the observation, for people, with its index in the row."""
        if self.obs_names:
            return f"{printable(self.obs_names[index])} [{index}]"
        if self.obs_space is not None:
            return f"{printable(number_path(self.obs_space, index))} [{index}]"
        return f"number {index}"

    def out_of_bounds(self, index: int, value: float) -> str:
        """What to say of a number of the observation that was outside its space."""
        low, high = self.obs_bounds
        return f"{self.obs_name(index)} was {value:g}, not in {low[index]:g} to {high[index]:g}"
