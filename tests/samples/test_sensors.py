"""The sensors of samples/cpp, samples/unity and samples/godot give the same numbers for the same small world.

Each side has the world (circles on a plane) in a program of its own, tests/samples/sensors; what it should see is
computed here. Unity's and Godot's own eyes look at it as bodies: Godot's in its physics, Unity's in a stand-in.
"""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.samples import building
from tests.samples.godot_engine import GODOT, PROJECT, godot_environment, needs_godot

HERE, SAMPLES = Path(__file__).parent / "sensors", Path(__file__).resolve().parents[2] / "samples"
TAGS = ("wall", "ball")
RAYS, SPREAD, LENGTH = 7, 2.5, 5.0
ROWS, COLUMNS, CELL = 4, 3, 0.75
PLACES = ((0.0, 0.0, 0.0), (0.5, -0.25, 1.1), (-1.0, 2.0, -2.6), (0.0, 0.3, 2.8))
# The last is something that has no tag. No circle ends within 0.01 of a ray, or within 0.04 of a cell, whose corners
# are round in Bullet.
CIRCLES = ((2.0, 0.5, 0.4, 0), (1.2, -1.5, 0.5, 1), (-1.5, 0.3, 0.35, 1), (-0.4, 1.4, 0.6, 0), (0.3, -2.8, 0.7, 2))
FLOAT32 = 2.0**-24  # half a step of a float32 below 1
PRINTED = 0.5e-9 + FLOAT32  # %.9f of a double that is not rounded to float32
# float32 throughout: positions and their squares of up to 8, in steps of 2**-20; a grazing ray makes them some more
SINGLE = 1e-4
# Its rays end where the square of the gap is less than 1e-4 (btSubsimplexConvexCast), which a slanting ray sees double.
BULLET = 2 * math.sqrt(1e-4) / LENGTH

Side = Callable[[Path, str], tuple[list[str], list[list[float]]]]


def words(spread: float) -> str:
    """The world as its programs read it."""
    numbers: list[object] = [RAYS, spread, LENGTH, ROWS, COLUMNS, CELL, 2, len(PLACES)]
    numbers += [x for place in PLACES for x in place] + [len(CIRCLES)] + [x for circle in CIRCLES for x in circle]
    return " ".join(map(str, numbers))


def names() -> list[str]:
    one = [f"ray[{i}]/{what}" for i in range(RAYS) for what in (*TAGS, "distance")]
    one += [f"cell[{i}][{k}]/{tag}" for i in range(ROWS) for k in range(COLUMNS) for tag in TAGS]
    return [f"{name}[{age}]" for age in (-1, 0) for name in one]


def seen(place: tuple[float, float, float], spread: float) -> list[float]:
    x, y, heading = place
    row: list[float] = []
    for i in range(RAYS):
        angle = heading + (i / RAYS * math.tau if spread >= math.tau else (i / (RAYS - 1) - 0.5) * spread)
        way = complex(math.cos(angle), math.sin(angle))
        nearest, met = LENGTH, None
        for cx, cy, radius, tag in CIRCLES:
            to = complex(cx - x, cy - y) / way
            if to.real > 0 and abs(to.imag) < radius and to.real - math.sqrt(radius**2 - to.imag**2) < nearest:
                nearest, met = to.real - math.sqrt(radius**2 - to.imag**2), tag
        row += [float(met == tag) for tag in range(len(TAGS))] + [nearest / LENGTH]
    for i in range(ROWS):
        for k in range(COLUMNS):
            there = set()
            for cx, cy, radius, tag in CIRCLES:
                to = complex(cx - x, cy - y) / complex(math.cos(heading), math.sin(heading))
                off = to - complex(i - (ROWS - 1) / 2, k - (COLUMNS - 1) / 2) * CELL
                if math.hypot(max(abs(off.real) - CELL / 2, 0), max(abs(off.imag) - CELL / 2, 0)) < radius:
                    there.add(tag)
            row += [float(tag in there) for tag in range(len(TAGS))]
    return row


def said(command: list[object], **options: object) -> list[str]:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=60, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout).splitlines()


def cpp(_: Path, world: str) -> tuple[list[str], list[list[float]]]:
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-I", SAMPLES / "cpp"]
    reads = [HERE / "world.cpp", SAMPLES / "cpp" / "ue_rl_sensors.hpp"]
    lines = said([building.built("world", ["g++", *flags, "-o", "OUT", reads[0]], reads), world])
    return lines[0].split(), [[float(x) for x in line.split()] for line in lines[1:]]


def csharp(_: Path, world: str, *more: str) -> tuple[list[str], list[list[float]]]:
    sources = [*sorted(HERE.glob("*.cs")), SAMPLES / "unity" / "UeRlSensors.cs", SAMPLES / "unity" / "UeRlPhysics.cs"]
    command = ["mcs", "-langversion:7", "-warn:4", "-warnaserror+", "-out:OUT", *sources]
    lines = said(["mono", building.built("world.exe", command, sources), world, *more])
    return lines[0].split(), [[float(x) for x in line.split()] for line in lines[1:]]


def godot(home: Path, world: str, *more: str) -> tuple[list[str], list[list[float]]]:
    command = [GODOT, "--path", PROJECT, "-s", HERE / "world.gd", f"--world={world}", *more]
    lines = [line.partition(" ") for line in said(command, env=godot_environment(home))]
    found = {key: [rest for word, _, rest in lines if word == key] for key in ("NAMES", "ROW", "CLEAR")}
    assert found["CLEAR"] == ["0"]
    return found["NAMES"][0].split(), [[float(x) for x in row.split()] for row in found["ROW"]]


needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
needs_mono = pytest.mark.skipif(not (shutil.which("mcs") and shutil.which("mono")), reason="mono is not installed")


@pytest.mark.parametrize("spread", [SPREAD, 6.5], ids=["fan", "circle"])
@pytest.mark.parametrize(
    ("side", "tolerance"),
    [
        pytest.param(cpp, PRINTED, marks=needs_gcc, id="C++"),
        pytest.param(csharp, PRINTED, marks=needs_mono, id="C#"),
        pytest.param(lambda *a: csharp(*a, "physics"), SINGLE, marks=needs_mono, id="Unity's stand-in"),
        pytest.param(godot, PRINTED, marks=needs_godot, id="Godot"),
        pytest.param(lambda *a: godot(*a, "--physics"), BULLET, marks=needs_godot, id="Godot's physics"),
    ],
)
def test_a_world_is_seen_as_it_is(side: Side, tolerance: float, spread: float, tmp_path: Path) -> None:
    """The numbers, and the observation before them: zeros at first."""
    got_names, rows = side(tmp_path, words(spread))
    assert got_names == names()
    before = [0.0] * (len(names()) // 2)
    for place, row in zip(PLACES, rows, strict=True):
        wanted = seen(place, spread)
        assert row == pytest.approx(before + wanted, rel=0, abs=tolerance)
        before = wanted
    assert 0 < sum(before) < len(before)
