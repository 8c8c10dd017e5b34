"""What errors advise can be done with the command that prints them, and a port says what it wants of who dials it."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

import ue_rl
from tests.support.command_line import refused, run
from tests.support.games import Steps, Sum
from tests.support.slack import patient
from ue_rl.bridges import ShmUpgrader, run_in_thread
from ue_rl.cli import cli
from ue_rl.connections.dialling import open_transport
from ue_rl.connections.launching.template import Template
from ue_rl.connections.shm.upgrade import UpgradeRefused
from ue_rl.devtools.check import Options, check
from ue_rl.devtools.check.checks import CHECKS
from ue_rl.protocol.access.client_access import ClientAccess
from ue_rl.protocol.access.server_access import ServerAccess
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system import errors

ROOT = Path(__file__).parents[2]
CERTS = ROOT / "tests" / "security" / "certs"
# Who dials an engine: what all of these print may name only what all of them have.
DIALS = ("train", "check", "inspect", "play")


def file_of(thing: Any) -> str:
    """Where a class or a module is defined."""
    return Path(inspect.getfile(thing)).resolve().relative_to(ROOT).as_posix()


SHARED = ("connections/tcp", "connections/shm", "connections/base", file_of(ClientAccess), "ue_rl/protocol/text")
# Said only where restarts, or another dial, were asked for.
LOST = ("connections/engines", "connections/launching")
LOSES = ("train",)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def options_of(name: str) -> set[str]:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return {word for each in command.params for word in each.opts}


def named(places: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(file, option) of each option that a text in the code names, docstrings aside."""
    for place in places:
        path = ROOT / place
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            tree = ast.parse(file.read_text("utf-8"))
            docs = {
                node.body[0].value
                for node in ast.walk(tree)
                if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and node.body
                and isinstance(node.body[0], ast.Expr)
            }  # fmt: skip
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docs:
                    for option in OPTION.findall(node.value):
                        yield file.relative_to(ROOT).as_posix(), option


@pytest.mark.parametrize(("places", "commands"), [(SHARED, DIALS), (LOST, LOSES)])
def test_an_error_names_no_option_that_its_command_lacks(places: tuple[str, ...], commands: tuple[str, ...]) -> None:
    theirs = {  # of programs that are not ours, or of the engine's command, which the text names
        (file_of(Template), option) for option in ("--port", "--seed", "--envs", "--fixed-fps", "--path")
    } | {
        (file_of(Template), "--headless"),
        (file_of(UpgradeRefused), "--shm"),
    }  # `ue-rl serve --shm`
    had = set.intersection(*[options_of(name) for name in commands])
    lacking = [(file, option) for file, option in named(places) if option not in had and (file, option) not in theirs]
    assert lacking == []


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("a secret of these tests, no other\n")
    path.chmod(0o600)
    return path


@contextmanager
def engine(**access: Any) -> Iterator[Any]:
    upgrader = ShmUpgrader() if "tls_cert" not in access else None
    game = Sum(EnvSpec(2, 1, num_envs=2))
    with run_in_thread(game, upgrader=upgrader, access=ServerAccess(**access)) as running:
        yield running


def test_the_check_proves_a_token(token: Path) -> None:
    with engine(token_file=token) as running:
        plain = run("check", running.url)
        assert isinstance(plain.exception, errors.AccessRefused)
        assert "bad-handshake" not in plain.output
        first = {CHECKS[0].name}
        for url, options in (
            (running.url, Options(timeout=20.0, token_file=token)),
            (f"{running.url}?token-file={token}", Options(timeout=20.0)),
        ):
            report = check(url, options, only=first)
            assert report.handshake.startswith("CONFIG:")
            assert "shared memory" in {finding.carrier for finding in report.findings}
            assert report.exit_code == 0


@pytest.mark.parametrize("command", ["check", "inspect", "play --actor random --episodes 1"])
def test_who_dials_without_a_token_is_told_what_this_command_can_take(command: str, token: Path) -> None:
    with engine(token_file=token) as running:
        error = refused(command, running.url, by=errors.AccessRefused)
        assert "tcp://HOST:PORT?token-file=FILE" in str(error)
        assert "--token-file" not in str(error)


def test_a_wrong_token_is_told_in_words(token: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("another secret of these tests\n")
    wrong.chmod(0o600)
    with engine(token_file=token) as running:
        with pytest.raises(errors.AccessRefused, match="got its token is wrong"):
            open_transport(running.url, token_file=wrong)


@pytest.mark.slow
def test_a_plain_dial_of_a_port_that_speaks_tls(slack: float, caplog: pytest.LogCaptureFixture) -> None:
    with engine(tls_cert=CERTS / "engine.pem", patience=0.3) as running:
        place = running.url.removeprefix("tls://")
        with pytest.raises(errors.EngineDisconnected, match="this port speaks TLS: dial tls://") as caught:
            open_transport(f"tcp://{place}", connect_timeout=20 * slack)
        assert "Dial tls://" in str(caught.value)
        assert caught.value.fault == "caller"
    with engine(tls_cert=CERTS / "engine.pem", patience=60.0) as running:
        place = running.url.removeprefix("tls://")
        error = refused(f"check --timeout {patient(0.5):.1f}s", f"tcp://{place}", by=errors.AccessRefused)
        assert "this port speaks TLS" in str(error)
        with pytest.raises(errors.HandshakeError, match=r"Does the port speak TLS \(then dial tls://\), is another"):
            open_transport(f"tcp://{place}", connect_timeout=2.0 + 0.5 * slack)  # the hint comes after 2 s
    assert "does the port speak TLS (then dial tls://)" in caplog.text, "the hint while it is waited for"


class Slow(Steps):
    """Its first answer takes longer than anybody waits."""

    def runs(self, env: int) -> int:
        return 10**9


def test_an_engine_that_is_slower_than_the_timeout_names_the_timeout() -> None:
    with run_in_thread(Slow(EnvSpec(1, 1)), tick_rate=20.0) as running:
        with open_transport([running.url], timeout=0.2, reconnect=20.0, restarts="1/60s") as transport:
            with pytest.raises(errors.RestartsSpent) as caught:
                for _ in range(5):
                    transport.reset()
                    transport.receive()
                    transport.send_actions(nothing())
                    transport.receive()
    assert "--timeout" in str(caught.value)
    assert "--restarts" not in str(caught.value), "more of them end in the same way"


def nothing() -> Any:
    import numpy as np

    return np.zeros((1, 1), np.float32)


@pytest.mark.exhaustive
def test_so_does_one_that_was_launched(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(
        "import sys\nfrom tests.cli.test_advice import Slow\nfrom ue_rl.bridges import serve\n"
        "from ue_rl.protocol.spec import EnvSpec\nserve(Slow(EnvSpec(1, 1)), port=int(sys.argv[1]), tick_rate=20.0)\n"
    )
    env = ue_rl.launch([sys.executable, str(script), "{port}"], timeout=0.5, restarts="1/60s")
    with pytest.raises(errors.RestartsSpent) as caught:
        for _ in range(5):
            env.reset()
            env.step(nothing())
    env.close()
    assert "--timeout" in str(caught.value)
    assert "It printed last" in str(caught.value)
