"""The faulty engine, driven with bare sockets: right until its script says otherwise, and then wrong as told."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from ue_rl.devtools.testing import Fault, FaultKind, FaultyEngine, RawClient, Script

Dial = Callable[[FaultyEngine], RawClient]
Engine = Callable[..., FaultyEngine]

ROW0 = "OBS=0.25,0.25,0.25,0.25;REW=1;DONE=0;ENV=0"  # env 0's request number 1
ROW1 = "OBS=1.25,1.25,1.25,1.25;REW=1;DONE=0;ENV=1"
RESET = "ACT=RESET;ENV=0||ACT=RESET;ENV=1"
STEP = "ACT=0.1,0.2;ENV=0||ACT=0.1,0.2;ENV=1"


def shared(engine: FaultyEngine, dial: Dial) -> RawClient:
    """A client on the shared channel whose next request is every env's number 1."""
    client = dial(engine)
    assert client.line() == engine.handshake
    assert client.ask(RESET).count("REW=0") == 2
    return client


def per_env(engine: FaultyEngine, dial: Dial) -> list[RawClient]:
    """Env sockets whose next request is number 1."""
    admin = dial(engine)
    assert admin.line() == engine.handshake
    envs = [dial(engine) for _ in range(engine.num_envs)]
    for i, env in enumerate(envs):
        assert env.ask("ACT=RESET").endswith(f"REW=0;DONE=0;ENV={i}" if engine.env_type == "MULTI" else "REW=0;DONE=0")
    return envs


def test_follows_the_protocol_on_the_shared_channel(ue_rl_faulty_engine: Engine, dial: Dial) -> None:
    engine = ue_rl_faulty_engine()
    client = shared(engine, dial)
    assert client.ask(STEP) == f"{ROW0}||{ROW1}"
    assert client.ask("ACT=RESET;ENV=1") == ROW1.replace("1.25", "1.5").replace("REW=1", "REW=2")
    assert engine.requests[-1] == b"ACT=RESET;ENV=1"


def test_follows_the_protocol_on_per_env_sockets(ue_rl_faulty_engine: Engine, dial: Dial) -> None:
    envs = per_env(ue_rl_faulty_engine(), dial)
    assert [env.ask("ACT=0.1,0.2") for env in envs] == [ROW0, ROW1]


def test_speaks_single_and_rlbase(ue_rl_faulty_engine: Engine, dial: Dial) -> None:
    (env,) = per_env(ue_rl_faulty_engine(env_type="SINGLE", num_envs=1), dial)
    assert env.ask("ACT=0.1,0.2") == ROW0.removesuffix(";ENV=0")
    client = dial(ue_rl_faulty_engine(env_type="RLBASE", num_envs=1))
    assert client.line() == "CONFIG:OBS=4;ACT=2;ENV_TYPE=RLBASE"
    assert client.line() == "0.0,0.0,0.0,0.0;0;0"  # nobody asked
    assert client.ask("RESET") == "0.0,0.0,0.0,0.0;0;0"
    assert client.ask("0.1,0.2") == "0.25,0.25,0.25,0.25;1;0"


@pytest.mark.parametrize(
    ("fault", "row"),
    [
        (Fault(FaultKind.MALFORMED), ROW0.replace("0.25", "1.2.3", 1)),
        (Fault(FaultKind.MALFORMED, text="PROBLEM IS HERE"), "PROBLEM IS HERE"),
        (Fault(FaultKind.NAN), ROW0.replace("0.25", "nan", 1)),
        (Fault(FaultKind.INF), ROW0.replace("REW=1", "REW=inf")),
        (Fault(FaultKind.TOO_FEW), ROW0.replace("0.25,", "", 1)),
        (Fault(FaultKind.TOO_MANY), ROW0.replace("0.25", "0.25,0.25", 1)),
        (Fault(FaultKind.WRONG_ENV), ROW0.replace("ENV=0", "ENV=2")),
        (Fault(FaultKind.OTHER_ENV), ROW0.replace("ENV=0", "ENV=1")),
        (Fault(FaultKind.NO_ENV), ROW0.replace(";ENV=0", "")),
    ],
    ids=lambda value: value.kind.name if isinstance(value, Fault) else "",
)
def test_a_fault_changes_one_row_once(ue_rl_faulty_engine: Engine, dial: Dial, fault: Fault, row: str) -> None:
    client = shared(ue_rl_faulty_engine(fault), dial)
    assert client.ask(STEP) == f"{row}||{ROW1}"
    assert client.ask(STEP).startswith("OBS=0.5,0.5,0.5,0.5;REW=2;DONE=0;ENV=0||")
    envs = per_env(ue_rl_faulty_engine(fault), dial)
    assert [env.ask("ACT=0.1,0.2") for env in envs] == [row, ROW1]


def test_twice_and_missing(ue_rl_faulty_engine: Engine, dial: Dial) -> None:
    assert shared(ue_rl_faulty_engine(Fault(FaultKind.TWICE)), dial).ask(STEP) == f"{ROW0}||{ROW0}||{ROW1}"
    assert shared(ue_rl_faulty_engine(Fault(FaultKind.MISSING)), dial).ask(STEP) == ROW1
    env, _ = per_env(ue_rl_faulty_engine(Fault(FaultKind.TWICE)), dial)
    assert (env.ask("ACT=0.1,0.2"), env.line()) == (ROW0, ROW0)


def test_silence_lasts(ue_rl_faulty_engine: Engine, dial: Dial) -> None:
    engine = ue_rl_faulty_engine(Fault(FaultKind.SILENCE))
    client = shared(engine, dial)
    client.send(f"{STEP}\n{STEP}\n")
    client.sock.shutdown(socket.SHUT_WR)
    assert client.read_to_end() == b""
    assert len(engine.requests) == 3  # it read them all
    shared(engine, dial)  # the next session is not silent


@pytest.mark.parametrize("kind", [FaultKind.DROP, FaultKind.CRASH, FaultKind.HALF_LINE])
def test_a_dying_engine_closes_everything(ue_rl_faulty_engine: Engine, dial: Dial, kind: FaultKind) -> None:
    engine = ue_rl_faulty_engine(Fault(kind))
    envs = per_env(engine, dial)
    envs[0].send("ACT=0.1,0.2\n")
    rest = envs[0].read_to_end()
    assert rest == (f"{ROW0}\n".encode()[: len(ROW0) // 2] if kind is FaultKind.HALF_LINE else b"")
    assert envs[1].read_to_end() == b""
    with pytest.raises(ConnectionError):
        dial(engine)


def test_a_line_without_an_end(ue_rl_faulty_engine: Engine, dial: Dial) -> None:
    engine = ue_rl_faulty_engine(Fault(FaultKind.OVERSIZE))
    client = shared(engine, dial)
    client.send(STEP + "\n")
    got = 0
    while got < 1_000_000:
        chunk = client.sock.recv(65536)
        assert b"\n" not in chunk
        got += len(chunk)
    client.close()
    assert dial(engine).line() == engine.handshake  # it noticed, and serves the next


def test_garbage_is_one_line(ue_rl_faulty_engine: Engine, dial: Dial) -> None:
    client = shared(ue_rl_faulty_engine(Fault(FaultKind.GARBAGE)), dial)
    client.send(STEP + "\n")
    got = b""
    while not got.endswith(b"\n"):
        got += client.sock.recv(65536)
    assert len(got) == 257
    assert got.count(b"\n") == 1
    assert b"OBS" not in got


def test_handshakes_as_told(ue_rl_faulty_engine: Engine, dial: Dial) -> None:
    assert dial(ue_rl_faulty_engine(Script(handshake="HELLO"))).line() == "HELLO"
    assert dial(ue_rl_faulty_engine(Script(channel="SHARED"))).line().endswith("VERSION=1;CHANNEL=SHARED")
    closing = dial(ue_rl_faulty_engine(Script(close_after_handshake=True)))
    assert closing.read_to_end() == b"CONFIG:OBS=4;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=2\n"
    unasked = dial(ue_rl_faulty_engine(Script(after_handshake=ROW0 + "\n")))
    assert (unasked.line()[:7], unasked.line()) == ("CONFIG:", ROW0)
    none = dial(ue_rl_faulty_engine(Script(handshake=None)))
    assert none.ask(RESET).startswith("OBS=")  # the first thing it ever says


def test_accepts_only_so_many_connections(ue_rl_faulty_engine: Engine, dial: Dial) -> None:
    engine = ue_rl_faulty_engine(Script(accepts=1))
    client = dial(engine)
    client.line()
    with pytest.raises(ConnectionError):
        dial(engine)
    assert client.ask(RESET).count("||") == 1  # the shared channel still works


def test_latency_and_fragments(ue_rl_faulty_engine: Engine, dial: Dial) -> None:
    client = shared(ue_rl_faulty_engine(Script(latency=0.02)), dial)
    start = time.monotonic()
    assert client.ask(STEP) == f"{ROW0}||{ROW1}"
    assert time.monotonic() - start >= 0.02
    assert shared(ue_rl_faulty_engine(Script(fragment=1)), dial).ask(STEP) == f"{ROW0}||{ROW1}"
    slow = shared(ue_rl_faulty_engine(Script(fragment=30, fragment_delay=0.05)), dial)
    start = time.monotonic()
    assert slow.ask(STEP) == f"{ROW0}||{ROW1}"
    assert time.monotonic() - start >= 0.05  # not the whole line at once


def test_serves_one_client_after_the_other(ue_rl_faulty_engine: Engine, dial: Dial) -> None:
    engine = ue_rl_faulty_engine(Fault(FaultKind.NAN))
    for _ in range(3):
        client = shared(engine, dial)
        assert "nan" in client.ask(STEP)  # the counts start again
        client.close()
    assert engine.sessions == 3
