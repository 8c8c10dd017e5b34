"""What engine and trainer agree on in the handshake: EnvSpec, ActionSpec, ImageSpec.

Plain, frozen, checked when made; no gymnasium here (ue_rl/envs/spaces.py turns these into spaces), no text
(ue_rl/wire/codec.py reads and writes the CONFIG line). Sources: docs/protocol.md, section "Handshake".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.errors import ConfigurationError

PROTOCOL_VERSION = 1
MAX_ENVS = 65_536
MAX_NUMBERS = 16_777_216
MAX_LISTED = 65_536  # numbers with the same bounds, listed one by one all the same: a short handshake must cost little
MAX_SWITCHES = 262_144  # of a MULTI_BINARY, for the same reason
MAX_SIDE = 65_535
MAX_BYTES = 2**32  # of all envs' images in one step

_SIZE = r"\s*(\d{1,5})\s*"
_IMAGE = re.compile(rf"\s*(HWC|CHW)\s*\({_SIZE},{_SIZE},{_SIZE}\)\s*(?:,\s*(ONLY)\s*)?", re.I | re.A)
FEATURES = frozenset({"TRUNC", "SEED", "OPTIONS", "INFO"})


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
    """The kinds of action space that the wire can name."""

    BOX = "BOX"
    DISCRETE = "DISCRETE"
    MULTI_DISCRETE = "MULTI_DISCRETE"
    MULTI_BINARY = "MULTI_BINARY"


@dataclass(frozen=True)
class ActionSpec:
    """One env's action space.

    kind BOX: `low` and `high`, one float32 each per action number; where more than MAX_LISTED numbers have the same
        bounds, one for all of them.
    kind DISCRETE / MULTI_DISCRETE: `counts`, the number of choices per action number (0-based on the wire).
    kind MULTI_BINARY: `counts` is (2,) * n.

    `size` is how many numbers one action has on the wire (the ACT of the handshake); found where it is not given.
    """

    kind: ActionKind
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    size: int = -1

    def __post_init__(self) -> None:
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
            if max(self.counts) > 2**24:
                raise _invalid("ACT_SPACE", "more than 2**24 choices are not exact in float32")
        object.__setattr__(self, "size", size)

    @property
    def bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(low, high) of a BOX, each float32[size]."""
        return np.full(self.size, self.low, np.float32), np.full(self.size, self.high, np.float32)

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

    def __post_init__(self) -> None:
        for name, value, top in (
            ("OBS", self.obs_size, MAX_NUMBERS),
            ("ACT", self.act_size, MAX_NUMBERS),
            ("ENV_COUNT", self.num_envs, MAX_ENVS),
        ):
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not 1 <= value <= top:
                raise _invalid(name, "size out of range", f"an integer from 1 to {top}", value)
        if self.num_envs * max(self.obs_size, self.act_size) > MAX_NUMBERS:
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
