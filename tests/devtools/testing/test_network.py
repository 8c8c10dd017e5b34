"""FaultyNetwork: what each of its knobs does to the bytes, and to a trainer over both carriers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import ue_rl
from tests.support.listening import serving
from ue_rl.devtools.testing import ChaosEngine, FaultyNetwork, RawClient
from ue_rl.system.errors import TransportError, UeRlError


@pytest.fixture
def echo() -> Iterator[str]:
    """The address of a server that sends back what it gets."""

    def serve(sock: socket.socket) -> None:
        while data := sock.recv(65536):
            sock.sendall(data)

    with serving(serve) as (host, port):
        yield f"tcp://{host}:{port}"


@pytest.fixture
def network(echo: str, ue_rl_faulty_network: Callable[[str], FaultyNetwork]) -> FaultyNetwork:
    return ue_rl_faulty_network(echo)


def test_bytes_come_whole_and_in_order(network: FaultyNetwork) -> None:
    data = np.random.default_rng(0).bytes(3_000_000)
    with RawClient(network.address) as client:
        writer = threading.Thread(target=lambda: (client.send(data), client.sock.shutdown(socket.SHUT_WR)))
        writer.start()
        assert client.read_to_end() == data
        writer.join()


def test_delay_and_pieces(network: FaultyNetwork) -> None:
    with RawClient(network.address) as client:
        network.delay = 0.05
        begun = time.monotonic()
        assert client.ask("late") == "late"
        assert time.monotonic() - begun >= 0.1
        network.delay, network.piece, network.pause = 0.0, 1, 0.002
        begun = time.monotonic()
        assert client.ask("x" * 20) == "x" * 20
        assert time.monotonic() - begun >= 0.03


def test_one_connection_is_cut_and_the_others_stay(network: FaultyNetwork) -> None:
    with RawClient(network.address) as one, RawClient(network.address) as two, RawClient(network.address) as three:
        for client in (one, two, three):
            assert client.ask("hello") == "hello"
        assert network.count == 3
        network.cut(1)
        assert two.sock.recv(1) == b""
        network.cut(0, reset=True)
        with pytest.raises(ConnectionResetError):
            one.sock.recv(1)
        assert three.ask("still here") == "still here"
        with pytest.raises(IndexError):
            network.cut(7)


def test_half_open_and_on_again(network: FaultyNetwork) -> None:
    with RawClient(network.address) as client:
        assert client.ask("hello") == "hello"
        network.hold()
        client.send("held\n")
        client.timeout = 0.1
        with pytest.raises(TimeoutError):
            client.line()
        client.timeout = 20
        network.release()
        assert client.line() == "held"


def test_garbage_goes_where_it_is_sent(network: FaultyNetwork) -> None:
    with RawClient(network.address) as client:
        assert client.ask("hello") == "hello"
        network.garble(b"noise\n")
        assert client.line() == "noise"
        network.garble(b"echoed\n", to="engine")
        assert client.line() == "echoed"


def test_refused_and_accepted_again(network: FaultyNetwork) -> None:
    with RawClient(network.address) as client:
        assert client.ask("hello") == "hello"
        network.refuse()
        with pytest.raises(ConnectionRefusedError):
            RawClient(network.address)
        assert client.ask("open ones stay") == "open ones stay"
        network.accept()
        with RawClient(network.address) as other:
            assert other.ask("hello") == "hello"


def test_a_host_that_is_down_resets() -> None:
    with socket.socket() as taken:  # and nobody else can listen there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with FaultyNetwork(f"tcp://127.0.0.1:{port}") as network:
            with pytest.raises(ConnectionResetError), RawClient(network.address) as client:  # perhaps as it connects
                client.sock.recv(1)
    with pytest.raises(ValueError, match="tcp://HOST:PORT"):
        FaultyNetwork("shm://x")


def test_who_goes_on_one_side_is_gone_on_the_other(ue_rl_faulty_network: Callable[[str], FaultyNetwork]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        network = ue_rl_faulty_network(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        with RawClient(network.address) as client:
            engine, _ = listener.accept()
            client.send("last words")
        with engine:
            assert engine.recv(100) == b"last words"
            assert engine.recv(100) == b""
        with RawClient(network.address) as client:
            listener.accept()[0].close()
            assert client.sock.recv(1) == b""


@pytest.mark.parametrize("shm", [False, True], ids=["text", "shm"])
def test_a_trainer_trains_through_it_until_it_is_cut(
    shm: bool, ue_rl_chaos_engine: Callable[..., ChaosEngine], ue_rl_faulty_network: Callable[[str], FaultyNetwork]
) -> None:
    network = ue_rl_faulty_network(ue_rl_chaos_engine(shm=shm).url)
    env = ue_rl.connect(network.url, transport="shm" if shm else "tcp", timeout=20)
    try:
        env.reset()
        for _ in range(50):
            env.step(np.ones((2, 1), np.float32))
        network.cut()
        with pytest.raises(TransportError):
            while True:  # shared memory looks at the socket only when it waits for long
                env.step(np.ones((2, 1), np.float32))
    finally:
        env.close()


def test_garbage_in_mid_stream_is_told(
    ue_rl_chaos_engine: Callable[..., ChaosEngine], ue_rl_faulty_network: Callable[[str], FaultyNetwork]
) -> None:
    network = ue_rl_faulty_network(ue_rl_chaos_engine().url)
    env = ue_rl.connect(network.url, transport="tcp", channel="shared", timeout=20)
    try:
        env.reset()
        network.garble(b"\xfe\x00garbage\n")
        with pytest.raises(UeRlError):
            env.step(np.ones((2, 1), np.float32))
    finally:
        env.close()
