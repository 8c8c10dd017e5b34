"""samples/fifty_lines: one small engine in four languages. Each is short, right, and passes `ue-rl check`."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import ue_rl
import ue_rl.compliance
from ue_rl import compliance

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
FOLDER = SAMPLES / "fifty_lines"
PAGE = ROOT / "docs" / "fifty-lines.md"
NUM_ENVS, MAX_STEPS, PUSH = 4, 100, np.float32(0.1)


def python(folder: Path) -> Callable[[int], list[str]]:
    return lambda port: [sys.executable, str(FOLDER / "carts.py"), str(port)]


def cpp(folder: Path) -> Callable[[int], list[str]]:
    if sys.platform == "win32":
        pytest.skip("the header's Windows side was never run")
    build = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread", "-I", str(SAMPLES / "cpp")]
    _run([*build, "-o", str(folder / "carts"), str(FOLDER / "carts.cpp"), "-lrt"])
    return lambda port: [str(folder / "carts"), str(port)]


def csharp(folder: Path) -> Callable[[int], list[str]]:
    sources = [str(SAMPLES / "unity" / "UeRlBridge.cs"), str(FOLDER / "Carts.cs")]
    _run(["mcs", "-langversion:7", "-warnaserror+", f"-out:{folder / 'carts.exe'}", *sources])
    return lambda port: ["mono", str(folder / "carts.exe"), str(port)]


def gdscript(folder: Path) -> Callable[[int], list[str]]:
    command = ["godot3-server", "--path", str(SAMPLES / "godot"), "-s", str(FOLDER / "carts.gd"), "--fixed-fps", "60"]
    return lambda port: [*command, f"--port={port}"]


MAKERS = {
    "carts.py": (python, ()), "carts.cpp": (cpp, ("g++",)), "Carts.cs": (csharp, ("mcs", "mono")),
    "carts.gd": (gdscript, ("godot3-server",)),
}  # fmt: skip
built: dict[str, Callable[[int], list[str]]] = {}


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(params=MAKERS)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The engine's URL; compiled once."""
    make, programs = MAKERS[request.param]
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    folder = tmp_path_factory.mktemp("carts")
    if request.param not in built:
        built[request.param] = make(folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with running(built[request.param](port), folder):
        yield f"tcp://127.0.0.1:{port}"


@contextmanager
def running(command: list[str], home: Path) -> Iterator[None]:
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT)}  # Godot writes its settings there
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        try:
            yield
            assert process.poll() is None, "it must go on after its trainers"
        finally:
            process.kill()


@pytest.mark.parametrize("name", MAKERS)
def test_it_has_at_most_fifty_lines(name: str) -> None:
    assert len((FOLDER / name).read_text("utf-8").splitlines()) <= 50


@pytest.mark.parametrize("name", MAKERS)
def test_the_page_shows_the_file_as_it_is(name: str) -> None:
    blocks = re.findall(r"```\w+ engine\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    assert (FOLDER / name).read_text("utf-8") in blocks


def test_a_rollout_is_that_of_the_game(engine: str) -> None:
    """Two episodes of every cart: pushed out of the field, and left alone until the limit; then seeds."""
    env = ue_rl.connect(engine, timeout=20, wait=20)
    try:
        first = env.reset()
        assert first.shape == (NUM_ENVS, 2)
        assert len(set(first[:, 0].tolist())) == NUM_ENVS, "each cart begins somewhere else"
        np.testing.assert_array_equal(first[:, 1], 0)
        after_the_wall = roll(env, first, np.array([1, -1, 0, 0.05], np.float32))
        env.seed(7)
        again = env.reset()
        roll(env, again, np.zeros(NUM_ENVS, np.float32))
        env.seed(7)
        np.testing.assert_array_equal(env.reset(), again)
        env.seed(8)
        assert (env.reset()[:, 0] != again[:, 0]).all()
        assert (after_the_wall[:, 1] == 0).all()
    finally:
        env.close()


def roll(env: ue_rl.UnrealVecEnv, obs: np.ndarray, push: np.ndarray) -> np.ndarray:
    """One episode of each env, with the same push in all steps; the first observations of the next ones."""
    x, speed = obs.astype(np.float64).T
    begun: dict[int, np.ndarray] = {}
    for step in range(1, MAX_STEPS + 1):
        speed = speed + 0.1 * push
        x = x + speed
        seen, rewards, dones, infos = env.step(push[:, None])
        for row in set(range(NUM_ENVS)) - set(begun):
            lost, late = abs(x[row]) > 3, step == MAX_STEPS
            last = infos[row]["terminal_observation"] if dones[row] else seen[row]
            assert last == pytest.approx([x[row], speed[row]], abs=2e-4)
            assert rewards[row] == pytest.approx(1 - abs(x[row]), abs=2e-4)
            assert dones[row] == (lost or late)
            if dones[row]:
                assert infos[row].get("TimeLimit.truncated", False) == (late and not lost)
                begun[row] = seen[row].copy()
    return np.stack([begun[row] for row in range(NUM_ENVS)])


def test_ue_rl_check_finds_nothing(engine: str) -> None:
    ue_rl.connect(engine, timeout=20, wait=20).close()  # it listens, and serves one trainer after the other
    report = compliance.check(engine)
    found = [f for f in report.findings if f.outcome in (compliance.Outcome.FAIL, compliance.Outcome.WARN)]
    assert not found, "\n".join(map(str, found))
    assert report.count(compliance.Outcome.PASS) > 3


def test_the_checker_finds_nothing(engine: str) -> None:
    ue_rl.connect(engine, timeout=20, wait=20).close()  # it listens
    report = ue_rl.compliance.check(engine)
    assert report.mistakes == [], report
