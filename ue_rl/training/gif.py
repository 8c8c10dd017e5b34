"""GifFile: an animated GIF of at most MAX_PICTURES pictures, written by Pillow when the film ends."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from ue_rl.system.errors import ConfigurationError

MAX_PICTURES = 500
MAX_BYTES = 128 << 20  # of pixels; Pillow holds them twice while it writes
_MILLISECONDS = 33  # that each picture is shown; a GIF knows hundredths of a second, rounded down


class GifFile:
    """A context that writes `path` when it ends well, and leaves what stood there otherwise.

    The pictures are kept until then, each with 256 colours of its own: one byte a pixel. Pillow stores only the part
    that changed, and shows a picture equal to the one before for longer.

    Args:
        path: the file.
        most_pictures, most_bytes: further pictures are left out.

    Raises:
        ConfigurationError: Pillow is missing; or, at the end, no picture came.
    """

    def __init__(self, path: Path, most_pictures: int = MAX_PICTURES, most_bytes: int = MAX_BYTES) -> None:
        try:
            from PIL import Image
        except ImportError as error:
            raise ConfigurationError("a GIF needs Pillow", field="gif", cure="pip install pillow") from error
        self._image = Image
        self._path = path
        self._most_pictures = most_pictures
        self._most_bytes = most_bytes
        self._part = path.with_name(path.name + ".part")
        self._pictures: list[Any] = []
        self._size = (0, 0)

    @property
    def full(self) -> bool:
        """Whether the most pictures, or bytes of pixels, have come; further pictures are left out."""
        count = len(self._pictures)
        (width, height) = self._size
        return count >= self._most_pictures or (count > 0 and (count + 1) * width * height > self._most_bytes)

    def add(self, picture: Any) -> None:
        """Adds a picture, uint8 [height, width, 3]; raises ConfigurationError: it has another size than the first."""
        if self.full:
            return
        image = self._image.fromarray(picture).convert("RGB")
        if self._pictures and image.size != self._size:
            raise ConfigurationError(
                "the env changed the size of its picture", field="gif", expected=self._size, got=image.size
            )
        self._size = image.size
        self._pictures.append(image.convert("P", palette=self._image.Palette.ADAPTIVE))

    def __enter__(self) -> GifFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            return
        if not self._pictures:
            raise ConfigurationError("the env drew nothing", field="gif", cure="choose an env that renders")
        first, *others = self._pictures
        try:
            first.save(self._part, "GIF", save_all=True, append_images=others, duration=_MILLISECONDS, loop=0)
            self._part.replace(self._path)
        finally:
            self._part.unlink(missing_ok=True)
