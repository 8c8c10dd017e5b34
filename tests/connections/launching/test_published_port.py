"""A port that is published for a game accepts before the game listens: who waits for an engine goes on waiting."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ue_rl
from tests.harness.published import PublishedPort
from tests.support.command_line import run
from tests.support.games import Sum
from tests.support.steps import advance, begin
from tests.support.waiting import when
from ue_rl.bridges import run_in_thread
from ue_rl.connections.dialling import open_transport
from ue_rl.protocol.access.server_access import ServerAccess
from ue_rl.protocol.spec import EnvSpec
from ue_rl.system import errors

CERTS = Path(__file__).parents[2] / "security" / "certs"
PORT = [sys.executable, "-m", "tests.harness.published", "--port", "{port}"]
COMMAND = [*PORT, "--late", "1"]


@pytest.fixture
def published() -> Iterator[PublishedPort]:
    port = PublishedPort()
    yield port
    port.close()


def test_who_waits_goes_on_where_connections_are_closed_before_a_word(
    published: PublishedPort, caplog: pytest.LogCaptureFixture
) -> None:
    with run_in_thread(Sum(EnvSpec(1, 1))) as game:
        opening = when(lambda: published.refused >= 2, lambda: published.open_to(game.port))
        with open_transport(f"tcp://127.0.0.1:{published.port}", wait=30.0) as transport:
            begin(transport)
            assert advance(transport).obs.tolist() == [[1]]
        opening.join()
    assert published.refused >= 2
    assert caplog.text.count("as a published port does whose game does not listen yet") == 1


def test_the_wait_has_an_end_and_without_one_the_first_counts(published: PublishedPort) -> None:
    url = f"tcp://127.0.0.1:{published.port}"
    with pytest.raises(errors.EngineDisconnected, match="sent no handshake") as caught:
        open_transport(url)
    assert caught.value.unheard
    assert published.refused == 1
    with pytest.raises(errors.EngineDisconnected, match="sent no handshake"):
        open_transport(url, wait=0.5)
    assert published.refused > 2


@pytest.mark.parametrize("guarded", ["token", "tls"])
def test_who_proves_a_token_or_speaks_tls_waits_too(published: PublishedPort, guarded: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a secret of these tests, no other\n")
    token.chmod(0o600)
    door = ServerAccess(token_file=token) if guarded == "token" else ServerAccess(tls_cert=CERTS / "engine.pem")
    url = f"tcp://127.0.0.1:{published.port}?token-file={token}"
    if guarded == "tls":
        url = f"tls://127.0.0.1:{published.port}?ca={CERTS / 'ca.pem'}"
    with run_in_thread(Sum(EnvSpec(1, 1)), access=door) as game:
        opening = when(lambda: published.refused >= 2, lambda: published.open_to(game.port))
        with open_transport(url, wait=30.0) as transport:
            begin(transport)
            assert advance(transport).obs.tolist() == [[1]]
        opening.join()
    assert published.refused >= 2


# A reset may come before the connection is made, or behind that: it takes some to meet both.
@pytest.mark.slow
@pytest.mark.parametrize("command", [COMMAND, [*PORT, "--late", "1.5", "--resets"]], ids=["closed", "reset"])
def test_a_launched_engine_behind_one_is_waited_for(command: list[str]) -> None:
    env = ue_rl.launch(command, start_timeout=60.0)
    env.reset()
    env.close()


@pytest.mark.exhaustive
def test_the_check_of_an_engine_that_it_starts_waits() -> None:
    said = run("check --timeout 2s --engine", shlex.join(COMMAND)).output
    assert "no-handshake" not in said
    assert "came after" in said
