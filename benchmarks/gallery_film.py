"""Pictures of the gallery: games that show no picture, drawn from what they observe, and GIFs that stay small."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance, ImageFont

Observation = NDArray[np.float32]
Drawing = Callable[[Observation], Image.Image]

SIZE = 240
LABEL = 18  # above a picture: text on it would cross what is drawn there
FINE = 3  # drawn so much larger, then reduced: smooth edges
INK, PAPER, BLUE, RED, GREEN, GREY = "#202830", "#fafafa", "#1f77b4", "#d62728", "#2ca02c", "#c8ccd0"


class Canvas:
    """A square, `span` units from the middle to each side, y upwards."""

    def __init__(self, span: float, height: float = 1.0) -> None:
        self._scale = SIZE * FINE / (2 * span)
        self._image = Image.new("RGB", (SIZE * FINE, round(SIZE * FINE * height)), PAPER)
        self._draw = ImageDraw.Draw(self._image)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """In pixels."""
        width, height = self._image.size
        return width / 2 + x * self._scale, height / 2 - y * self._scale

    def disc(self, x: float, y: float, radius: float, colour: str, outline: str | None = None) -> None:
        """A circle."""
        (a, b), r = self.at(x, y), radius * self._scale
        self._draw.ellipse((a - r, b - r, a + r, b + r), fill=colour, outline=outline, width=FINE)

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float) -> None:
        """Through all points, `width` in units."""
        self._draw.line([self.at(*point) for point in points], colour, max(1, round(width * self._scale)))

    def box(self, x: float, y: float, half_x: float, half_y: float, colour: str | None, outline: str = INK) -> None:
        """A rectangle around a point."""
        corners = (*self.at(x - half_x, y + half_y), *self.at(x + half_x, y - half_y))
        self._draw.rectangle(corners, fill=colour, outline=outline, width=FINE)

    def done(self) -> Image.Image:
        """The picture in its final size."""
        return self._image.reduce(FINE)


def cart_pole(seen: Observation) -> Image.Image:
    """samples/godot/cart_pole: x / 2.4 m, speed, angle / 12 degrees, angular speed; the pole is 1 m long."""
    canvas = Canvas(2.7, 0.6)
    x, angle = float(seen[0]) * 2.4, float(seen[2]) * math.pi / 15
    canvas.line([(-2.4, -0.8), (2.4, -0.8)], GREY, 0.03)
    canvas.box(x, -0.7, 0.25, 0.12, INK)
    # Godot's y points down: a positive angle turns the pole to the right
    canvas.line([(x, -0.7), (x + 1.3 * math.sin(angle), -0.7 + 1.3 * math.cos(angle))], BLUE, 0.1)
    return canvas.done()


def reach(seen: Observation) -> Image.Image:
    """The reach tasks in C++ and C#: position, velocity, and from there to the target."""
    canvas = Canvas(1.6)
    x, y, vx, vy, dx, dy = map(float, seen[:6])
    canvas.box(0, 0, 1.5, 1.5, None, GREY)
    canvas.disc(x + dx, y + dy, 0.15, "#bfe3bf", GREEN)
    canvas.line([(x, y), (x + 0.5 * vx, y + 0.5 * vy)], GREY, 0.03)
    canvas.disc(x, y, 0.06, BLUE)
    return canvas.done()


def cover(seen: Observation) -> Image.Image:
    """samples/agents/cover.py, from the eyes of the first agent."""
    canvas = Canvas(1.3)
    x, y, other_x, other_y = map(float, seen[:4])
    for k in (4, 6):
        canvas.disc(x + float(seen[k]), y + float(seen[k + 1]), 0.2, "#bfe3bf", GREEN)
    canvas.disc(x, y, 0.06, BLUE)
    canvas.disc(x + other_x, y + other_y, 0.06, RED)
    return canvas.done()


def rolling_ball(seen: Observation) -> Image.Image:
    """samples/godot/rolling_ball from above, z downwards; the rays show what the ball knows of the pillars."""
    canvas = Canvas(5.7)
    numbers = [float(x) for x in seen]
    x, y, dx, dy = numbers[0] * 5, -numbers[1] * 5, numbers[4] * 5, -numbers[5] * 5
    canvas.box(0, 0, 5, 5, "#f0ece4", GREY)
    canvas.disc(x + dx, y + dy, 0.6, "#bfe3bf", GREEN)
    for i, part in enumerate(numbers[8:]):
        end = x + 3 * part * math.cos(i * math.pi / 4), y + 3 * part * math.sin(i * math.pi / 4)
        canvas.line([(x, y), end], "#dcd8d0" if part >= 1 else "#e8a0a0", 0.05)
        if part < 1:
            canvas.disc(*end, 0.12, RED)
    canvas.disc(x, y, 0.3, BLUE)
    return canvas.done()


def catcher(seen: Observation) -> Image.Image:
    """samples/godot/catcher from the side."""
    canvas = Canvas(3.6)
    numbers = [float(x) for x in seen]
    ground, cart = 3.3, numbers[0] * 3
    for side in (-3, 3):
        canvas.line([(side, -ground), (side, ground + 1)], GREY, 0.1)
    for k in (10, 12, 14):
        canvas.disc(numbers[k] * 3, numbers[k + 1] * 6 - ground, 0.2, GREY)
    for k in (2, 6):
        canvas.disc(cart + numbers[k] * 3, numbers[k + 1] * 6 - ground, 0.25, RED)
    canvas.box(cart, 0.1 - ground, 0.7, 0.1, INK)
    return canvas.done()


DRAWINGS: dict[str, Drawing] = {
    "cart_pole": cart_pole, "reach": reach, "cover": cover, "rolling_ball": rolling_ball, "catcher": catcher,
}  # fmt: skip


def small(picture: Image.Image, crop: tuple[float, float, float, float] | None = None) -> Image.Image:
    """At most SIZE wide, and of that what `crop` leaves, brighter."""
    if crop is not None:
        sides = (part * length for part, length in zip(crop, picture.size * 2, strict=True))
        picture = ImageEnhance.Brightness(picture.crop(tuple(map(round, sides)))).enhance(1.8)
    if picture.width <= SIZE:
        return picture
    return picture.resize((SIZE, round(picture.height * SIZE / picture.width)), Image.Resampling.LANCZOS)


def label(picture: Image.Image, text: str) -> Image.Image:
    """With a word above it, in a strip of its own."""
    sheet = Image.new("RGB", (picture.width, picture.height + LABEL), PAPER)
    sheet.paste(picture, (0, LABEL))
    ImageDraw.Draw(sheet).text((6, 3), text, INK, font=ImageFont.load_default(11))
    return sheet


def write_gif(pictures: Sequence[Image.Image], seconds: float, path: Path, most_bytes: int) -> None:
    """One palette for all; every second picture is left out until the file is small enough.

    Args:
        seconds: from one picture to the next.
    """
    step = 1
    while True:
        chosen = pictures[::step]
        sheet = Image.new("RGB", (chosen[0].width * 4, chosen[0].height))
        for column, picture in enumerate(chosen[:: max(1, len(chosen) // 4)][:4]):
            sheet.paste(picture, (column * picture.width, 0))
        palette = sheet.quantize(64, Image.Quantize.MEDIANCUT)
        first, *others = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in chosen]
        # a GIF counts hundredths of a second, and viewers slow down what is shown for less than two
        duration = max(20, round(seconds * step * 100) * 10)
        first.save(path, "GIF", save_all=True, append_images=others, duration=duration, loop=0, optimize=True)
        if path.stat().st_size <= most_bytes or len(chosen) < 8:
            return
        step *= 2


def beside(films: Sequence[tuple[str, Path]], path: Path, most_bytes: int) -> None:
    """One GIF of several that run side by side, each above its title: (title, GIF) from the left to the right."""
    opened = [(title, Image.open(film)) for title, film in films]
    height = max(film.height for _, film in opened)
    step = 0.07  # seconds of the film in each picture
    pictures = []
    for number in range(110):
        sheet = Image.new("RGB", (len(opened) * (SIZE + 12) - 12, height + 26), PAPER)
        for column, (title, film) in enumerate(opened):
            at = number * step * 1000 / film.info["duration"]
            film.seek(int(at) % film.n_frames)  # type: ignore[attr-defined]
            shown = film.convert("RGB")
            left = column * (SIZE + 12)
            sheet.paste(shown, (left, (height - shown.height) // 2))
            font = ImageFont.load_default(14)
            ImageDraw.Draw(sheet).text((left + SIZE / 2, height + 13), title, fill=INK, anchor="mm", font=font)
        pictures.append(sheet)
    write_gif(pictures, step, path, most_bytes)
