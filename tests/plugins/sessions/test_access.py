"""Who may use sessions: tokens and TLS over gRPC, OpenEnv and MCP, right, wrong and missing; proxies."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from websockets.sync.client import connect as dial_websocket

from tests.harness.warm_cli import WarmCli
from tests.support.command_line import run
from tests.support.slack import patient
from tests.support.steps import advance, begin
from ue_rl.connections.dialling import address_of, open_transport
from ue_rl.plugins.sessions.grpc.client import SessionClient
from ue_rl.plugins.sessions.grpc.client.errors import named
from ue_rl.protocol.access.server_access import ServerAccess
from ue_rl.system.errors import AccessRefused, ConfigurationError, EngineUnreachable

ROOT = Path(__file__).parents[3]
CERTS = ROOT / "tests" / "security" / "certs"
CA = f"ca={CERTS / 'ca.pem'}"


def secret(path: Path, text: str) -> Path:
    path.write_text(f"{text}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def token(tmp_path: Path) -> Path:
    return secret(tmp_path / "token", "a secret of these tests, no other")


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    return secret(tmp_path / "wrong", "another secret of these tests")


@pytest.mark.parametrize("url", ["grpc://127.0.0.1:1", "grpcs://127.0.0.1:1"])
def test_what_cannot_be_used_for_tls_is_named(url: str) -> None:
    with pytest.raises(ConfigurationError, match="x cannot be used for TLS"):
        open_transport(url, ca="x")
    with pytest.raises(ConfigurationError, match="a key is for a certificate"):
        open_transport(url, key="x")


def test_what_is_of_text_alone_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="carries no text") as caught:
        open_transport("grpc://127.0.0.1:1", nul_terminated=True)
    assert caught.value.field == "nul_terminated"


def door(**files: Any) -> dict[str, Any]:
    return {"access": ServerAccess(**files)}


def plays(url: str) -> str:
    """Steps a session over gRPC; how it is carried."""
    with contextlib.closing(open_transport(url, num_envs=2, timeout=20)) as transport:
        begin(transport)
        assert (advance(transport, 0).obs[:, 1] == 1).all()
        return transport.describe()["transport"]


@pytest.mark.parametrize("tls", [False, True])
async def test_over_grpc_who_knows_the_token_is_served(served: Any, token: Path, wrong: Path, tls: bool) -> None:
    files = {"tls_cert": CERTS / "engine.pem"} if tls else {}
    pool, server = served("grpc", carrier_options=door(token_file=token, **files))
    assert address_of(server.url).scheme == ("grpcs" if tls else "grpc")
    more = f"&{CA}" if tls else ""
    assert plays(f"{server.url}?token-file={token}{more}") == ("grpc with tls" if tls else "grpc")
    address = f"{server.url}?token-file={token}{more}"
    async with SessionClient(address, timeout=20) as client:
        assert (await client.reset(seed=1)).tick == 0
        assert (await client.state()).session_id == client.session_id
    async with SessionClient(address, tick_rate=100, timeout=20) as client:
        await client.act([0.0, 0.0])
        assert (await client.observe()).session_id == client.session_id
    assert not pool.sessions()
    for words in (f"?{more[1:]}", f"?token-file={wrong}{more}"):
        with pytest.raises(AccessRefused, match="without its token"):
            open_transport(f"{server.url}{words}", timeout=20)
        with pytest.raises(AccessRefused, match="without its token"):
            await SessionClient(f"{server.url}{words}").__aenter__()
    assert not pool.sessions()


def test_over_grpc_nothing_at_all_is_answered_without_the_token(served: Any, token: Path) -> None:
    _, server = served("grpc", carrier_options=door(token_file=token))
    with grpc.insecure_channel(address_of(server.url).place) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
            health.Check(health_pb2.HealthCheckRequest(), timeout=20)
        shown = (("authorization", f"bearer {token.read_text().strip()}"),)  # the scheme in any case
        assert health.Check(health_pb2.HealthCheckRequest(), timeout=20, metadata=shown).status == 1
        methods = channel.stream_stream("/ue_rl.v1.Sessions/Play", lambda _: b"", lambda data: data)
        with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
            next(iter(methods(iter(()), timeout=20)))


@pytest.mark.parametrize(
    ("cert", "words", "what"),
    [
        ("engine", CA, None), ("engine", "", "somebody whom this side does not know"),
        ("elsewhere", CA, "of another host"), ("expired", CA, "has expired"), ("self", CA, "signed by itself"),
    ],
    ids=["right", "unknown", "elsewhere", "expired", "self"],
)  # fmt: skip
def test_over_grpc_a_wrong_certificate_is_named(served: Any, cert: str, words: str, what: str | None) -> None:
    _, server = served("grpc", carrier_options=door(tls_cert=CERTS / f"{cert}.pem"))
    if what is None:
        assert plays(f"{server.url}?{words}") == "grpc with tls"
        assert plays(f"{server.url.replace('grpcs', 'grpc')}?{words}") == "grpc with tls", "ca means TLS"
        return
    with pytest.raises(AccessRefused, match=f"no TLS with 127.0.0.1:.*{what}"):
        open_transport(f"{server.url}?{words}", timeout=20)


def test_over_grpc_who_speaks_no_tls_is_told(served: Any) -> None:
    _, guarded = served("grpc", carrier_options=door(tls_cert=CERTS / "engine.pem"))
    with pytest.raises(EngineUnreachable, match="Where it speaks TLS, dial grpcs://"):
        open_transport(guarded.url.replace("grpcs", "grpc"), timeout=20)
    _, plain = served("grpc")
    with pytest.raises(AccessRefused, match=r"speaks no TLS.*Dial grpc://"):
        open_transport(f"{plain.url.replace('grpc', 'grpcs')}?{CA}", timeout=20)


@pytest.mark.slow
def test_over_grpc_who_waits_in_vain_is_told_why(served: Any) -> None:
    _, guarded = served("grpc", carrier_options=door(tls_cert=CERTS / "engine.pem"))
    for url, what in (
        (guarded.url, "somebody whom this side does not know"), (guarded.url.replace("grpcs", "grpc"), "dial grpcs://"),
    ):  # fmt: skip
        with pytest.raises((AccessRefused, EngineUnreachable), match=what):
            open_transport(url, wait=0.2, connect_timeout=patient(0.5))


def test_over_grpc_a_certificate_of_the_client_is_asked_for(served: Any) -> None:
    files = {"tls_cert": CERTS / "engine.pem", "tls_client_ca": CERTS / "ca.pem"}
    _, server = served("grpc", carrier_options=door(**files))
    assert plays(f"{server.url}?{CA}&cert={CERTS / 'trainer.pem'}") == "grpc with tls"
    for words in (CA, f"{CA}&cert={CERTS / 'self.pem'}"):
        with pytest.raises((EngineUnreachable, AccessRefused)):
            open_transport(f"{server.url}?{words}", timeout=20)


@pytest.mark.parametrize("carrier", ["openenv", "mcp"])
def test_over_http_who_knows_the_token_is_served(served: Any, carrier: str, token: Path, wrong: Path) -> None:
    with contextlib.ExitStack() as stack:
        options = door(token_file=token, tls_cert=CERTS / "engine.pem")
        url = served(carrier, carrier_options=options)[1].url
        assert url.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=CERTS / "ca.pem")
        client = stack.enter_context(httpx.Client(verify=context, timeout=20, trust_env=False))

        def asked(**headers: str) -> httpx.Response:
            if carrier == "openenv":
                return client.get(f"{url}/schema", headers=headers)
            hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
            body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
            return client.post(url, json=body, headers={"Accept": "application/json, text/event-stream", **headers})

        right = f"Bearer {token.read_text().strip()}"
        assert asked(Authorization=right).status_code == 200
        for headers in ({}, {"Authorization": f"Bearer {wrong.read_text().strip()}"}, {"Authorization": "Basic abc"}):
            answer = asked(**headers)
            assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert "token" in answer.json()["error"]
        if carrier == "openenv":
            address = f"{url.replace('https', 'wss')}/ws"
            with dial_websocket(address, ssl=context, additional_headers={"Authorization": right}) as opened:
                opened.send(json.dumps({"type": "reset", "data": {}}))
                assert json.loads(opened.recv(timeout=20))["type"] == "observation"
            with pytest.raises(Exception, match="403"):
                dial_websocket(address, ssl=context)
        with pytest.raises(httpx.TransportError):
            client.get(url.replace("https", "http"))


def test_sessions_as_an_engine_ask_for_the_token(make_pool: Any, token: Path) -> None:
    from ue_rl.plugins.sessions.realtime.engine import serve

    with contextlib.closing(serve(make_pool(), "127.0.0.1", 0, num_envs=2, **door(token_file=token))) as server:
        with contextlib.closing(open_transport(server.url, token_file=token)) as transport:
            begin(transport)
        with pytest.raises(AccessRefused):
            open_transport(server.url)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Listens where the environment says that a proxy is; nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for name in ("http_proxy", "https_proxy", "grpc_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{listener.getsockname()[1]}")
        for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield listener


async def test_no_proxy_is_asked_for_this_machine(served: Any, proxy: socket.socket) -> None:
    _, server = served("grpc")
    for host in ("127.0.0.1", "localhost"):
        url = server.url.replace("127.0.0.1", host)
        assert plays(url) == "grpc"
        async with SessionClient(url, timeout=20) as client:
            assert (await client.reset()).tick == 0
    proxy.settimeout(0)
    with pytest.raises(BlockingIOError):
        proxy.accept()


def test_a_proxy_that_was_asked_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an address that nobody has; the proxy's port answers nobody."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("https_proxy", "grpc_proxy", "no_proxy", "no_grpc_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(EngineUnreachable, match=r"The proxy of \$http_proxy was asked.*name 192.0.2.1 in \$no_proxy"):
        open_transport("grpc://192.0.2.1:9", timeout=20)
    monkeypatch.setenv("no_proxy", "192.0.2.1")
    told = named(_Failed(grpc.StatusCode.DEADLINE_EXCEEDED, ""), "192.0.2.1:9")
    assert "is the game paused" in str(told).lower()


def test_a_server_that_is_stopped_is_not_said_to_be_missing() -> None:
    """Its kernel holds the connection, and nobody answers the pings of gRPC, which is what gRPC says then."""
    told = named(_Failed(grpc.StatusCode.UNAVAILABLE, "Stream removed (ping timeout)"), "192.0.2.1:9")
    assert isinstance(told, EngineUnreachable)
    assert "192.0.2.1:9 no longer answers gRPC's pings" in str(told)
    assert "nobody serves" not in str(told)


class _Failed(grpc.RpcError):  # type: ignore[misc]
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self._code = code
        self._details = details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


async def test_an_address_of_a_client_is_read_as_elsewhere() -> None:
    assert SessionClient("127.0.0.1:9999").target == SessionClient("grpc://127.0.0.1:9999").target == "127.0.0.1:9999"
    for target in ("tcp://127.0.0.1:1", "grpc://127.0.0.1:1?ticks=2", "127.0.0.1:none"):
        with pytest.raises(ConfigurationError, match="not an address"):
            SessionClient(target)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--mcp", "stdio", "--token-file", "TOKEN"], "nobody connects to standard input"),
        (["--grpc", "0", "--allow-host", "pages.example"], "--allow-host is for HTTP"),
        (["--openenv", "0", "--allow-host", "http://pages.example"], "not the name of a host"),
        (["--grpc", "0", "--tls-key", "TOKEN"], "TLS needs a certificate"),
    ],
)
def test_what_no_server_could_do_is_refused(words: list[str], what: str, token: Path) -> None:
    result = run(
        "sessions", "tests.plugins.sessions.game:Drift", *(word.replace("TOKEN", str(token)) for word in words)
    )
    assert what in f"{result.output} {result.exception}".replace("\n", " ")
    assert "64 sessions" not in result.output, "before the game is made"


@pytest.mark.slow
def test_the_command_hands_each_carrier_what_guards_it(
    token: Path, wrong: Path, tmp_path: Path, warm_cli: WarmCli
) -> None:
    """The token and TLS to all of them, the names of hosts to those over HTTP."""
    words = [
        "sessions",
        "tests.plugins.sessions.game:Drift",
        "--tcp",
        "0",
        "--grpc",
        "0",
        "--openenv",
        "0",
        "--mcp",
        "0",
    ]
    guards = ["--token-file", token, "--tls-cert", CERTS / "engine.pem", "--allow-host", "a.example"]
    serving = warm_cli.start(list(map(str, [*words, *guards])), output=tmp_path / "said.txt", cwd=ROOT)
    serving.wait_for("Ctrl-C")
    urls = dict(re.findall(r"(tcp|grpc|openenv|mcp): (\S+)", serving.text))
    for name in ("tcp", "grpc"):
        with contextlib.closing(open_transport(f"{urls[name]}?{CA}", token_file=token, timeout=20)) as transport:
            begin(transport)
        with pytest.raises(AccessRefused):
            open_transport(f"{urls[name]}?{CA}", token_file=wrong, timeout=20)
    right = {"Authorization": f"Bearer {token.read_text().strip()}"}
    context = ssl.create_default_context(cafile=CERTS / "ca.pem")
    with httpx.Client(verify=context, timeout=20, trust_env=False) as client:
        for url in (f"{urls['openenv']}/schema", urls["mcp"]):
            assert client.get(url, headers={"Host": "a.example"}).status_code == 401
            assert client.get(url, headers={**right, "Host": "b.example"}).status_code == 421
            assert client.get(url, headers={**right, "Host": "a.example"}).status_code not in (401, 421)
    serving.signal(signal.SIGINT)
    serving.wait()
