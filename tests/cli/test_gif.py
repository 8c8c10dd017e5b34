"""`ue_rl.cli.gif`: a film that grows on disk shows what was drawn, whatever its length, and leaves no half files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psutil
import pytest

from ue_rl.cli import gif
from ue_rl.cli.gif import GifFile
from ue_rl.errors import ConfigurationError

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


def shown_times(path: Path) -> list[int]:
    return [time for _, time in shown(path)]


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


def test_the_film_is_the_one_that_pillow_writes_at_once(tmp_path: Path) -> None:
    """Pixel for pixel and in its times, pictures that stand still among them."""
    pictures = moving_square(12)
    pictures[5:5] = [pictures[4]] * 3
    pictures.append(pictures[-1])
    film(tmp_path / "grown.gif", pictures)
    first, *others = [Image.fromarray(picture) for picture in pictures]
    first.save(tmp_path / "whole.gif", save_all=True, append_images=others, duration=33, loop=0)
    grown, whole = shown(tmp_path / "grown.gif"), shown(tmp_path / "whole.gif")
    assert [time for _, time in grown] == [time for _, time in whole]
    for (mine, _), (theirs, _) in zip(grown, whole, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert (tmp_path / "grown.gif").stat().st_size < 1.2 * (tmp_path / "whole.gif").stat().st_size


def test_many_colours_come_close(tmp_path: Path) -> None:
    rows, columns = np.mgrid[0:48, 0:64].astype(np.uint8)
    pictures = [np.stack([rows * 5, columns * 3, np.full_like(rows, 40 * n)], axis=2) for n in range(4)]
    film(tmp_path / "x.gif", pictures)
    frames = shown(tmp_path / "x.gif")
    assert len(frames) == 4
    for (frame, _), picture in zip(frames, pictures, strict=True):
        assert np.abs(frame.astype(int) - picture).mean() < 8


def test_memory_does_not_grow_with_the_film(tmp_path: Path) -> None:
    """Of 300 pictures, 225 MiB; Pillow's own memory is not Python's, so that the process is asked."""
    picture = np.zeros((512, 512, 3), np.uint8)
    process = psutil.Process()
    with GifFile(tmp_path / "x.gif") as file:
        for number in range(300):
            picture[:, :, number % 3] += 1
            file.add(picture)
            if number == 20:
                before = process.memory_info().rss
        assert process.memory_info().rss - before < 16 << 20
        assert (tmp_path / "x.gif.part").stat().st_size > 0
    with Image.open(tmp_path / "x.gif") as whole:
        assert whole.n_frames == 300


def test_it_ends_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gif, "MAX_PICTURES", 5)
    with GifFile(tmp_path / "x.gif") as file:
        for picture in moving_square(9):
            assert file.full == (file._count == 5)
            file.add(picture)
    assert len(shown(tmp_path / "x.gif")) == 5


def test_a_picture_that_stands_still_for_long(tmp_path: Path) -> None:
    with GifFile(tmp_path / "x.gif", milliseconds=300_000) as file:
        for picture in [moving_square(1)[0]] * 5:
            file.add(picture)
    assert shown_times(tmp_path / "x.gif") == [600_000, 600_000, 300_000]


def test_a_film_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
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
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.gif"]
    assert path.read_bytes() == b"the old one"
