"""The engine of docs/protocol-in-ten-minutes.md runs as it stands there, and a trainer steps it."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ue_rl
from tests.docs.blocks import labelled
from tests.support.programs import program
from ue_rl.connections import MultiTcpConnection
from ue_rl.devtools import check as compliance
from ue_rl.devtools.testing import RawClient
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.limits import line_limit

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = "docs/protocol-in-ten-minutes.md"


def with_numbers(source: str) -> str:
    """The engine with the page's two lines."""
    cut, send = labelled(PAGE, "python numbers").splitlines()
    loop, answer = "makefile()):", 'trainer.sendall(("||".join(rows)'
    changed = source.replace("CHANNEL=SHARED", "CHANNEL=SHARED;FEATURES=SEQ")
    lines = []
    for line in changed.splitlines():
        lines.append(line[: line.index(answer)] + send if answer in line else line)
        if loop in line:
            lines.append(f"{' ' * 12}{cut}")
    assert len(lines) == len(source.splitlines()) + 1
    return "\n".join(lines)


@pytest.fixture(params=["as it stands", "with numbers"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    """The page's engine as a process of its own, without ue_rl."""
    source = labelled(PAGE, "python engine")
    assert "ue_rl" not in source
    with program(source if request.param == "as it stands" else with_numbers(source), "-I") as number:
        yield number


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
    assert connection.last_number == (6 if "SEQ" in connection.spec.features else 0)
    connection.close()


def test_the_picture_shows_what_it_says(port: int) -> None:
    script = runpy.run_path(str(DOCS / "protocol_drawing.py"))
    assert script["PICTURE"].read_text("utf-8") == script["drawing"](), "python docs/protocol_drawing.py"
    with RawClient(("127.0.0.1", port)) as client:
        assert client.line().replace(";FEATURES=SEQ", "") == script["CONFIG"]
        for _, ask, times, answer in script["SESSION"]:
            assert [client.ask(ask) for _ in range(times)][-1] == answer


@pytest.mark.slow
@pytest.mark.parametrize(
    "port", ["with numbers", pytest.param("as it stands", marks=pytest.mark.exhaustive)], indirect=True
)
def test_its_side_of_the_protocol_is_right(port: int) -> None:
    report = compliance.check(f"tcp://127.0.0.1:{port}", compliance.Options(timeout=20.0))
    assert report.mistakes == [], report
    assert report.count(compliance.Verdict.PASS) > 30


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
def test_the_line_limit_is_the_formula_of_section_9(features: frozenset[str], obs: int, act: int) -> None:
    assert "1024 + 48 x ENV_COUNT x max(OBS + 1, ACT) + E x ENV_COUNT bytes" in (DOCS / "protocol.md").read_text(
        "utf-8"
    )
    room = 65_536 if "INFO" in features else 64
    assert line_limit(EnvSpec(obs, act, num_envs=5, features=features)) == 1024 + 48 * 5 * max(obs + 1, act) + room * 5
