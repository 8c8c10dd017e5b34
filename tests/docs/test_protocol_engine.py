"""The engine of docs/protocol.md runs as it stands there, and a trainer steps it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import ue_rl
from ue_rl import compliance
from ue_rl.connections import MultiTcpConnection
from ue_rl.spec import EnvSpec
from ue_rl.wire.codec import line_limit

PAGE = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The page's engine as a process of its own, without ue_rl."""
    (source,) = re.findall(r"```python engine\n(.*?)```", PAGE.read_text("utf-8"), re.S)
    assert "ue_rl" not in source
    with _running(source, tmp_path) as number:
        yield number


@contextmanager
def _running(source: str, folder: Path) -> Iterator[int]:
    """The port of an engine that runs, and listens or soon will."""
    script = folder / "engine.py"
    script.write_text(source, "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = int(free.getsockname()[1])
    with subprocess.Popen([sys.executable, "-I", str(script), str(number)]) as engine:
        with socket.socket() as probe:
            while probe.connect_ex(("127.0.0.1", number)) and engine.poll() is None:
                time.sleep(0.02)
        yield number
        engine.kill()


def test_a_trainer_steps_it(port: int) -> None:
    connection = MultiTcpConnection("127.0.0.1", port, wait=20, timeout=20)
    assert connection.connect().num_envs == 2
    connection.reset()
    np.testing.assert_array_equal(connection.receive().obs, [[0], [0]])
    for step in range(1, 4):
        connection.send_actions(np.array([[1.0], [-0.25]], np.float32))
        answer = connection.receive()
        np.testing.assert_array_equal(answer.obs, [[step], [-0.25 * step]])
        np.testing.assert_array_equal(answer.rewards, [-step, -0.25 * step])
        np.testing.assert_array_equal(answer.dones, [step == 3, 0])
    connection.reset([0])  # the other env stays where it is
    np.testing.assert_array_equal(connection.receive().obs[0], [0])
    connection.send_actions(np.zeros((2, 1), np.float32))
    np.testing.assert_array_equal(connection.receive().obs, [[0], [-0.75]])
    connection.close()


def test_its_side_of_the_protocol_is_right(port: int) -> None:
    report = compliance.check(f"tcp://127.0.0.1:{port}")
    assert report.mistakes == [], report
    assert report.count(compliance.Outcome.PASS) > 30


def test_it_echoes_the_numbers_of_requests_by_the_two_lines_of_the_footnote(tmp_path: Path) -> None:
    text = PAGE.read_text("utf-8")
    (source,) = re.findall(r"```python engine\n(.*?)```", text, re.S)
    reads, writes = re.findall(r"`([^`]+)`", text[text.index("\n[^seq]:") :])[1:3]
    for old, new in (
        ("CHANNEL=SHARED", "CHANNEL=SHARED;FEATURES=SEQ"),
        ("            rows = []\n", f"            {reads}\n            rows = []\n"),
        ('"||".join(rows)', f'"||".join(rows) {writes}'),
    ):
        assert source.count(old) == 1
        source = source.replace(old, new)
    with _running(source, tmp_path) as port:
        report = compliance.check(f"tcp://127.0.0.1:{port}")
        assert report.mistakes == [], report
        assert "SEQ" in report.handshake


def test_one_trainer_after_the_other_and_episodes_end(port: int) -> None:
    for _ in range(2):
        env = ue_rl.connect(f"tcp://127.0.0.1:{port}", wait=20, timeout=20)
        env.reset()
        ended = []
        for _ in range(7):
            obs, _, dones, infos = env.step(np.ones((2, 1), np.float32))
            ended += [infos[i]["terminal_observation"][0] for i in np.flatnonzero(dones)]
        assert ended == [3] * 4
        np.testing.assert_array_equal(obs, [[1], [1]])
        env.close()


@pytest.mark.parametrize("features", [frozenset[str](), frozenset({"INFO"}), frozenset({"SEED"})])
@pytest.mark.parametrize(("obs", "act"), [(3, 7), (7, 3)])
def test_the_line_limit_is_the_formula_of_section_7(features: frozenset[str], obs: int, act: int) -> None:
    assert "1024 + 48 x ENV_COUNT x max(OBS + 1, ACT) + E x ENV_COUNT bytes" in PAGE.read_text("utf-8")
    room = 65_536 if "INFO" in features else 64
    assert line_limit(EnvSpec(obs, act, num_envs=5, features=features)) == 1024 + 48 * 5 * max(obs + 1, act) + room * 5
