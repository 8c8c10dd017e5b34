"""`ue_rl.training.gif`: a film shows what was drawn up to its cap, takes bounded memory, and leaves no half files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.support.command_line import ok
from ue_rl.system.errors import ConfigurationError
from ue_rl.training import gif
from ue_rl.training.gif import GifFile

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def shown(path: Path) -> list[tuple[np.ndarray, int]]:
    """(picture, milliseconds) of each frame, as Pillow reads them."""
    frames = []
    with Image.open(path) as film:
        assert film.info["loop"] == 0
        for number in range(film.n_frames):
            film.seek(number)
            frames.append((np.asarray(film.convert("RGB")), film.info["duration"]))
    return frames


def moving_square(count: int, size: int = 64) -> list[np.ndarray]:
    pictures = []
    for number in range(count):
        picture = np.full((size, size * 2, 3), 255, np.uint8)
        at = number % (size - 8)
        picture[at : at + 8, at + 3 : at + 20] = (200, 30, 7 * number % 256)
        pictures.append(picture)
    return pictures


def film(path: Path, pictures: list[np.ndarray]) -> None:
    with GifFile(path) as file:
        for picture in pictures:
            file.add(picture)


def test_the_film_shows_what_was_drawn(tmp_path: Path) -> None:
    """Pixel for pixel and in its times; a picture that stands still is shown for longer."""
    pictures = moving_square(12)
    film(tmp_path / "x.gif", [*pictures[:5], *[pictures[4]] * 3, *pictures[5:], pictures[-1]])
    frames = shown(tmp_path / "x.gif")
    assert [time for _, time in frames] == [30, 30, 30, 30, 130, 30, 30, 30, 30, 30, 30, 60]
    for (frame, _), picture in zip(frames, pictures, strict=True):
        np.testing.assert_array_equal(frame, picture)
    alone = tmp_path / "alone.gif"
    Image.fromarray(pictures[0]).save(alone)
    assert (tmp_path / "x.gif").stat().st_size < 12 * alone.stat().st_size, "only what changed is stored"


def test_many_colours_come_close(tmp_path: Path) -> None:
    rows, columns = np.mgrid[0:48, 0:64].astype(np.uint8)
    pictures = [np.stack([rows * 5, columns * 3, np.full_like(rows, 40 * n)], axis=2) for n in range(4)]
    film(tmp_path / "x.gif", pictures)
    frames = shown(tmp_path / "x.gif")
    assert len(frames) == 4
    for (frame, _), picture in zip(frames, pictures, strict=True):
        assert np.abs(frame.astype(int) - picture).mean() < 8


def test_memory_is_bounded_by_the_cap(tmp_path: Path) -> None:
    """Of 100 pictures, 75 MiB; Pillow's own memory is not Python's, so that the process is asked."""
    picture = np.zeros((512, 512, 3), np.uint8)
    process = psutil.Process()
    film(tmp_path / "x.gif", [picture])  # what Pillow needs once
    before = process.memory_info().rss
    with GifFile(tmp_path / "x.gif", most_bytes=8 << 20) as file:
        for number in range(100):
            picture[:, :, number % 3] += 1
            file.add(picture)
        assert process.memory_info().rss - before < 16 << 20
        assert file.full
    assert process.memory_info().rss - before < 32 << 20
    with Image.open(tmp_path / "x.gif") as whole:
        assert whole.n_frames == 32


def test_it_ends_at_the_limit(tmp_path: Path) -> None:
    with GifFile(tmp_path / "x.gif", most_pictures=5) as file:
        for number, picture in enumerate(moving_square(9)):
            assert file.full == (number >= 5)
            file.add(picture)
    assert len(shown(tmp_path / "x.gif")) == 5


def test_the_cap_stands_in_the_help() -> None:
    text = " ".join(ok("play --help").split())
    assert f"{gif.MAX_PICTURES} steps, or {gif.MAX_BYTES >> 20} MiB of pixels, at most" in text


def half_a_film(image: object, path: Path, *args: object, **options: object) -> None:
    path.write_bytes(b"GIF89a")
    raise OSError("disk full")


def test_a_film_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.gif"
    path.write_bytes(b"the old one")
    with pytest.raises(RuntimeError), GifFile(path) as file:
        file.add(moving_square(1)[0])
        raise RuntimeError("the engine died")
    with pytest.raises(ConfigurationError, match="drew nothing"), GifFile(path):
        pass
    with pytest.raises(ConfigurationError, match="changed the size"), GifFile(path) as file:
        file.add(moving_square(1)[0])
        file.add(moving_square(1, size=32)[0])
    with monkeypatch.context() as patch:
        patch.setattr(Image.Image, "save", half_a_film)
        with pytest.raises(OSError, match="disk full"):
            film(path, moving_square(2))
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.gif"]
    assert path.read_bytes() == b"the old one"
