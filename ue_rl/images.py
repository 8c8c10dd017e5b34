"""ImageSpec: each env's image beside (or instead of) its numbers. Only shared memory carries images.

In the handshake (docs/protocol.md): `IMAGE=HWC(84,84,3)` or `IMAGE=CHW(3,84,84)`, and `,ONLY` behind it where the image
is the whole observation. No gymnasium here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from ue_rl.errors import ConfigurationError

MAX_SIDE = 65_535
MAX_BYTES = 2**32  # of all envs' images in one step

_SIZE = r"\s*(\d{1,5})\s*"
_TEXT = re.compile(rf"\s*(HWC|CHW)\s*\({_SIZE},{_SIZE},{_SIZE}\)\s*(?:,\s*(ONLY)\s*)?", re.I | re.A)


@dataclass(frozen=True)
class ImageSpec:
    """One env's image, uint8.

    Args:
        height, width, channels: in pixels.
        channels_first: the array is [channels, height, width], as torch's convolutions have it; otherwise
            [height, width, channels], as cameras give it.
        only: the image is the whole observation; otherwise it stands beside the numbers as one key of a Dict.

    Raises:
        ConfigurationError: a size that cannot be.
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
                    "an image size that cannot be", field="IMAGE", expected=f"integers from 1 to {MAX_SIDE}",
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
            ConfigurationError: not of that form, or a size that cannot be.
        """
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ConfigurationError(
                "an image that cannot be read",
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
