"""samples/fifty_lines: one small engine in four languages. Each is short, right, and passes `ue-rl check`."""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from _pytest.mark.structures import ParameterSet

import ue_rl
from samples.fifty_lines.stairs import Stairs
from tests.samples import building
from tests.support.listening import free_port
from ue_rl.bridges import run_in_thread
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools import check as compliance

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
FOLDER = SAMPLES / "fifty_lines"
PAGE = ROOT / "docs" / "fifty-lines.md"
NUM_ENVS, MAX_STEPS, PUSH = 4, 100, np.float32(0.1)


def python() -> list[str]:
    return [sys.executable, str(FOLDER / "carts.py"), "PORT"]


def cpp() -> list[str]:
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread", "-I", SAMPLES / "cpp"]
    source, headers = FOLDER / "carts.cpp", (SAMPLES / "cpp").glob("*.hpp")
    return [str(building.built("carts", ["g++", *flags, "-o", "OUT", source, "-lrt"], [source, *headers])), "PORT"]


def csharp() -> list[str]:
    sources = [SAMPLES / "unity" / "UeRlBridge.cs", FOLDER / "Carts.cs"]
    words = ["mcs", "-langversion:7", "-warnaserror+", "-out:OUT", *sources]
    return ["mono", str(building.built("carts.exe", words, sources)), "PORT"]


def gdscript() -> list[str]:
    command = ["godot3-server", "--path", str(SAMPLES / "godot"), "-s", str(FOLDER / "carts.gd"), "--fixed-fps", "60"]
    return [*command, "--port=PORT"]


MAKERS = {"carts.py": python, "carts.cpp": cpp, "Carts.cs": csharp, "carts.gd": gdscript}
NEEDS = {"carts.cpp": ("g++",), "Carts.cs": ("mcs", "mono"), "carts.gd": ("godot3-server",)}


def _param(name: str) -> ParameterSet:
    missing = [tool for tool in NEEDS.get(name, ()) if shutil.which(tool) is None]
    if name == "carts.cpp" and sys.platform == "win32":
        missing = ["a system on which the header was run"]
    return pytest.param(name, marks=pytest.mark.skipif(bool(missing), reason=f"not there: {' '.join(missing)}"))


of_each_language = pytest.mark.parametrize("name", [*map(_param, MAKERS)])


@contextmanager
def running(name: str) -> Iterator[str]:
    """The engine's URL."""
    port = free_port()
    command = [word.replace("PORT", str(port)) for word in MAKERS[name]()]
    with tempfile.TemporaryDirectory() as home:  # Godot writes its settings there
        environment = {**os.environ, "HOME": home, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
            try:
                yield f"tcp://127.0.0.1:{port}"
                assert process.poll() is None, "it must go on after its trainers"
            finally:
                process.kill()


@pytest.mark.parametrize("name", MAKERS)
def test_it_has_at_most_fifty_lines(name: str) -> None:
    assert len((FOLDER / name).read_text("utf-8").splitlines()) <= 50


@pytest.mark.parametrize("name", MAKERS)
def test_the_page_shows_the_file_as_it_is(name: str) -> None:
    page = runpy.run_path(str(ROOT / "docs" / "catalogue.py"))["filled"](PAGE.read_text("utf-8"))
    blocks = re.findall(r"```\w+(?: engine)?\n(.*?)```", page, re.S)
    assert (FOLDER / name).read_text("utf-8") in blocks


@of_each_language
def test_a_rollout_is_that_of_the_game(name: str) -> None:
    """Two episodes of every cart: pushed out of the field, and left alone until the limit; then seeds."""
    with running(name) as engine, contextlib.closing(ue_rl.connect(engine, timeout=20, wait=20)) as env:
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


def checked_in_each_run() -> Iterator[ParameterSet]:
    """Python's; the others run on bridges that are checked with the games of their own samples."""
    for name in MAKERS:
        marks = [*_param(name).marks]
        if name != "carts.py":
            marks.append(pytest.mark.exhaustive.mark)
        yield pytest.param(name, marks=marks)


def checked(name: str) -> compliance.CheckReport:
    with running(name) as engine:
        open_transport(engine, timeout=20, wait=20).close()  # it listens, and serves one trainer after the other
        return compliance.check(engine, compliance.Options(timeout=20.0))


@pytest.mark.slow
@pytest.mark.ahead(job=checked)
@pytest.mark.parametrize("name", [*checked_in_each_run()])
def test_ue_rl_check_finds_nothing(name: str, result: compliance.CheckReport) -> None:
    found = [f for f in result.findings if f.outcome in (compliance.Verdict.FAIL, compliance.Verdict.WARN)]
    assert not found, "\n".join(map(str, found))
    assert result.mistakes == [], result
    assert result.count(compliance.Verdict.PASS) > 3


@pytest.mark.exhaustive
def test_ue_rl_check_finds_nothing_in_the_other_game() -> None:
    with run_in_thread(Stairs()) as server:
        assert compliance.check(server.url).mistakes == []


def test_the_other_game() -> None:
    with run_in_thread(Stairs()) as server:
        env = ue_rl.connect(server.url)
        env.set_params({"top": 2})
        assert {name: part[0].tolist() for name, part in env.reset().items()} == {"step": [0], "top": [2]}
        assert env.env_method("action_masks")[0].tolist() == [0, 1, 1]
        env.step(np.full(4, 2))
        _, rewards, dones, infos = env.step(np.full(4, 2))
        assert dones.all()
        assert rewards == pytest.approx(-0.1)
        assert infos[3]["left"] == 0
        env.close()
