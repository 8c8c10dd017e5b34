"""Engines in C++, C# and GDScript ask for a token as docs/protocol.md says, and Python's trainer proves it to them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

import ue_rl
from tests.samples import cpp_engine, godot_engine, unity_engine
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.testing.raw_client import RawClient
from ue_rl.system.errors import AccessRefused

Start = Callable[[Path, str], AbstractContextManager[int]]


@contextmanager
def cpp(folder: Path, token: str) -> Iterator[int]:
    with cpp_engine.running(cpp_engine.made("reach"), "--port", "0", "--num-envs", "2", "--token-file", token) as port:
        yield port


@contextmanager
def csharp(folder: Path, token: str) -> Iterator[int]:
    engine = unity_engine.compiled("engine.exe", *unity_engine.CONSOLE)
    with unity_engine.started([engine, "--port", "0", "--num-envs", "2", "--token-file", token]) as port:
        yield port


@contextmanager
def gdscript(folder: Path, token: str) -> Iterator[int]:
    with godot_engine.running(folder, f"--token-file={token}", num_envs=2) as engine:
        yield engine.port


@pytest.mark.parametrize(
    ("start", "tools"),
    [(cpp, ("g++",)), (csharp, ("mcs", "mono")), (gdscript, ("godot3-server",))],
    ids=["cpp", "csharp", "gdscript"],
)
def test_who_knows_the_token_is_served_and_nobody_else(tmp_path: Path, start: Start, tools: tuple[str, ...]) -> None:
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        pytest.skip(f"not installed: {' '.join(missing)}")
    if sys.platform == "win32" and start is cpp:
        pytest.skip("the header's Windows side was never run")
    token, wrong = tmp_path / "token", tmp_path / "wrong"
    token.touch(0o600)
    wrong.touch(0o600)
    token.write_text("a-token-that-is-longer-than-the-block-of-64-bytes-" * 2 + "\n")
    wrong.write_text("another-token-that-nobody-has\n")
    with start(tmp_path, str(token)) as port:
        url = f"tcp://127.0.0.1:{port}"
        for channel in ("shared", "per_env"):
            with closing(ue_rl.connect(url, channel=channel, token_file=token, wait=20, timeout=20)) as env:
                env.reset()
                for _ in range(5):
                    env.step(np.stack([env.action_space.sample() for _ in range(2)]))
                if channel == "shared":  # who is served does not notice
                    with pytest.raises(AccessRefused, match="asks for a token"):
                        open_transport(url)
                    with pytest.raises(AccessRefused, match="refused the token"):
                        open_transport(url, token_file=wrong)
                    with RawClient(("127.0.0.1", port)) as without:
                        assert without.line().startswith("AUTH=")
                        without.send("ACT=RESET;ENV=0\n")
                        assert without.line().startswith("ERROR=")
                    env.step(np.stack([env.action_space.sample() for _ in range(2)]))
