"""Dialling, choosing the wiring, deadlines, life cycle: what the TCP transports do before and around the steps."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ue_rl
from tests.harness.engines.shm_faulty import ShmFaultyEngine
from tests.support.clocks import SLICE_MS, once
from tests.support.listening import engine, nobody
from tests.support.steps import advance, begin
from ue_rl.connections import MultiTcpConnection, SharedMemoryConnection, SingleTcpConnection
from ue_rl.connections.tcp.link import Link, dial
from ue_rl.devtools.testing import Fault, FaultKind, PluginStandIn
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text import Codec, encode_handshake, kernels_pure
from ue_rl.protocol.transport import Transport
from ue_rl.system import errors
from ue_rl.system.compiled import load
from ue_rl.system.spin import TCP_SLICE_MS
from ue_rl.system.timing import Timing

Play = Callable[[socket.socket, socket.socket], None]


def says(handshake: str, *answers: str) -> Play:
    def play(listener: socket.socket, client: socket.socket) -> None:
        client.sendall(handshake.encode() + b"\n")
        lines = client.makefile("rb")
        for answer in answers:
            lines.readline()
            client.sendall(answer.encode())
        while lines.readline():
            pass

    return play


MULTI = "CONFIG:OBS=1;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=2"
STATES = "OBS=1;REW=0;DONE=0;ENV=0||OBS=2;REW=0;DONE=0;ENV=1\n"


@pytest.mark.parametrize(
    "options", [{"channel": "both"}, {"timeout": 0}, {"timeout": float("inf")}, {"connect_timeout": -1}]
)
def test_wrong_options_are_refused_before_dialling(options: dict[str, object]) -> None:
    with pytest.raises(errors.ConfigurationError):
        ue_rl.connect("tcp://127.0.0.1:1", **options)


def test_nobody_listens(slack: float) -> None:
    listens = r"nothing listens on 127.0.0.1:\d+.*Is Play pressed"
    with nobody() as port, pytest.raises(errors.EngineUnreachable, match=listens) as caught:
        begun = time.monotonic()
        ue_rl.connect(f"tcp://127.0.0.1:{port}", timeout=20)
    assert time.monotonic() - begun < slack
    assert isinstance(caught.value, ConnectionError)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "two..dots", "x" * 64 + ".invalid"])
def test_unknown_host(host: str) -> None:
    with pytest.raises(errors.EngineUnreachable, match=rf"host name '{re.escape(host)}' is unknown"):
        ue_rl.connect(f"tcp://{host}:7777", timeout=20)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full queue of a listener refuses")
def test_waits_for_a_machine_that_does_not_answer_yet() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as stack:
        place = listener.getsockname()
        for _ in range(2):  # the system drops what comes behind these
            waits = stack.enter_context(socket.socket())
            waits.setblocking(False)
            waits.connect_ex(place)
        with pytest.raises(errors.EngineTimeout, match="took too long"):
            dial(*place, time.monotonic() + 0.3)

        def accept() -> None:
            for _ in range(3):
                listener.accept()[0].close()

        timer = threading.Timer(0.5, accept)
        timer.start()
        try:
            dial(*place, time.monotonic() + 0.3, wait=30.0).close()
        finally:
            timer.join()


def test_waits_for_an_engine_that_starts_late() -> None:
    server = socket.socket()
    server.bind(("127.0.0.1", 0))  # now, or the port could be another process's by then
    port, game = server.getsockname()[1], [server]

    def start_late() -> None:
        server.listen()
        client, _ = server.accept()
        game.append(client)
        client.sendall(b"CONFIG:OBS=1;ACT=1;ENV_TYPE=SINGLE;VERSION=1;CHANNEL=SHARED\n")

    timer = threading.Timer(0.3, start_late)
    timer.start()
    env = ue_rl.connect(f"tcp://127.0.0.1:{port}", wait=20, timeout=20)
    assert env.num_envs == 1
    env.close()
    timer.join()
    for sock in game:
        sock.close()


def test_ipv6_and_names() -> None:
    if not socket.has_ipv6:
        pytest.skip("this machine has no IPv6")
    with engine(says(MULTI + ";CHANNEL=SHARED", STATES), socket.AF_INET6, "::1") as port:
        env = ue_rl.connect(f"tcp://[::1]:{port}", timeout=20)
        assert env.reset().tolist() == [[1], [2]]
        env.close()
    with engine(says(MULTI + ";CHANNEL=SHARED", STATES)) as port:
        env = ue_rl.connect(f"tcp://localhost:{port}", timeout=20)
        assert env.reset().tolist() == [[1], [2]]
        env.close()


def test_silent_listener_is_a_handshake_error_within_the_deadline(slack: float) -> None:
    with engine(lambda listener, client: client.recv(1) and None) as port:
        begun = time.monotonic()
        with pytest.raises(errors.HandshakeError, match=r"sent no handshake.*within 0.3 s"):
            ue_rl.connect(f"tcp://127.0.0.1:{port}", timeout=0.3)
        assert 0.2 < time.monotonic() - begun < 0.3 + 1.2 * slack


@pytest.mark.parametrize(
    ("offered", "wanted", "wiring"),
    [
        (None, "auto", "2 env sockets"),
        (None, "shared", "shared channel"),
        ("SHARED", "auto", "shared channel"),
        ("SHARED", "per_env", "2 env sockets"),
        ("PER_ENV", "auto", "2 env sockets"),
        ("PER_ENV", "shared", "shared channel"),
        ("ANY", "auto", "shared channel"),
        ("ANY", "per_env", "2 env sockets"),
    ],
)
def test_the_caller_wins_then_the_handshake_then_env_sockets(offered: str | None, wanted: str, wiring: str) -> None:
    def play(listener: socket.socket, client: socket.socket) -> None:
        client.sendall((MULTI + (f";CHANNEL={offered}" if offered else "") + "\n").encode())
        client.recv(1)

    with engine(play) as port:
        connection = MultiTcpConnection("127.0.0.1", port, channel=wanted, timeout=20)
        with connection:
            assert isinstance(connection, Transport)
            assert connection.describe()["wiring"] == wiring


def closes_its_listener(listener: socket.socket, client: socket.socket) -> None:
    listener.close()
    says(MULTI, STATES)(listener, client)


def test_falls_back_to_the_shared_channel_where_env_sockets_are_refused() -> None:
    with engine(closes_its_listener) as port:
        env = ue_rl.connect(f"tcp://127.0.0.1:{port}", timeout=20)
        assert env.transport.describe()["wiring"] == "shared channel"
        assert env.reset().tolist() == [[1], [2]]
        env.close()
    with engine(closes_its_listener) as port:
        with pytest.raises(errors.EngineUnreachable, match="only 0 of 2 env sockets"):
            ue_rl.connect(f"tcp://127.0.0.1:{port}", timeout=20, channel="per_env")


def test_the_wrong_class_for_the_engine_says_which_to_use() -> None:
    with PluginStandIn(env_type="SINGLE") as game:
        with pytest.raises(errors.HandshakeError, match="MultiTcpConnection cannot serve"):
            MultiTcpConnection(game.host, game.port, timeout=20).connect()
    with PluginStandIn(num_envs=2) as game:
        with pytest.raises(errors.HandshakeError, match="SingleTcpConnection cannot serve"):
            SingleTcpConnection(game.host, game.port, timeout=20).connect()


def test_partial_batches_in_any_order_and_split_anywhere() -> None:
    def play(listener: socket.socket, client: socket.socket) -> None:
        client.sendall(MULTI.encode() + b"\n")
        client.recv(100)
        for byte in b"\r\nOBS=2;REW=0;DONE=0;ENV=1\r\n\nOBS=1;REW=0;DONE=0;ENV=0\n":
            client.sendall(bytes([byte]))
        client.recv(1)

    for compiled in (None, False):
        with engine(play) as port:
            env = ue_rl.connect(f"tcp://127.0.0.1:{port}", channel="shared", timeout=20, compiled=compiled)
            assert env.reset().tolist() == [[1], [2]]
            env.close()


@pytest.mark.parametrize("compiled", [None, False])
def test_long_lines_on_env_sockets(compiled: bool | None) -> None:
    """Longer than a region's first size: the compiled path widens, the pure one grows its buffer."""
    handshake = "CONFIG:OBS=3;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=2;CHANNEL=PER_ENV;VERSION=1;FEATURES=INFO"

    def play(listener: socket.socket, client: socket.socket) -> None:
        client.sendall(handshake.encode() + b"\n")
        socks = [listener.accept()[0] for _ in range(2)]
        for i, sock in enumerate(socks):
            sock.recv(100)
            sock.sendall(b"OBS=1,2,3;REW=0;DONE=0;ENV=%d;pad=%s\n" % (i, b"x" * 5000))
        client.recv(1)
        for sock in socks:
            sock.close()

    with engine(play) as port:
        env = ue_rl.connect(f"tcp://127.0.0.1:{port}", timeout=20, compiled=compiled)
        assert env.reset().tolist() == [[1, 2, 3]] * 2
        env.close()


@pytest.mark.parametrize("compiled", [None, False])
@pytest.mark.parametrize("channel", ["shared", "per_env"])
def test_an_engine_that_stops_reading_is_a_timeout(channel: str, compiled: bool | None) -> None:
    n, size = 2, 20_000
    handshake = f"CONFIG:OBS=1;ACT={size};ENV_TYPE=MULTI;ENV_COUNT={n}\n".encode()
    sending = False
    release = threading.Event()

    def play(listener: socket.socket, client: socket.socket) -> None:
        client.sendall(handshake)
        socks = [listener.accept()[0] for _ in range(n)] if channel == "per_env" else []
        for sock in (client, *socks):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        release.wait(100)
        for sock in socks:
            sock.close()

    with engine(play) as port:
        timing = once(lambda: sending, 1.0)
        options: dict[str, Any] = {"timeout": 5.0, "connect_timeout": 20, "compiled": compiled, "timing": timing}
        connection = MultiTcpConnection("127.0.0.1", port, channel=channel, **options)
        connection.connect()
        assert connection._wiring is not None
        for wired in connection._wiring.links:
            wired.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        actions = np.full((n, size), 0.123456789, np.float32)
        begun = timing.now()
        sending = True
        try:
            with pytest.raises(errors.EngineTimeout, match="does not read"):
                connection.send_actions(actions)
        finally:
            release.set()
        assert 5.0 < timing.now() - begun < 20.0


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [None, False])
@pytest.mark.parametrize("channel", ["shared", "per_env"])
def test_a_line_that_is_sent_in_parts_arrives_once_and_whole(channel: str, compiled: bool | None) -> None:
    n, size = 2, 8_000  # 80 kB a line, or more
    spec = EnvSpec(1, size, num_envs=n, version=0)
    stall, heard = threading.Event(), [b""] * n
    actions = np.linspace(-1, 1, n * size, dtype=np.float32).reshape(n, size)

    def play(listener: socket.socket, client: socket.socket) -> None:
        client.sendall(encode_handshake(spec))
        socks = [listener.accept()[0] for _ in range(n)] if channel == "per_env" else [client]
        for env, sock in enumerate(socks):
            sock.settimeout(20)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            for _ in range(2):  # the sender's buffers fill up twice: what is left of the line takes further calls
                stall.wait(0.05)
                heard[env] += sock.recv(20_000)
            while not heard[env].endswith(b"\n") and (data := sock.recv(65_536)):
                heard[env] += data
            sock.sendall((STATES if channel == "shared" else STATES.strip().split("||")[env] + "\n").encode())
        client.recv(1)
        for sock in socks:
            sock.close()

    with engine(play) as port:
        timing = Timing(slice_ms=SLICE_MS)  # shorter than the stalls
        options: dict[str, Any] = {"timeout": 20, "compiled": compiled, "timing": timing}
        with MultiTcpConnection("127.0.0.1", port, channel=channel, **options) as connection:
            assert connection._wiring is not None
            for wired in connection._wiring.links:
                wired.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
            assert advance(connection, actions).obs.tolist() == [[1], [2]]
    codec = Codec(spec)
    wanted = [codec.encode_actions(actions), b""] if channel == "shared" else codec.encode_action_lines(actions)
    assert heard == wanted


@pytest.mark.parametrize("env_ids", [None, [0]])
def test_a_stray_answer_in_the_socket_is_found_before_a_reset(env_ids: list[int] | None) -> None:
    """It came after the last answer was read: taken for the reset's answer, it would be an old observation."""
    stepped = threading.Event()

    def play(listener: socket.socket, client: socket.socket) -> None:
        client.sendall(MULTI.encode() + b"\n")
        lines = client.makefile("rb")
        lines.readline()
        client.sendall(STATES.encode())
        stepped.wait(10)
        client.sendall(b"OBS=1;REW=0;DONE=0;ENV=0\n")
        while lines.readline():
            pass

    with engine(play) as port:
        with MultiTcpConnection("127.0.0.1", port, channel="shared", timeout=20) as connection:
            begin(connection)
            assert connection._wiring is not None
            stepped.set()
            assert select.select([connection._wiring.links[0].sock], [], [], 10)[0]
            with pytest.raises(errors.UnexpectedMessage, match="nobody asked for"):
                connection.reset(env_ids)


def test_python_path_of_the_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Windows and installations without a compiler use."""
    monkeypatch.setenv("UE_RL_PURE", "1")
    assert load("kernels") is kernels_pure
    with PluginStandIn(num_envs=3) as game:
        env = ue_rl.connect(game.url, timeout=20)
        env.reset()
        for _ in range(20):
            env.step(np.zeros((3, 2), np.float32))
        env.close()


def test_on_windows_waits_are_cut_by_select_and_not_by_options_of_the_socket() -> None:
    ours, theirs = socket_pair()
    with ours, theirs:
        Link(ours, 1000, by_select=True)
        assert ours.gettimeout() == TCP_SLICE_MS / 1000
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16) == bytes(16)


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Of TCP."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        return ours, listening.accept()[0]


def test_short_deadlines_are_kept_over_shared_memory(slack: float) -> None:
    waited = []
    for _ in range(3):  # a thread stands still now and then where others are busy
        with ShmFaultyEngine(Fault(FaultKind.SILENCE, env=0, step=1), num_envs=1) as engine:
            with SharedMemoryConnection(engine=engine.address, timeout=20) as connection:
                begin(connection)
                connection.timeout = 0.05
                begun = time.monotonic()
                connection.send_actions(np.zeros((1, 2), np.float32))
                with pytest.raises(errors.EngineTimeout):
                    connection.receive()
                waited.append(time.monotonic() - begun)
    assert 0.05 <= min(waited) < 0.05 + 0.1 * slack


@pytest.mark.parametrize("port", [-1, 0, 65_536])
@pytest.mark.parametrize("connection", [MultiTcpConnection, SingleTcpConnection])
def test_what_is_no_port_is_refused(connection: Any, port: int) -> None:
    with pytest.raises(errors.ConfigurationError, match="no such port") as caught:
        connection("127.0.0.1", port)
    assert (caught.value.field, caught.value.expected, caught.value.got) == ("port", "1 to 65535", port)
