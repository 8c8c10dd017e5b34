"""What an engine side must do with a trainer's lines, whatever language it is written in: C++, C# and GDScript."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import psutil
import pytest

import ue_rl
from tests.harness.fuzzing.corpus import corpus
from tests.samples import cpp_engine, godot_engine, programs, unity_engine
from tests.samples.programs import Trainer
from tests.support.waiting import eventually
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.check.garbage import mutate
from ue_rl.devtools.testing.raw_client import RawClient

NUM_ENVS = 4
VECTORS = Path(__file__).resolve().parents[2] / "docs" / "protocol-vectors.json"


@dataclass
class Side:
    """A running engine of NUM_ENVS envs.

    Attributes:
        act: an action. rest: what follows its first number.
        end: what it takes at the end of a row beyond the grammar. log: where it also says what was wrong, if it does.
    """

    port: int
    act: str
    rest: str
    end: str = ";"
    log: Path | None = None

    def dial(self) -> Trainer:
        return Trainer(self.port)

    def serves(self) -> None:
        """The next trainer gets a handshake and its own answers."""
        with self.dial() as client:
            assert client.ask("ACT=RESET;ENV=3;SEED=5").startswith("OBS=")
            assert client.ask(f"ACT={self.act};ENV=3").startswith("OBS=")


@contextmanager
def cpp(folder: Path) -> Iterator[Side]:
    with cpp_engine.running(cpp_engine.made("reach"), "--port", "0", "--num-envs", str(NUM_ENVS)) as port:
        yield Side(port, "0.5,-1", ",-1")


@contextmanager
def csharp(folder: Path) -> Iterator[Side]:
    engine = unity_engine.compiled("engine.exe", *unity_engine.CONSOLE)
    with unity_engine.started([engine, "--port", "0", "--num-envs", str(NUM_ENVS)], LC_ALL="de_DE.UTF-8") as port:
        yield Side(port, "0.5,-1", ",-1")


@contextmanager
def gdscript(folder: Path) -> Iterator[Side]:
    with godot_engine.running(folder, num_envs=NUM_ENVS) as engine:
        engine.dial().close()  # it listens
        yield Side(engine.port, "0.5", "", "", engine.log)


SIDES: dict[str, tuple[Callable[[Path], AbstractContextManager[Side]], tuple[str, ...]]] = {
    "cpp": (cpp, ("g++",)),
    "csharp": (csharp, ("mcs", "mono")),
    "gdscript": (gdscript, ("godot3-server",)),
}


@pytest.fixture(scope="module", params=SIDES)
def side(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    start, tools = SIDES[request.param]
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        pytest.skip(f"not installed: {' '.join(missing)}")
    if sys.platform == "win32" and request.param == "cpp":
        pytest.skip("the header's Windows side was never run")
    with start(tmp_path_factory.mktemp(request.param)) as running:
        yield running


NOT_FINITE = ("not a finite number", "not a finite number", "not a finite number")
NO_NUMBER = ("numbers were expected, got", "not a finite number", "not a finite number")
NO_TEXT = ("numbers were expected, got", "bytes that are no text", "bytes that are no text")
NO_INTEGER = ("an integer was expected, got", "ENV is not a number of 0 or more", "ENV is not a number of 0 or more")
NO_SEED = ("0 to 2^63-1 was expected", "SEED is not a number of 0 or more", "SEED is not a number of 0 or more")
HUGE_SEED = ("0 to 2^63-1 was expected", "SEED is beyond 2^63 - 1", "SEED is beyond 2^63 - 1")
# What is sent (REST: what follows an action's first number), and what each of SIDES says; None: not of this engine.
WRONG: dict[str, tuple[str | None, str | None, str | None]] = {
    "ACT=1REST,7;ENV=0": ("expected 2", "holds 3 numbers, not 2", "ACT holds 2 numbers, not 1"),
    "ACT=;ENV=0": NO_NUMBER,
    "ACT=nanREST;ENV=0": NOT_FINITE,
    "ACT=1e39REST;ENV=0": NOT_FINITE,
    "ACT=-1e999REST;ENV=0": NOT_FINITE,
    "ACT=1e2147483648REST;ENV=0": NOT_FINITE,
    "ACT=1e4294967296REST;ENV=0": NOT_FINITE,
    "ACT=leftREST;ENV=0": NO_NUMBER,
    "ACT=1eREST;ENV=0": NO_NUMBER,
    "ACT=1e+REST;ENV=0": NO_NUMBER,
    "ACT=e1REST;ENV=0": NO_NUMBER,
    "ACT=1\xffREST;ENV=0": NO_TEXT,
    "ACT=1\0REST;ENV=0": NO_TEXT,
    "\0\xff\xfe": ("a field without a value", "bytes that are no text", "bytes that are no text"),
    "ACT=1REST;ENV=4": ("there is no such env", "ENV is none of this engine's", "not one of this socket's"),
    "ACT=1REST": ("ENV is missing", "ENV is missing", "ENV is missing or not one of this socket's"),
    "ACT=1REST;ENV=-1": NO_INTEGER,
    "ACT=1REST;ENV=+1": NO_INTEGER,
    "ACT=1REST;ENV=18446744073709551617": ("an integer was expected", "beyond 2^63 - 1", "ENV is beyond 2^63 - 1"),
    "ACT=RESET;ENV=0;SEED=x": NO_SEED,
    "ACT=RESET;ENV=0;SEED=+1": NO_SEED,
    "ACT=RESET;ENV=0;SEED=9223372036854775808": HUGE_SEED,
    "ACT=RESET;ENV=0;SEED=18446744073709551617": HUGE_SEED,
    "ACT=1REST;ENV=0||ACT=1REST;ENV=0": ("asked again before", "asked before its answer", "an env asked twice"),
    "ACT=1REST;ACT=1REST;ENV=0": ("ACT comes twice", "ACT given twice", "ACT given twice"),
    "ACT=1REST;ENV=0;ENV=2": ("ENV comes twice", "ENV given twice", "ENV given twice"),
    "ACT=1REST;ENV=0||": ("a request has no ACT", "a field without key=value", "a field without key=value"),
    "JUMP=1;ENV=0": ("a request has no ACT", "no ACT", "no ACT"),
    "GET / HTTP/1.1\r": ("a field without a value", None, "a field without key=value"),
    "ACT=RESET;ENV=0;SET=wind:1": ("there is no parameter 'wind'", "there is no parameter wind", None),
    "ACT=RESET;ENV=0;SET=power:99": ("out of range", None, None),
    "ACT=RESET;ENV=0;OPTIONS=%7B%ff%7D": ("a percent-encoded JSON object", "no percent-encoded JSON object", None),
    "ACT=" + "1" * 2_000_000: ("longer than", "no newline within", "no newline within"),
}  # fmt: skip


@pytest.mark.parametrize("line", WRONG, ids=lambda line: repr(line[:40]))
def test_wrong_input_ends_the_session_and_is_told(side: Side, line: str, request: pytest.FixtureRequest) -> None:
    said = WRONG[line][list(SIDES).index(request.node.callspec.params["side"])]
    if said is None:
        return
    before = len(side.log.read_text()) if side.log else 0
    with side.dial() as client:
        with contextlib.suppress(ConnectionError):
            client.send((line.replace("REST", side.rest) + "\n").encode("latin-1"))
        told = unquote(client.read_to_end().decode())
    if told or "1111" not in line:  # it closed with our bytes still unread: that may be all we hear
        assert told.startswith("ERROR=")
        assert told.count("\n") == 1
        assert said in told
    if side.log:
        eventually(lambda: said in side.log.read_text()[before:], said=f"{said!r} is not logged")
    side.serves()


def test_every_spelling_and_any_split_of_a_request_is_read(side: Side) -> None:
    answers = set()
    more = "" if not side.rest else " , -1."
    with side.dial() as client:
        for text in (
            f"ACT=0.5{side.rest};ENV=1\n",
            f"\r\n act = +5e-1{more} ; env = 01 ; hint = left{side.end}\r\n",
            f"\n\r\nENV=1;ACT=.5{side.rest and ',-10E-1'}\n",
        ):
            client.ask("ACT=RESET;ENV=1;SEED=9")
            for byte in text:
                client.send(byte)
            answers.add(client.line())
        assert len(answers) == 1
        assert ";ENV=1" in answers.pop()
        client.send("ACT=RESET;ENV=0\nACT=RESET;ENV=2\n")  # two requests in one write, answered one after the other
        got = client.line()
        got += "" if "ENV=2" in got else client.line()
        assert got.index("ENV=0") < got.index("ENV=2")


def test_seeds_and_only_seeds_decide(side: Side) -> None:
    with side.dial() as client:
        texts = [client.ask(f"ACT=RESET;ENV=1{tail}") for tail in (";SEED=1", ";SEED=2", "", f";SEED={2**63 - 1}")]
        assert len(set(texts)) == 4
        assert client.ask(f"ACT=RESET;ENV=1;SEED={'0' * 30}1") == texts[0]
        assert client.ask("ACT=RESET;ENV=1") not in texts


def test_a_second_trainer_is_told_who_is_served_and_has_its_turn(side: Side) -> None:
    with side.dial() as first:
        first.send("\n")  # the shared channel: the second is no env socket
        first.ask("GET")
        second = RawClient(("127.0.0.1", side.port))
        assert second.line().startswith("BUSY;SINCE=")
        assert first.ask("ACT=RESET;ENV=0").startswith("OBS=")
    with second:
        assert second.line().startswith("CONFIG:")
        assert second.ask("ACT=RESET;ENV=0;SEED=1").startswith("OBS=")


def test_the_next_trainer_can_come_whatever_the_one_before_did(side: Side) -> None:
    """It leaves in mid-step, after the handshake, and with some of the env sockets or all of them."""
    size = 0
    for channel in ("shared", "per_env", "per_env", "shared"):
        env = ue_rl.connect(f"tcp://127.0.0.1:{side.port}", channel=channel, timeout=10, wait=10)
        size = env.reset().shape[1]
        env.step_async(np.zeros((NUM_ENVS, side.act.count(",") + 1), np.float32))
        env.close()
    for count in (1, 2, 1 + NUM_ENVS):
        socks = [socket.create_connection(("127.0.0.1", side.port), timeout=10) for _ in range(count)]
        for sock in socks[1:]:
            sock.sendall(b"ACT=RESET\n")
        for sock in socks:
            sock.close()
    env = ue_rl.connect(f"tcp://127.0.0.1:{side.port}", channel="per_env", timeout=10, wait=10)
    assert env.reset().shape == (NUM_ENVS, size)
    env.close()


def test_each_answer_has_the_number_of_its_request(side: Side) -> None:
    with RawClient(("127.0.0.1", side.port)) as client:
        assert "SEQ" in client.line().partition("FEATURES=")[2].partition(";")[0].split(",")
        programs.ask_with_numbers(client, side.act)
    programs.ask_env_sockets_with_numbers(side.port, NUM_ENVS, side.act)


# -- hostile trainers


def lab(kind: str) -> AbstractContextManager[int]:
    """Under AddressSanitizer and UBSan."""
    return cpp_engine.running(cpp_engine.made("lab-asan"), kind)


def probe(kind: str, num_envs: int = NUM_ENVS) -> AbstractContextManager[int]:
    engine = unity_engine.compiled("probe.exe", *unity_engine.PROBE)
    return unity_engine.started([engine, "serve", kind, "0", str(num_envs)])


def engines(*kinds: tuple[str, Callable[..., AbstractContextManager[int]], Any]) -> pytest.MarkDecorator:
    """The parameter start; each kind is a language of SIDES, a function of the above and its argument."""
    cases = [
        pytest.param(
            partial(start, kind),
            id=f"{language} {kind}",
            marks=pytest.mark.skipif(any(shutil.which(tool) is None for tool in SIDES[language][1]), reason=language),
        )
        for language, start, kind in kinds
    ]
    return pytest.mark.parametrize("start", cases)


@contextlib.contextmanager
def greeted(port: int) -> Iterator[RawClient]:
    """A trainer that has its handshake, though it may be refused at first, while too many wait."""
    end = time.monotonic() + 20
    while True:
        with RawClient(("127.0.0.1", port), timeout=10) as client:
            line = ""
            with contextlib.suppress(ConnectionError):
                while (line := client.line()).startswith("BUSY"):
                    pass
            if line.startswith("CONFIG:"):
                yield client
                return
            assert time.monotonic() < end, line


@pytest.mark.parametrize("trainers", [100, pytest.param(250, marks=pytest.mark.exhaustive)])
@engines(
    ("cpp", lab, "plain"),
    ("cpp", lab, "agents"),
    ("cpp", lab, "rlbase"),
    ("csharp", probe, "sink"),
    ("csharp", probe, "plain"),
)
def test_hostile_lines_never_harm_the_engine(
    start: Callable[[], AbstractContextManager[int]], trainers: int, request: pytest.FixtureRequest
) -> None:
    """Mutations of the golden lines; then it serves the next trainer."""
    kind = request.node.callspec.id
    rng = random.Random(kind)
    lines = [line for pairs in corpus(VECTORS).values() for _, line in pairs]
    lines += [b"ACT=1;ENV=0||ACT=RESET;ENV=1;SEED=3||ACT=2;ENV=2", b"SHM=ACCEPT;PROOF=" + b"0" * 32]
    lines += [f"ACT=0,1;ENV={env}".encode() for env in range(NUM_ENVS)] * 20
    with start() as port:
        for _ in range(trainers):
            with (
                contextlib.suppress(ConnectionError),
                socket.create_connection(("127.0.0.1", port), timeout=10) as sock,
            ):
                for _ in range(rng.randrange(12)):
                    sock.sendall(mutate(rng, rng.choice(lines), lines) + rng.choice([b"\n", b"\n\n", b"\r\n", b""]))
                if rng.random() < 0.3:
                    sock.setblocking(False)
                    with contextlib.suppress(BlockingIOError):
                        sock.recv(65536)
        with greeted(port) as client:
            if "rlbase" in kind:
                assert not client.ask("RESET").startswith("ERROR")
            else:
                assert client.ask("ACT=RESET;ENV=0;SEED=5").startswith("OBS=")


def connected_to(port: int) -> list[int]:
    """The descriptor of this process's connection to it; none where the engine has ended that."""
    return [one.fd for one in psutil.Process().net_connections("tcp") if one.raddr and one.raddr.port == port]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="shared memory of the engine sides was run on Linux only")
@pytest.mark.parametrize("trainers", [16, pytest.param(40, marks=pytest.mark.exhaustive)])
@engines(("cpp", lab, "plain"), ("csharp", probe, "plain"), ("csharp", probe, "agents"))
def test_a_hostile_trainer_in_memory(
    start: Callable[[], AbstractContextManager[int]], trainers: int, request: pytest.FixtureRequest
) -> None:
    """Random bytes all over what a trainer may write, the header too, and on the socket; the next one is served."""
    rng, before = random.Random(request.node.callspec.id), unity_engine.segments()
    told = 0
    with start() as port:
        url = f"tcp://127.0.0.1:{port}"
        for _ in range(trainers):
            carrier: Any = open_transport(url, "shm", timeout=10)
            memory = carrier.memory
            view, regions = memoryview(memory.buffer).cast("B"), memory.header.regions
            names = ("act", "ask", "resets", "seeds", "obs", "dones", "cmd_c2s", "cmd_s2c")
            places = [regions[name] for name in names if name in regions] + [(0, 4096)]
            for _ in range(rng.randrange(1, 6)):
                at, size = rng.choice(places)
                first = at + (0 if rng.random() < 0.3 else rng.randrange(size))
                end = min(first + rng.choice((1, 4, 8, 64)), at + size)
                view[first:end] = rng.randbytes(end - first)
                if rng.random() < 0.7:
                    memory.words.increment_u64(memory.buffer, 40)  # action_seq
                if rng.random() < 0.3:
                    garbage = rng.randbytes(rng.choice((1, 100, 70_000)))
                    with contextlib.suppress(OSError):
                        for socket_to_it in connected_to(port):
                            told += os.write(socket_to_it, garbage)
            view.release()
            carrier.close()
        assert told > 0
        carrier = open_transport(url, "shm", timeout=20)
        carrier.reset()
        assert np.isfinite(carrier.receive().obs).all()
        carrier.close()
        eventually(lambda: unity_engine.segments() <= before, said="it keeps none behind a session")


@pytest.mark.parametrize("between", [b"", b"\n\n"])
def test_lines_in_a_post_of_a_browser_are_not_played(side: Side, between: bytes) -> None:
    """A page can send them to a port of this machine: as the body of a request, whose head is no line of a trainer."""
    lines = f"ACT=RESET;ENV=3\nACT={side.act};ENV=3\n".encode()
    head = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\nContent-Type: text/plain\r\n\r\n"
    with socket.create_connection(("127.0.0.1", side.port), timeout=20) as page:
        page.sendall(between + head + lines)
        said = b""
        with contextlib.suppress(ConnectionError):
            while piece := page.recv(4096):
                said += piece
    assert b"OBS=" not in said.partition(b"\n")[2], "a handshake at most"
    side.serves()
