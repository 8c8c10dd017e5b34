"""Who may connect: tokens and TLS, right, wrong and missing on either side; who is served meanwhile goes on."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ue_rl
from tests.support.listening import serving
from tests.support.models import make
from tests.support.waiting import eventually
from ue_rl.bridges import GymnasiumBridge, ShmUpgrader, run_in_thread
from ue_rl.connections.dialling import address_of, open_transport
from ue_rl.inference import export_onnx
from ue_rl.inference.runtime.reload import ReloadingInference
from ue_rl.inference.server.server import PolicyServer
from ue_rl.protocol.access import server_access
from ue_rl.protocol.access.server_access import Refusals, ServerAccess, is_local
from ue_rl.protocol.access.tokens import answer, read_token
from ue_rl.system.errors import AccessRefused, ConfigurationError, EngineDisconnected, EngineTimeout
from ue_rl.training.engine import engines_of
from ue_rl.training.options import TrainOptions

CERTS = Path(__file__).with_name("certs")
SERVER = "ue_rl.protocol.access.server_access"


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("a secret of these tests, no other\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    path = tmp_path / "wrong"
    path.write_text("another secret of these tests\n")
    path.chmod(0o600)
    return path


@contextmanager
def engine(upgrader: Any = None, **access: Any) -> Iterator[Any]:
    bridge = GymnasiumBridge("CartPole-v1", 2)
    with run_in_thread(bridge, port=0, upgrader=upgrader, access=ServerAccess(**access) if access else None) as running:
        yield running


def step(env: Any) -> None:
    env.reset()
    for _ in range(20):
        env.step(np.array([0, 1]))


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("channel", ["shared", "per-env"])
def test_who_knows_the_token_is_served(token: Path, channel: str, tls: bool) -> None:
    files = {"tls_cert": CERTS / "engine.pem"} if tls else {}
    with engine(token_file=token, **files) as running:
        assert running.url.startswith("tls://" if tls else "tcp://")
        more = f"&ca={CERTS / 'ca.pem'}" if tls else ""
        with closing(ue_rl.connect(f"{running.url}?channel={channel}&token-file={token}{more}")) as env:
            facts = env.transport.describe()
            assert (facts["transport"], facts["wiring"][:6]) == (
                "tcp with tls" if tls else "tcp", "shared" if channel == "shared" else "2 env ",
            )  # fmt: skip
            step(env)


def test_shared_memory_is_offered_behind_the_token(token: Path) -> None:
    with engine(ShmUpgrader(), token_file=token) as running:
        for transport in ("auto", "shm"):
            with closing(ue_rl.connect(running.url, transport, token_file=token)) as env:
                assert env.transport.describe()["transport"] == "shared memory"
                step(env)
        with pytest.raises(AccessRefused):
            ue_rl.connect(running.url)


def test_a_run_takes_the_token(token: Path, tmp_path: Path) -> None:
    with engine(token_file=token) as running:
        options = TrainOptions(url=running.url, token_file=str(token))
        with closing(engines_of(options, tmp_path)) as transport:
            assert transport.connect().num_envs == 2


def test_an_env_that_is_hosted_here_asks_for_the_token(token: Path, tmp_path: Path) -> None:
    with closing(engines_of(TrainOptions(num_envs=1, token_file=str(token)), tmp_path)) as transport:
        assert transport.connect().num_envs == 1


def test_a_crowd_of_refused_ones_is_a_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    now = 5.0
    refusals = Refusals(logging.getLogger("tests"), "a connection", lambda: now)
    for _ in range(3):
        refusals.log("a peer", "it is nobody")
    now += 1.0
    refusals.log("another", "it is nobody")
    assert caplog.messages == [
        "a connection from a peer was refused: it is nobody",
        "a connection from another was refused: it is nobody (and 2 more since the last such line)",
    ]


def test_nobody_else_is_and_who_is_served_goes_on(token: Path, wrong: Path, caplog: pytest.LogCaptureFixture) -> None:
    with engine(token_file=token) as running, closing(ue_rl.connect(running.url, token_file=token)) as env:
        step(env)
        with caplog.at_level(logging.WARNING):
            with pytest.raises(AccessRefused, match=f"the engine on 127.0.0.1:{running.port} asks for a token"):
                open_transport(running.url)
            with pytest.raises(AccessRefused, match=r"refused the token.*its token is wrong"):
                open_transport(running.url, token_file=wrong)
            with socket.create_connection(("127.0.0.1", running.port)) as sock:  # one that goes on without
                sock.sendall(b"ACT=RESET;ENV=0\n")
                assert b"ERROR=this%20engine%20asks%20for%20a%20token" in everything(sock)
        assert "a connection from 127.0.0.1:" in caplog.text
        step(env)
    with engine() as running, pytest.raises(AccessRefused, match=r"asks for no token.*CONFIG"):
        open_transport(running.url, token_file=token)


def everything(sock: socket.socket) -> bytes:
    sock.settimeout(10)
    said = b""
    while data := sock.recv(4096):
        said += data
    return said


def test_an_answer_that_was_heard_is_worth_nothing(token: Path) -> None:
    secret = read_token(token)
    with engine(token_file=token) as running:
        with socket.create_connection(("127.0.0.1", running.port)) as first, ExitStack() as stack:
            asked = stack.enter_context(first.makefile("rb"))
            line, _ = answer(secret, asked.readline().decode().strip()) or (b"", "")
            first.sendall(line)
            assert asked.readline().startswith(b"AUTH=")
            assert asked.readline().startswith(b"CONFIG:")
        with socket.create_connection(("127.0.0.1", running.port)) as again:
            again.sendall(line)
            assert b"its%20token%20is%20wrong" in everything(again)
        with closing(ue_rl.connect(running.url, token_file=token)) as env:
            step(env)


@pytest.mark.parametrize(
    ("says", "error", "what"),
    [
        (lambda asked: b"AUTH=" + b"0" * 64 + b"\n", AccessRefused, "does not know the token"),
        (lambda asked: b"AUTH=" + asked.partition(b",")[2] + b"\n", AccessRefused, "does not know the token"),
        (lambda asked: b"CONFIG:OBS=1;ACT=1\n", AccessRefused, "does not know the token"),
        (lambda asked: b"A" * 10_000, AccessRefused, "does not know the token"),
        (lambda asked: b"", EngineTimeout, "not said a word about a token"),
    ],
)
def test_an_engine_must_know_it_too(token: Path, says: Callable[[bytes], bytes], error: Any, what: str) -> None:
    def rogue(sock: socket.socket) -> None:
        sock.sendall(b"AUTH=" + b"1" * 64 + b"\n")
        sock.sendall(says(sock.makefile("rb").readline().strip()))
        sock.recv(1)

    patience = 0.3 if error is EngineTimeout else 20
    with serving(rogue) as (host, port), pytest.raises(error, match=what):
        open_transport(f"tcp://{host}:{port}", token_file=token, connect_timeout=patience)


def test_who_says_nothing_makes_room(token: Path, slack: float) -> None:
    with engine(token_file=token, patience=0.2 * slack, most_outside=2) as running:  # in which all three come
        silent = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(3)]
        assert b"2%20connections%20are%20being%20asked" in everything(silent[2])
        assert all(b"in%20time" in everything(sock) for sock in silent[:2])
        with closing(ue_rl.connect(running.url, token_file=token)) as env:
            step(env)
        for sock in silent:
            sock.close()


def test_files_that_hold_no_token(tmp_path: Path, token: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "short").write_text("secret\n")
    for name, what in (("short", "is no secret"), ("none", "cannot be read"), (".", "cannot be read")):
        with pytest.raises(ConfigurationError, match=what):
            read_token(tmp_path / name)
    if os.name != "nt":
        token.chmod(0o644)
        read_token(token)
        assert "others on this machine can read" in caplog.text


def test_what_anybody_may_reach_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert [is_local(host) for host in ("127.0.0.1", "::1", "localhost", "LOCALHOST.", "127.1.2.3")] == [True] * 5
    assert [is_local(host) for host in ("0.0.0.0", "", "::", "10.0.0.5", "game.example")] == [False] * 5
    server_access.warn_if_open("127.0.0.1")
    assert "may connect" not in caplog.text
    server_access.warn_if_open("0.0.0.0")
    assert "anybody who reaches 0.0.0.0 may connect" in caplog.text


def test_the_files_of_an_address() -> None:
    address = address_of("tls://10.0.0.5?ca=my-files/ca_1.pem&token-file=a-b")
    assert address.options == {"ca": Path("my-files/ca_1.pem"), "token_file": Path("a-b")}
    assert str(address) == "tls://10.0.0.5:7777?ca=my-files/ca_1.pem&token-file=a-b"
    for url, what in (
        ("tcp://a?ca=x", "'ca' cannot stand"),
        ("tls://a?transport=shm", "'transport' cannot stand"),
        ("grpc://a?channel=shared", "'channel' cannot stand"),
        ("tls://a?ca=", "ca must be the name of a file"),
    ):
        with pytest.raises(ConfigurationError, match=what):
            address_of(url)
    with pytest.raises(ConfigurationError, match=r"certificates are for TLS.*tls://"):
        open_transport("tcp://127.0.0.1:1", ca="x")
    with pytest.raises(ConfigurationError, match="x cannot be used for TLS"):
        open_transport("tls://127.0.0.1:1", ca="x")
    with pytest.raises(ConfigurationError, match="tls_cert"):
        ServerAccess(tls_key="x")


def test_a_certificate_without_its_key_is_named(tmp_path: Path) -> None:
    alone, key = tmp_path / "alone.pem", tmp_path / "key.pem"
    whole = (CERTS / "engine.pem").read_text()
    start = whole.index("-----BEGIN CERTIFICATE")
    alone.write_text(whole[start:])
    key.write_text(whole[:start])
    with pytest.raises(ConfigurationError, match=r"has no private key in it.*--tls-key FILE"):
        ServerAccess(tls_cert=alone)
    with pytest.raises(ConfigurationError, match=r"has no private key in it.*&key=FILE"):
        open_transport(f"tls://127.0.0.1:1?cert={alone}")
    ServerAccess(tls_cert=alone, tls_key=key)
    (tmp_path / "none.pem").write_text("no certificate")
    with pytest.raises(ConfigurationError, match=r"none.pem cannot be used for TLS.*expected PEM"):
        ServerAccess(tls_cert=tmp_path / "none.pem")
    other = CERTS / "trainer.pem"
    with pytest.raises(ConfigurationError, match="the key is not that of the certificate"):
        ServerAccess(tls_cert=alone, tls_key=other)


# -- TLS


@pytest.mark.parametrize(
    ("served", "words", "what"),
    [
        ("elsewhere", "ca=ca.pem", "the certificate is of another host"),
        ("expired", "ca=ca.pem", "the certificate has expired"),
        ("self", "ca=ca.pem", "the certificate is signed by itself"),
        ("engine", "", "signed by somebody whom this side does not know"),
    ],
)
def test_a_wrong_certificate_is_named(served: str, words: str, what: str, caplog: pytest.LogCaptureFixture) -> None:
    with engine(tls_cert=CERTS / f"{served}.pem") as running:
        with caplog.at_level(logging.WARNING), pytest.raises(AccessRefused, match=f"no TLS with 127.0.0.1:.*{what}"):
            open_transport(f"{running.url}?{words.replace('=', f'={CERTS}/')}")
        eventually(lambda: "was refused: no TLS: " in caplog.text)


def test_certificates_of_trainers() -> None:
    ca = CERTS / "ca.pem"
    with engine(tls_cert=CERTS / "engine.pem", tls_client_ca=ca) as running:
        for own in (None, "self"):
            with pytest.raises(AccessRefused, match="It may ask for a certificate"):
                open_transport(running.url, ca=ca, cert=own and CERTS / f"{own}.pem")
        with closing(ue_rl.connect(running.url, ca=ca, cert=CERTS / "trainer.pem")) as env:
            step(env)


def test_no_ticket_for_a_later_session_comes() -> None:
    trusting = ssl.create_default_context(cafile=CERTS / "ca.pem")
    trusting.minimum_version = ssl.TLSVersion.TLSv1_3
    with (
        engine(tls_cert=CERTS / "engine.pem") as running,
        socket.create_connection(("127.0.0.1", running.port), timeout=20) as plain,
        trusting.wrap_socket(plain, server_hostname="127.0.0.1") as sock,
    ):
        assert sock.recv(4096).startswith(b"CONFIG:")  # tickets come before it
        assert sock.session is None or not sock.session.has_ticket


def test_plain_text_where_tls_is_spoken_and_the_reverse(token: Path) -> None:
    with engine(tls_cert=CERTS / "engine.pem", patience=0.3) as running:
        with pytest.raises(EngineDisconnected, match="this port speaks TLS: dial tls://"):
            open_transport(running.url.replace("tls", "tcp"))
        with pytest.raises(EngineDisconnected, match=r"dial tls://.*fault: caller.*Dial tls://HOST:PORT\?ca=FILE"):
            open_transport(running.url.replace("tls", "tcp"), token_file=token)
        with socket.create_connection(("127.0.0.1", running.port)) as sock:
            sock.sendall(b"ACT=RESET;ENV=0\n")
            assert b"this%20port%20speaks%20TLS" in everything(sock)
    with (
        engine(tls_cert=CERTS / "engine.pem") as running,
        closing(ue_rl.connect(running.url, ca=CERTS / "ca.pem")) as env,
    ):
        step(env)
    with engine() as running, pytest.raises(AccessRefused, match=r"speaks no TLS.*Dial tcp://"):
        open_transport(running.url.replace("tcp", "tls"), ca=CERTS / "ca.pem")


def test_a_trainer_that_goes_or_a_line_too_many_is_seen_within_tls() -> None:
    with engine(tls_cert=CERTS / "engine.pem") as running:
        for _ in range(3):  # each goes away without a word, and the next is served
            with closing(ue_rl.connect(running.url, ca=CERTS / "ca.pem", wait=20)) as env:
                step(env)
        transport = open_transport(running.url, ca=CERTS / "ca.pem", wait=20)
        transport.reset()
        transport.receive()
        running.close()
        with pytest.raises(EngineDisconnected):
            transport.send_actions(np.zeros((2, 1), np.float32))
            transport.receive()


# -- the policy server


def test_the_policy_server_asks_as_well(tmp_path: Path, token: Path) -> None:
    export_onnx(make(), tmp_path / "model.onnx")
    context = ssl.create_default_context(cafile=CERTS / "ca.pem")

    async def talk() -> list[bytes]:
        with ReloadingInference(tmp_path / "model.onnx", interval=None) as policy:
            server = PolicyServer(policy, port=0, access=ServerAccess(token, CERTS / "engine.pem"))
            async with server:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
                line, _ = answer(read_token(token), (await reader.readline()).decode().strip()) or (b"", "")
                writer.write(line + b"CONFIG:OBS=4;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=1;VERSION=1\nOBS=0,0,0,0;ENV=0\n")
                said = [await reader.readline() for _ in range(2)]
                writer.close()
                return said

    proof, acts = asyncio.run(asyncio.wait_for(talk(), 20))
    assert (proof[:5], acts[:4]) == (b"AUTH=", b"ACT=")
