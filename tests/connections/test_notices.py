"""BUSY and ERROR: a trainer that has to wait, and one whose session ends, learn why; unknown words of a handshake."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.harness.engines.saying import Saying
from tests.harness.lab import Lab
from tests.support.clocks import EngineClock, fast
from tests.support.listening import engine
from tests.support.steps import advance, begin
from tests.support.waiting import eventually
from ue_rl.bridges import ShmUpgrader, run_in_thread
from ue_rl.cli.do_nothing import DoNothingBridge
from ue_rl.connections import MultiTcpConnection, open_engine
from ue_rl.connections.tcp import greeting
from ue_rl.connections.tcp.link import Link
from ue_rl.devtools.testing import RawClient
from ue_rl.protocol.calls.asking import EngineCalls
from ue_rl.system import errors
from ue_rl.system.timing import SYSTEM_TIMING

UNICODE = "d\u00e9faut \u2014 \u58ca\u308c\u305f \U0001f525 a;b|c=%"


@pytest.fixture(params=["shared", "per_env"])
def channel(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def trainer(server: Any, **options: Any) -> MultiTcpConnection:
    return MultiTcpConnection("127.0.0.1", server.port, **{"timeout": 20.0, **options})


# -- BUSY


# A tenth of the second that a session has which is just ending; the test behind it waits for all of that once.
HASTY = fast(10)


@pytest.mark.parametrize("spoken", [True, False], ids=["has reset", "only connected"])
def test_a_second_trainer_is_told_at_once(channel: str, spoken: bool, slack: float) -> None:
    with run_in_thread(DoNothingBridge(2), port=0) as server, trainer(server, channel=channel) as first:
        if spoken:
            begin(first)
        for transport in ("tcp", "auto"):
            timing = HASTY
            if (channel, spoken, transport) == ("shared", True, "tcp"):
                timing = SYSTEM_TIMING
            began = time.monotonic()
            with pytest.raises(errors.EngineBusy) as caught:
                open_engine("127.0.0.1", server.port, transport=transport, timeout=300.0, timing=timing)
            assert time.monotonic() - began < 3 * slack
        said = str(caught.value)
        assert f"the engine on 127.0.0.1:{server.port} serves a trainer at 127.0.0.1:" in said
        assert "connected for" in said
        assert "wait=SECONDS" in said
        assert isinstance(caught.value, errors.EngineUnreachable)
        begin(first)  # it has noticed nothing
        advance(first, 0)


def test_an_engine_that_is_busy_and_gone_is_busy() -> None:
    """Its line can still be read, and the system does not know any more who had sent it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dialled = socket.create_connection(listener.getsockname())
        accepted = listener.accept()[0]
        accepted.sendall(b"BUSY\n")
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()  # with a reset
        with contextlib.closing(Link(dialled, 1000)) as link:
            eventually(lambda: link.peer is None)
            with pytest.raises(errors.EngineBusy, match="the engine serves another trainer"):
                greeting.hear_handshake(link, 5, time.monotonic())


def test_a_trainer_that_waits_gets_its_turn(channel: str) -> None:
    with run_in_thread(DoNothingBridge(2), port=0) as server:
        first = trainer(server, channel=channel)
        begin(first)
        second = trainer(server, channel=channel, timeout=300.0, wait=300.0, timing=HASTY)
        thread = threading.Thread(target=begin, args=(second,))
        thread.start()
        time.sleep(0.3)  # longer than what is given to a session that is just ending
        assert thread.is_alive()
        advance(first, 0)
        first.close()
        thread.join(20)
        assert not thread.is_alive()
        advance(second, 0)
        second.close()


def test_a_trainer_that_waits_in_vain_says_for_whom(slack: float) -> None:
    with run_in_thread(DoNothingBridge(1), port=0) as server, trainer(server) as first:
        begin(first)
        address = first._admin.sock.getsockname()  # type: ignore[union-attr]
        began = time.monotonic()
        with pytest.raises(errors.EngineBusy, match=f"a trainer at 127.0.0.1:{address[1]}, connected for"):
            trainer(server, timeout=300.0, wait=3.0, timing=HASTY).connect()
        assert 0.2 < time.monotonic() - began < 4 * slack


@pytest.mark.parametrize("upgrade", [False, True], ids=["text", "shared memory"])
def test_one_trainer_right_after_the_other_is_never_refused(channel: str, upgrade: bool) -> None:
    with run_in_thread(DoNothingBridge(2), port=0, upgrader=ShmUpgrader() if upgrade else None) as server:
        for _ in range(15):
            if upgrade:
                connection: Any = open_engine("127.0.0.1", server.port, timeout=20.0)
            else:
                connection = trainer(server, channel=channel)
            begin(connection)
            advance(connection, 0)
            connection.close()


def test_trainers_that_take_turns_under_load(channel: str) -> None:
    """Env sockets of two trainers cannot be told apart while they are opened: those come one after the other."""
    done: list[int] = []
    in_turn: Any = contextlib.nullcontext() if channel == "shared" else threading.Lock()

    def train(number: int) -> None:
        connection = trainer(server, channel=channel, wait=60.0)
        with in_turn:
            connection.connect()
        with connection:
            begin(connection)
            for _ in range(20):
                advance(connection, 0)
            done.append(number)

    with run_in_thread(DoNothingBridge(4), port=0) as server:
        threads = [threading.Thread(target=train, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(done) == list(range(8))
        assert server.host.sessions == 8


def test_two_that_wait_do_not_fall_into_one_session() -> None:
    """The second one's first connection is no env socket of the first one's session."""
    with run_in_thread(DoNothingBridge(1), port=0) as server:
        with RawClient(("127.0.0.1", server.port)) as first:
            first.line()
            first.ask("ACT=RESET;ENV=0")
            one, two = RawClient(("127.0.0.1", server.port)), RawClient(("127.0.0.1", server.port))
            assert one.line().startswith("BUSY")
            assert two.line().startswith("BUSY")
        assert one.line().startswith("CONFIG")
        assert one.ask("ACT=RESET;ENV=0").startswith("OBS=")
        one.close()
        assert two.line().startswith("CONFIG")
        two.close()


def test_port_probes_trouble_nobody(channel: str) -> None:
    with run_in_thread(DoNothingBridge(3), port=0) as server:

        def probe(count: int = 3) -> None:
            for _ in range(count):
                socket.create_connection(("127.0.0.1", server.port)).close()

        probe()
        with trainer(server, channel=channel) as connection:
            if channel == "shared":
                probe()
            begin(connection)
            probe()
            advance(connection, 0)


def test_what_a_trainer_left_that_died_while_it_connected_opens_no_session() -> None:
    with run_in_thread(DoNothingBridge(64), port=0) as server:
        for _ in range(5):
            links = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
            for link in links:
                link.close()
            with trainer(server, channel="per_env") as connection:
                begin(connection)


def test_an_old_engine_says_nothing_of_it() -> None:
    with run_in_thread(Lab(1, version=0), port=0) as server:
        with RawClient(("127.0.0.1", server.port)) as first, RawClient(("127.0.0.1", server.port)) as second:
            first.line()
            with RawClient(("127.0.0.1", server.port)) as third:
                second.ask("ACT=RESET;ENV=0")
                first.send("nonsense\n")
                time.sleep(0.1)
                assert not third.has_data()


@pytest.mark.parametrize(
    ("said", "kind", "parts"),
    [
        (b"BUSY\n", errors.EngineBusy, ["serves another trainer", "wait="]),
        (b"busy ; since=61.4 ; peer=10.0.0.7:5 ; x=1\r\n", errors.EngineBusy, ["10.0.0.7:5", "61 s"]),
        (b"BUSY;SINCE=soon\n", errors.EngineBusy, ["another trainer"]),
        (b"ERROR=no%20GPU%3A%20%E5%A3%8A\n", errors.EngineDisconnected, ["ended the session: no GPU: \u58ca"]),
        (b"ERROR=\n", errors.EngineDisconnected, ["does not say why"]),
        (b"BUSY\nERROR=stopped\n", errors.EngineDisconnected, ["ended the session: stopped"]),
        (b"CONFIG:OBS=1;ACT", errors.HandshakeError, ["not finished", "CONFIG:OBS=1;ACT", "line feed"]),
        (b"", errors.HandshakeError, ["no handshake"]),
    ],
)
def test_what_an_engine_may_say_instead_of_a_handshake(said: bytes, kind: Any, parts: list[str]) -> None:
    with Saying(said) as game, pytest.raises(kind) as caught:
        open_engine("127.0.0.1", game.port, transport="tcp", timing=EngineClock(game.turn, 0.5).timing)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (b"BUSY;PEER=a:1\n", errors.EngineBusy, "a:1"),
        (b"", errors.EngineDisconnected, "sent no handshake.*does it serve another trainer"),
    ],
)
def test_an_engine_that_closes_at_once(said: bytes, kind: type[Exception], words: str) -> None:
    with Saying(said, closes=True) as game, pytest.raises(kind, match=f"(?i){words}"):
        open_engine("127.0.0.1", game.port, transport="tcp", wait=5.0, timing=EngineClock(game.turn).timing)


def test_a_connection_between_the_handshake_and_the_trainers_choice_is_no_env_socket() -> None:
    for num_envs in (1, 3):
        with run_in_thread(DoNothingBridge(num_envs), port=0) as server:
            with RawClient(("127.0.0.1", server.port)) as first, RawClient(("127.0.0.1", server.port)) as second:
                first.line()
                time.sleep(0.05)
                first.send("\n")
                assert second.line().startswith("BUSY")
                assert first.ask("ACT=RESET;ENV=0").startswith("OBS=")
                first.close()
                assert second.line().startswith("CONFIG")


@pytest.mark.parametrize(
    ("features", "said"), [("", b"ACT=RESET;ENV=0\n"), (";FEATURES=ERROR", b"\nACT=RESET;ENV=0\n")]
)
def test_an_engine_of_version_1_reads_nothing_that_it_did_not_read_before(features: str, said: bytes) -> None:
    heard: list[bytes] = []

    def play(listener: socket.socket, client: socket.socket) -> None:
        client.sendall(f"CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=1;VERSION=1;CHANNEL=ANY{features}\n".encode())
        heard.append(client.recv(1))
        while not heard[0].endswith(b"ENV=0\n"):
            heard[0] += client.recv(100)
        client.sendall(b"OBS=1;REW=0;DONE=0;ENV=0\n")

    with engine(play) as port, open_engine("127.0.0.1", port, transport="tcp") as connection:
        begin(connection)
    assert heard == [said]


# -- ERROR


class Fails(Lab):
    """Fails at an action above 1."""

    def handle_response_actions_for_env(self, env_id: int, actions: Any) -> None:
        """Adds, or fails."""
        if actions[0] > 1:
            raise ValueError(UNICODE)
        super().handle_response_actions_for_env(env_id, actions)


@pytest.mark.parametrize("compiled", [None, False], ids=["compiled", "pure"])
def test_a_game_that_fails_in_the_middle_of_a_step(channel: str, compiled: Any) -> None:
    with run_in_thread(Fails(3), port=0) as server, trainer(server, channel=channel, compiled=compiled) as connection:
        begin(connection)
        connection.send_actions(np.array([[0], [2], [0]], np.float32))
        with pytest.raises(errors.EngineDisconnected) as caught:
            connection.receive()
        assert f"the engine ended the session: the game's code failed: ValueError({UNICODE!r})" in str(caught.value)
        with pytest.raises(errors.ConnectionUnusable, match="the game's code failed"):
            connection.reset()


@pytest.mark.parametrize("num_envs", [1, 3])
def test_a_bridge_that_is_switched_between_steps(channel: str, num_envs: int) -> None:
    bridge = Lab(num_envs)
    with run_in_thread(bridge, port=0) as server, trainer(server, channel=channel) as connection:
        begin(connection)
        bridge.initialize_environments(num_envs + 1)
        with pytest.raises(errors.EngineDisconnected, match="the game left training mode, or was given other sizes"):
            advance(connection, 0)


@pytest.mark.parametrize("ask", ["step", "reset", "call"])
def test_an_end_between_steps_is_noticed_at_the_next_request(channel: str, ask: str) -> None:
    server = run_in_thread(Lab(2), port=0)
    with trainer(server, channel=channel) as connection:
        begin(connection)
        server.close()
        asks: dict[str, Callable[[], object]] = {
            "step": lambda: advance(connection, 0),
            "reset": lambda: (connection.reset(), connection.receive()),
            "call": lambda: EngineCalls(connection).get_parameters(),
        }
        with pytest.raises(errors.EngineDisconnected, match="the engine ended the session: the engine was stopped"):
            asks[ask]()


def test_a_trainer_that_broke_the_protocol_is_told(channel: str) -> None:
    with run_in_thread(Lab(2), port=0) as server, trainer(server, channel=channel) as connection:
        begin(connection)
        link = connection._wiring.links[0]  # type: ignore[union-attr]
        link.send(b"ACT=nonsense;ENV=0\n", time.monotonic() + 1)
        time.sleep(0.1)
        with pytest.raises(errors.EngineDisconnected, match=r"the trainer broke the protocol: a number was expected"):
            advance(connection, 0)


def test_an_old_session_ends_without_a_word() -> None:
    with run_in_thread(Lab(1, version=0), port=0) as server:
        with RawClient(("127.0.0.1", server.port)) as first, RawClient(("127.0.0.1", server.port)) as own:
            first.line()
            own.send("ACT=nonsense\n")
            assert own.read_to_end() == b""
            assert first.read_to_end() == b""


def test_the_reason_stands_on_the_first_connection_alone() -> None:
    with run_in_thread(Lab(2), port=0) as server:
        clients = [RawClient(("127.0.0.1", server.port)) for _ in range(3)]
        clients[0].line()
        clients[1].ask("ACT=RESET")
        clients[2].send("ACT=nonsense\n")
        assert clients[1].read_to_end() == clients[2].read_to_end() == b""
        assert clients[0].read_to_end().startswith(b"ERROR=the%20trainer%20broke")
        for client in clients:
            client.close()


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_a_server_that_is_interrupted_says_so() -> None:
    command = [sys.executable, "-m", "ue_rl", "serve", "--bridge", "ue_rl.cli.do_nothing:DoNothingBridge"]
    process = subprocess.Popen([*command, "--port", "0", "--num-envs", "2"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().split("127.0.0.1:")[1].split()[0])
        with MultiTcpConnection("127.0.0.1", port) as connection:
            begin(connection)
            process.send_signal(signal.SIGINT)
            process.wait(60)
            with pytest.raises(errors.EngineDisconnected, match="the engine was stopped"):
                advance(connection, 0)
    finally:
        process.kill()
        process.wait()


# -- words that nobody knows


def test_unknown_words_of_a_handshake_are_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    line = "CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=1;VERSION=1;CHANNEL=SHARED;ACTSPACE=DISCRETE(2);Colour=blue;"

    def play(listener: socket.socket, client: socket.socket) -> None:
        client.sendall(f"{line}FEATURES=SEDD,TRUNC\n".encode())
        client.recv(1)

    caplog.set_level(logging.WARNING, "ue_rl.connections")
    with engine(play) as port, open_engine("127.0.0.1", port, transport="tcp") as connection:
        assert connection.handshake == f"{line}FEATURES=SEDD,TRUNC"
        connection.connect()  # again
    said = [record.getMessage() for record in caplog.records]
    assert [text.split("which is ignored: ")[1] for text in said] == [
        "ACTSPACE: did you mean ACT_SPACE?",
        "COLOUR",
        "SEDD: did you mean SEED?",
    ]


def test_a_handshake_of_our_own_is_known_in_full(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "ue_rl.connections")
    with run_in_thread(Lab(2), port=0) as server, trainer(server) as connection:
        assert connection.handshake == server.bridge.build_handshake()
    assert not caplog.records


def test_an_error_line_that_answers_a_call_ends_the_connection() -> None:
    def serve(listener: socket.socket, client: socket.socket) -> None:
        client.sendall(b"CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=1;VERSION=1;CHANNEL=SHARED;PARAMS=g:1\n")
        client.recv(100)
        client.sendall(b"ERROR=gone\n")
        client.recv(100)

    with engine(serve) as port, MultiTcpConnection("127.0.0.1", port, timeout=20) as connection:
        connection.connect()
        with pytest.raises(errors.EngineDisconnected, match="ended the session: gone"):
            connection.call("GET")
        with pytest.raises(errors.ConnectionUnusable, match="gone"):
            connection.reset()
