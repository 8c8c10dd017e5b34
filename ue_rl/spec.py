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

    kind BOX: `low` and `high`, one float32 each per action number.
    kind DISCRETE / MULTI_DISCRETE: `counts`, the number of choices per action number (0-based on the wire).
    kind MULTI_BINARY: `counts` is (2,) * n.
    """

    kind: ActionKind
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind is ActionKind.BOX:
            _check_bounds("ACT_SPACE", self.low, self.high)
            if not self.low:
                raise ConfigurationError("a BOX action space needs at least one number", field="ACT_SPACE")
        else:
            if not self.counts or any(n < 1 for n in self.counts):
                raise ConfigurationError(
                    "an action space needs one choice or more per number", field="ACT_SPACE", got=self.counts
                )
            if self.kind is ActionKind.DISCRETE and len(self.counts) != 1:
                raise ConfigurationError("DISCRETE has one count", field="ACT_SPACE", got=self.counts)
            if self.kind is ActionKind.MULTI_BINARY and any(n != 2 for n in self.counts):
                raise ConfigurationError("MULTI_BINARY has two choices each", field="ACT_SPACE")
            if any(n > 2**24 for n in self.counts):
                raise ConfigurationError("more than 2**24 choices are not exact in float32", field="ACT_SPACE")

    @property
    def size(self) -> int:
        """How many numbers one action has on the wire (the ACT of the handshake)."""
        return len(self.low) if self.kind is ActionKind.BOX else len(self.counts)

    @classmethod
    def box(cls, size: int, low: float = -1.0, high: float = 1.0) -> ActionSpec:
        """A Box of `size` numbers with the same bounds for all."""
        return cls(ActionKind.BOX, low=(float(low),) * size, high=(float(high),) * size)

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
        """`n` switches."""
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
                raise ConfigurationError(
                    "invalid image size", field="IMAGE", expected=f"integers from 1 to {MAX_SIDE}",
                    got=self.size,
                )  # fmt: skip

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
            raise ConfigurationError(
                "malformed IMAGE",
                field="IMAGE",
                expected="HWC(height,width,channels) or CHW(channels,height,width), and ,ONLY behind it or not",
                got=text,
            )
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
        obs_low, obs_high: observation bounds, empty for unbounded.
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
                raise ConfigurationError(
                    "size out of range", field=name, expected=f"an integer from 1 to {top}", got=value
                )
        if self.num_envs * max(self.obs_size, self.act_size) > MAX_NUMBERS:
            raise ConfigurationError(
                "more numbers a step than allowed",
                field="ENV_COUNT",
                expected=f"at most {MAX_NUMBERS} in all",
            )
        if self.image is not None and self.num_envs * self.image.nbytes > MAX_BYTES:
            raise ConfigurationError(
                "more bytes of images a step than allowed", field="IMAGE", expected=f"at most {MAX_BYTES} in all",
                got=f"{self.num_envs} x {self.image.text()}",
            )  # fmt: skip
        if self.env_type is not EnvType.MULTI and self.num_envs != 1:
            raise ConfigurationError(
                f"{self.env_type.value} has one env", field="ENV_COUNT", expected=1, got=self.num_envs
            )
        if self.action is None:
            object.__setattr__(self, "action", ActionSpec.box(self.act_size))
        if self.action_spec.size != self.act_size:
            raise ConfigurationError(
                "ACT_SPACE and ACT disagree",
                field="ACT_SPACE",
                expected=self.act_size,
                got=self.action_spec.size,
            )
        if self.obs_low or self.obs_high:
            _check_bounds("OBS_SPACE", self.obs_low, self.obs_high)
            if len(self.obs_low) != self.obs_size:
                raise ConfigurationError(
                    "OBS_SPACE and OBS disagree",
                    field="OBS_SPACE",
                    expected=self.obs_size,
                    got=len(self.obs_low),
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
        return self.image.nbytes + (0 if self.image.only else self.obs_size)

    @property
    def obs_bounds(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(low, high), each float32[obs_size]; infinite where unbounded."""
        if not self.obs_low:
            inf = np.full(self.obs_size, np.inf, np.float32)
            return -inf, inf
        return np.array(self.obs_low, np.float32), np.array(self.obs_high, np.float32)


def _check_bounds(name: str, low: tuple[float, ...], high: tuple[float, ...]) -> None:
    if len(low) != len(high):
        raise ConfigurationError("low and high differ in length", field=name, expected=len(low), got=len(high))
    for lo, hi in zip(low, high, strict=True):
        if np.isnan(lo) or np.isnan(hi) or lo > hi or lo == np.inf or hi == -np.inf:
            raise ConfigurationError(
                "invalid bounds: low must not exceed high, nor be NaN", field=name, expected="low <= high", got=(lo, hi)
            )
