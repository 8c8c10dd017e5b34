"""GifFile: an animated GIF that grows on disk, one picture at a time.

Pillow and imageio keep every frame until the last has come; here one picture is held, whatever the length of the film.
Pillow still encodes each picture, as a GIF of its own; its colours and data are then put behind those written before
(GIF89a: https://www.w3.org/Graphics/GIF/spec-gif89a.txt, sections 18 to 27). As Pillow does, only the part that
changed is stored, and a picture equal to the one before makes that one last longer.

What this does not do: read, dither, resize, transparency.
"""

from __future__ import annotations

import struct
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from ue_rl.errors import ConfigurationError

MAX_PICTURES = 1500
_COLOURS, _INTERLACED, _COLOUR_BITS = 0x80, 0x40, 0x07
_FOR_EVER = b"\x21\xff\x0bNETSCAPE2.0\x03\x01\x00\x00\x00"
_LONGEST = 655_350  # milliseconds: 16 bits of hundredths of a second


class GifFile:
    """A context that writes `path` when it ends well, and leaves what stood there otherwise.

    Args:
        path: the file.
        milliseconds: how long each picture is shown; a GIF knows hundredths of a second, rounded down.

    Raises:
        ConfigurationError: Pillow is missing; or, at the end, no picture came.
    """

    def __init__(self, path: Path, milliseconds: int = 33) -> None:
        try:
            from PIL import Image, ImageChops
        except ImportError as error:
            raise ConfigurationError(
                "a GIF needs Pillow", fault="caller", field="gif", cure="pip install pillow"
            ) from error
        self._image, self._chops = Image, ImageChops
        self._path, self._part = path, path.with_name(path.name + ".part")
        self._milliseconds = milliseconds
        self._file: BinaryIO | None = None
        self._last: Any = None
        self._waiting = b""  # the last part that changed, as it will stand in the file
        self._shown = 0  # for so many milliseconds
        self._count = 0

    @property
    def full(self) -> bool:
        """Whether MAX_PICTURES have come; further ones are left out."""
        return self._count >= MAX_PICTURES

    def add(self, picture: Any) -> None:
        """Adds a picture, uint8 [height, width, 3].

        Raises:
            ConfigurationError: it has another size than the first.
        """
        if self.full:
            return
        image = self._image.fromarray(picture).convert("RGB")
        box: tuple[int, int, int, int] | None = (0, 0, *image.size)
        if self._file is None:
            self._file = self._part.open("wb")
            self._file.write(b"GIF89a" + struct.pack("<HHBBB", *image.size, 0x70, 0, 0) + _FOR_EVER)
        elif image.size != self._last.size:
            raise ConfigurationError(
                "the env changed the size of its picture", fault="caller", field="gif", expected=self._last.size,
                got=image.size,
            )  # fmt: skip
        else:
            box = self._chops.difference(self._last, image).getbbox()
        self._count += 1
        if box is None and self._shown + self._milliseconds <= _LONGEST:
            self._shown += self._milliseconds
            return
        self._flush()
        box = box or (0, 0, 1, 1)
        self._waiting, self._shown, self._last = _block(image.crop(box), box[0], box[1]), self._milliseconds, image

    def _flush(self) -> None:
        if self._file is not None and self._waiting:
            stay = 1 << 2  # the part stays when the next comes
            self._file.write(struct.pack("<BBBBHBB", 0x21, 0xF9, 4, stay, self._shown // 10, 0, 0) + self._waiting)

    def __enter__(self) -> GifFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            with self._file:
                if kind is None:
                    self._flush()
                    self._file.write(b"\x3b")
            if kind is None:
                self._part.replace(self._path)
            else:
                self._part.unlink()
        elif kind is None:
            raise ConfigurationError(
                "the env drew nothing", fault="caller", field="gif", cure="choose an env that renders"
            )


def _block(image: Any, left: int, top: int) -> bytes:
    """The image descriptor, colours and data of `image` at (left, top), taken from the GIF that Pillow makes of it."""
    alone = BytesIO()
    image.save(alone, "GIF")
    data = alone.getvalue()
    packed = data[10]
    assert packed & _COLOURS, "Pillow writes a picture of its own with global colours"
    at = 13 + 3 * 2 ** ((packed & _COLOUR_BITS) + 1)
    colours = data[13:at]
    while data[at] == 0x21:  # extensions: a label, then blocks, each behind its length, to an empty one
        at += 2
        while data[at]:
            at += 1 + data[at]
        at += 1
    flags = _COLOURS | (data[at + 9] & _INTERLACED) | (packed & _COLOUR_BITS)
    descriptor = struct.pack("<BHHHHB", 0x2C, left, top, *image.size, flags)
    return descriptor + colours + data[at + 10 : -1]
