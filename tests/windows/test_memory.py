"""Shared memory on Windows: a named mapping, and waiting without a futex, under Wine."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.samples import building, cpp_engine
from tests.windows import wine
from ue_rl.protocol.memory.segment import Segment
from ue_rl.system.errors import ConfigurationError, EngineUnreachable

STEPS = 10_000
ENVS = 8
OBS = 6  # numbers of samples/cpp/reach_game.hpp
CLIENT = Path(__file__).with_name("client.c")
ENGINE = wine.ROOT / "samples" / "cpp" / "reach.cpp"
HEADERS = [
    *(wine.ROOT / "ue_rl" / "protocol" / "memory").glob("*.h"),
    *(wine.ROOT / "ue_rl" / "system").glob("*.h"),
    *(wine.ROOT / "samples" / "cpp").glob("*.hpp"),
]


def name(of: str) -> str:
    return f"ue_rl_{os.getpid()}_{of}"


def linux_rollout() -> bytes:
    engine = cpp_engine.made("reach")
    words = ["gcc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-o", "OUT", CLIENT, "-lrt"]
    client = building.built("client", words, [CLIENT, *HEADERS])
    with subprocess.Popen([engine, "--shm-name", name("linux"), "--num-envs", str(ENVS)]) as playing:
        try:
            done = subprocess.run([client, name("linux"), str(STEPS)], capture_output=True, check=False)
        finally:
            playing.terminate()
    assert done.returncode == 0, done.stderr
    return done.stdout


def wine_rollout(where: str, steps: int = STEPS) -> bytes:
    engine = wine.program(ENGINE, reads=HEADERS)
    client = wine.program(CLIENT, reads=HEADERS)
    with wine.start(engine, "--shm-name", where, "--num-envs", str(ENVS)) as playing:
        try:
            assert playing.stdout is not None
            assert playing.stdout.readline().startswith(b"PORT"), "it serves"
            return wine.run(client, where, str(steps), text=False)
        finally:
            playing.terminate()
            playing.communicate()


@pytest.mark.skipif(sys.platform != "linux", reason="the other rollout is Linux's")
@pytest.mark.skipif(shutil.which("g++") is None or shutil.which("gcc") is None, reason="gcc and g++ are not installed")
@wine.needs_wine
def test_a_rollout_over_a_named_mapping_is_equal_to_the_bit_to_linuxs() -> None:
    """The trainer's half is the compiled module's own C code, the engine the C++ header's."""
    rollout = wine_rollout(name("wine"))
    assert rollout == linux_rollout()
    rows = np.frombuffer(rollout, np.uint8).reshape(STEPS + 1, ENVS * (4 * OBS + 6))
    over, late = rows[:, -2 * ENVS : -ENVS], rows[:, -ENVS:]
    assert late.sum() > 1000
    assert over.sum() > late.sum()  # some arrive
    obs = np.ascontiguousarray(rows[:, : 4 * OBS * ENVS]).view(np.float32)
    assert np.isfinite(obs).all()
    assert len(np.unique(obs[:, 0])) > STEPS // 2


@wine.needs_wine
def test_a_segment_in_a_file_that_a_killed_engine_has_left_is_made_anew(tmp_path: Path) -> None:
    """For engines that can map nothing else, and for those that Windows ends without a word."""
    file = tmp_path / "segment"
    first = wine_rollout(wine.path(file), 100)
    assert file.stat().st_size > 4096
    assert wine_rollout(wine.path(file), 100) == first
    file.write_bytes(b"somebody's own" * 1000)
    with wine.start(wine.program(ENGINE, reads=HEADERS), "--shm-name", wine.path(file)) as refused:
        refused.communicate()
    assert refused.returncode == 1
    assert file.read_bytes() == b"somebody's own" * 1000


def test_a_name_is_of_the_users_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Local\\NAME, as the header's and C#'s, whoever runs it: a service's names would be global ones."""
    mappings: dict[str, int] = {}

    def open_mapping(access: int, inherit: bool, tagname: str) -> str:
        if tagname not in mappings:
            raise FileNotFoundError(tagname)
        return tagname

    def make_mapping(fd: int, size: int, tagname: str) -> Any:
        assert fd == -1
        assert mappings.setdefault(tagname, size) == size
        return SimpleNamespace(close=lambda: None)

    windows = SimpleNamespace(
        FILE_MAP_READ=4,
        OpenFileMapping=open_mapping,
        CloseHandle=lambda handle: None,
        MapViewOfFile=lambda handle, *numbers: handle,
        VirtualQuerySize=mappings.__getitem__,
        UnmapViewOfFile=lambda address: None,
    )
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "_winapi", windows)
        patched.setattr(mmap, "mmap", make_mapping)
        patched.setattr(sys, "platform", "win32")
        with pytest.raises(EngineUnreachable):
            Segment.open("lab")
        with Segment.create(8192, "lab"), Segment.open("lab") as opened:
            assert opened.size == 8192
            with pytest.raises(ConfigurationError, match="'lab' already"):
                Segment.create(4096, "lab")
    assert mappings == {"Local\\lab": 8192}
