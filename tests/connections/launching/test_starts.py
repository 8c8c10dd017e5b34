"""LaunchedEngine: starts that fail, and ports that somebody else has."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.connections.launching.conftest import (
    SERVES,
    STARTED,
    engine_pid,
    gone,
    processes_with,
)
from tests.connections.launching.standing_in import Dialled, Listened, python
from ue_rl.connections.engines.lifecycle import LifeState as S
from ue_rl.connections.launching import ports
from ue_rl.connections.launching.engine import LaunchedEngine
from ue_rl.system.errors import (
    ConfigurationError,
    EngineNotStarted,
    HandshakeError,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
Make = Callable[..., LaunchedEngine]


@pytest.mark.parametrize(
    ("program", "why"), [("nope", "No such file or directory: nope"), ("text", "Permission denied")]
)
def test_what_is_no_program(make: Make, tmp_path: Path, program: str, why: str) -> None:
    (tmp_path / "text").write_text("text")
    life = Listened()
    with pytest.raises(EngineNotStarted, match=why):
        make(command=[program if program == "nope" else str(tmp_path / program), "{port}"]).open(life)
    assert life.states == [S.LAUNCHING, S.CONNECTION_LOST]


def test_an_exit_at_once_is_noticed_at_once(make: Make, slack: float) -> None:
    life, began = Listened(), time.monotonic()
    with pytest.raises(EngineNotStarted, match=r"(?s)exit code 4, before it listened.*no licence") as caught:
        make("import sys; print('no licence'); sys.exit(4)").open(life)
    assert time.monotonic() - began < 2.0 * slack
    assert "at fault: engine" in str(caught.value)
    assert life.states == [S.LAUNCHING, S.LOADING, S.CONNECTION_LOST]


def test_one_that_goes_on_in_the_background(make: Make) -> None:
    with pytest.raises(EngineNotStarted, match=r"exit code 0.*must stay in the foreground"):
        make("import os, time; os.fork() or time.sleep(60)").open(Listened())


def test_one_that_never_listens(make: Make, token: str, slack: float) -> None:
    life, patience = Listened(), round(0.3 * slack, 2)  # for the first lines of a Python process
    with pytest.raises(EngineNotStarted, match=rf"(?s)did not listen on port \d+ within {patience:g} s.*loading level"):
        make("import time; print('loading level', flush=True); time.sleep(60)", start_timeout=patience).open(life)
    assert life.states[-1] is S.TIMEOUT
    assert processes_with(token) == []


def test_one_that_starts_slowly(make: Make) -> None:
    make("import time; time.sleep(0.4)" + SERVES).open(Listened())


def test_one_that_dies_while_it_is_being_connected(make: Make, slack: float) -> None:
    """Its child still holds the connection: the keeper's report ends the wait."""
    code = SERVES.replace("c.sendall", "os.fork() and os._exit(7)\ntime.sleep(60)\nc.sendall")

    def handshake(url: str) -> Dialled:
        connection = Dialled(url)
        if connection.sock.recv(10) == b"":
            raise gone()
        return connection

    began, life = time.monotonic(), Listened()
    with pytest.raises(EngineNotStarted, match="exit code 7, while it was being connected"):
        make(code, open=handshake).open(life)
    assert time.monotonic() - began < 3.0 * slack
    assert life.states[-1] is S.CONNECTION_LOST


def test_a_handshake_that_is_wrong(make: Make, token: str) -> None:
    def refuse(url: str) -> Dialled:
        raise HandshakeError("no CONFIG", fault="engine")

    with pytest.raises(HandshakeError, match=r"(?s)no CONFIG; its process was still running and was killed"):
        make(open=refuse).open(Listened())
    assert processes_with(token) == []


def test_another_number_of_envs_is_refused_by_name(make: Make, token: str) -> None:
    with pytest.raises(ConfigurationError, match=r"(?s)num_envs\); expected 3; got 2.*Put \{num_envs\}"):
        make(num_envs=3).open(Listened())
    assert processes_with(token) == []


def test_ctrl_c_while_it_starts(make: Make, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(url: str) -> Dialled:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(open=interrupted).open(Listened())
    assert processes_with(token) == []


# -- ports


def test_a_port_that_somebody_else_took(make: Make, token: str) -> None:
    """After it was chosen, and before the engine listens: another one is tried."""
    taken: list[socket.socket] = []

    def find() -> ports.ReservedPort:
        port = ports.find()
        if not taken:
            taken.append(socket.create_server(("127.0.0.1", port.number)))
        return port

    life = Listened()
    with make(find_port=find).open(life).sock as connection:
        assert connection.recv(10) == b"hello\n"
    taken[0].close()
    assert life.states == [*STARTED[:2], S.CONNECTION_LOST, S.CLEANUP, *STARTED]
    assert "port" in life.changes[2].reason


def test_an_engine_that_does_not_mind_that_its_port_is_taken(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs on without listening; who listens there is older than it: nobody dials that."""
    taken: list[socket.socket] = []

    def find() -> ports.ReservedPort:
        port = ports.find()
        taken.append(socket.create_server(("127.0.0.1", port.number)))
        return port

    monkeypatch.setattr(psutil.Process, "create_time", lambda self: 0.0)
    with pytest.raises(EngineNotStarted, match=r"could not have its port: process \d+ \(.*\) listens on port"):
        make("import time; time.sleep(60)", find_port=find).open(Listened())
    assert len(taken) == 3
    for sock in taken:
        sock.close()


def test_a_command_without_a_port_is_dialled_on_the_usual_one(make: Make, token: str) -> None:
    port = ports.find()
    port.release()
    usual: dict[str, Any] = {"command": python(SERVES, token, str(port.number)), "usual_port": port.number}
    engine, life = make(**usual), Listened()
    for _ in range(2):  # the system remembers the first connection for a minute
        connection = engine.open(life)
        assert connection.url.endswith(str(port.number))
        assert connection.sock.recv(10) == b"hello\n"
        os.kill(engine_pid(token), signal.SIGKILL)
        assert connection.sock.recv(10) == b""
        life.to(S.CONNECTION_LOST)
        engine.lost(gone())
        life.to(S.CLEANUP)
    engine.open(life)
    other = make(**usual)
    with pytest.raises(EngineNotStarted, match=rf"(?s)port {port.number} belongs to .* another run.*\{{port\}}"):
        other.open(Listened())


def test_one_that_listens_on_ipv6(make: Make) -> None:
    if not ports.has_ipv6():
        pytest.skip("no IPv6 here")
    code = SERVES.replace('"127.0.0.1", int(sys.argv[2]))', '"::1", int(sys.argv[2])), family=socket.AF_INET6')
    assert make(code).open(Listened()).url.startswith("tcp://[::1]:")


@pytest.mark.parametrize("name", ["num_envs", "seed"])
def test_a_placeholder_without_a_value(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"no {name} was given"):
        LaunchedEngine(f"game {{port}} {{{name}}}", None, None, 0, None, Dialled)
