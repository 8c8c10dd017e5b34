"""The benchmarks' C engine answers rightly on both wirings: numbers measured against a wrong engine mean nothing."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ue_rl.devtools.testing import RawClient
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.text import Codec, decode_handshake

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or shutil.which("cc") is None, reason="needs a C compiler and POSIX sockets"
)


@pytest.fixture(scope="module")
def c_engine(load_script: Callable[[Path], ModuleType]) -> ModuleType:
    return load_script(Path(__file__).parents[3] / "benchmarks" / "c_engine.py")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def row(env: int, obs_size: int = 3) -> list[float]:
    """The prepared observation, as engine.c makes it."""
    return [float(np.float32(f"{((env * 37 + k * 101) % 1999 - 999) / 1013.0:.6g}")) for k in range(obs_size)]


def test_shared_channel_whole_and_partial_batches(c_engine: ModuleType, stack: ExitStack) -> None:
    engine = stack.enter_context(c_engine.CEngine(5, 3, 2))
    client = stack.enter_context(RawClient(("127.0.0.1", engine.port)))
    spec = decode_handshake(client.line().encode())
    assert (spec.num_envs, spec.obs_size, spec.act_size) == (5, 3, 2)
    codec, buffers = Codec(spec), StepBuffers(5, 3)
    buffers.pending[:] = 1
    assert codec.decode_states(client.ask(codec.encode_resets().decode().strip()).encode(), buffers) == 5
    assert buffers.obs.tolist() == [row(env) for env in range(5)]
    assert not buffers.dones.any()
    answer = client.ask("ACT=RESET;ENV=4||ACT=RESET;ENV=1")
    assert [part.rpartition("ENV=")[2] for part in answer.split("||")] == ["4", "1"]
    for chunk in ("ACT=0.1,0", ".2;ENV=3", "\nACT=0.1,0.2;ENV=2\n"):  # two lines in three pieces
        client.send(chunk)
    assert client.line().endswith("ENV=3")
    assert client.line().endswith("ENV=2")


def test_per_env_sockets_and_the_next_client(c_engine: ModuleType, stack: ExitStack) -> None:
    engine = stack.enter_context(c_engine.CEngine(3, 3, 2))
    for _ in range(2):
        with ExitStack() as client:
            admin = client.enter_context(RawClient(("127.0.0.1", engine.port)))
            assert admin.line().startswith("CONFIG:")
            envs = [client.enter_context(RawClient(("127.0.0.1", engine.port))) for _ in range(3)]
            for _ in range(2):
                for env in envs:
                    env.send("ACT=0.1,0.2\n")
                for i, env in enumerate(envs):
                    assert env.line().endswith(f";ENV={i}")
            for socket in (*envs, admin):
                socket.sock.shutdown(2)
            admin.read_to_end()  # the engine has let go


def test_bare_peer_exchanges_bytes_and_the_command_prints_a_table(
    c_engine: ModuleType, stack: ExitStack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = stack.enter_context(c_engine.CEngine.bare(10, 33))
    client = stack.enter_context(RawClient(("127.0.0.1", peer.port)))
    client.send(b"0123456789" * 2)
    got = b""
    while len(got) < 66:
        got += client.sock.recv(100)
    assert got == b"x" * 66
    monkeypatch.setattr(sys, "argv", ["c_engine", "--envs", "2", "--rounds", "3"])
    c_engine.main()
    assert capsys.readouterr().out.count("us a step") == 2


def test_the_engine_ends_with_its_starter(c_engine: ModuleType) -> None:
    engine = c_engine.CEngine(2, 3, 2)
    with engine:
        pass
    with pytest.raises(ConnectionError):
        RawClient(("127.0.0.1", engine.port))
