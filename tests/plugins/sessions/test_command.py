"""`ue-rl sessions` with the carriers of this folder."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.warm_cli import WarmCli
from tests.plugins.sessions.talking import mcp_client, plain
from tests.support.command_line import ok, run
from tests.support.steps import advance, begin
from tests.support.stopping import HALF, stops_in_the_middle
from ue_rl.connections.dialling import open_transport


def command(game: str, *words: str) -> list[str]:
    return [
        "-m",
        "ue_rl",
        "sessions",
        f"tests.plugins.sessions.game:{game}",
        "--max-sessions",
        "4",
        "--workers",
        "1",
        *words,
    ]


async def test_three_carriers_share_the_sessions_of_a_game() -> None:
    ports = [word for name in ("grpc", "openenv", "mcp") for word in (f"--{name}", "0")]
    with subprocess.Popen([sys.executable, *command("Drift", *ports)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "4 sessions" in process.stdout.readline()
        urls = dict(process.stdout.readline().strip().split(": ", 1) for _ in range(3))
        with closing(open_transport(urls["grpc"], num_envs=3)) as transport:
            begin(transport)
            assert (advance(transport, 0).obs[:, 1] == 1).all()
            async with mcp_client(urls["mcp"]) as call:
                assert (await call("advance", {"ticks": 2}))["tick"] == 2
                assert httpx.post(f"{urls['openenv']}/reset", json={}, timeout=60).status_code == 503, "it is the fifth"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 128 + signal.SIGTERM


@pytest.mark.exhaustive  # each run asks the same of a game that prints, without the package's own client
async def test_over_standard_input_and_output() -> None:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    server = StdioServerParameters(command=sys.executable, args=command("Talks", "--mcp", "stdio"))
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        await session.call_tool("reset", {"seed": 1})
        seen, wrong = plain(await session.call_tool("advance", {"ticks": 5}))
        assert (seen["tick"], wrong) == (5, False)


_ABOUT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


@pytest.mark.slow
def test_nothing_but_messages_stands_on_standard_output() -> None:
    """Whatever a game prints, at its import too, and its child reads none of the client's words."""
    words = command("Drift", "--mcp", "stdio")
    words[words.index("tests.plugins.sessions.game:Drift")] = "tests.plugins.sessions.noisy:Noisy"
    asked: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": _ABOUT}, {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "reset", "arguments": {"seed": 1}}},
    ]  # fmt: skip
    said = "".join(json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in asked)
    with subprocess.Popen(
        [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(said)
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
        assert process.stdout.read() == ""
        log = process.stderr.read()
        assert process.wait(20) == 0
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[1]["result"]["structuredContent"]["tick"] == 0
    for printed in ("by print()", "past Python, as C does", "child: read 0"):
        assert log.count(printed) >= 3, printed


@pytest.mark.parametrize("name", [pytest.param("SIGTERM", marks=pytest.mark.exhaustive), "SIGINT"])
def test_a_signal_ends_a_server_on_standard_input_whose_client_says_nothing(name: str) -> None:
    words = [sys.executable, *command("Drift", "--mcp", "stdio")]
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _ABOUT}
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        try:
            process.send_signal(getattr(signal, name))
            code = process.wait(20)
        finally:
            process.kill()
        assert "Traceback" not in process.stderr.read()
    assert code == (0 if name == "SIGINT" else 128 + signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "listens", "half"),
    [("--openenv 0", r"openenv: http://127.0.0.1:(\d+)", "http"), ("--grpc 0", r"grpc://127.0.0.1:(\d+)", "text")],
)
def test_ctrl_c_in_the_middle_of_a_request(
    words: str, listens: str, half: str, tmp_path: Path, warm_cli: WarmCli
) -> None:
    stops_in_the_middle(warm_cli, f"sessions tests.plugins.sessions.game:Drift {words}", listens, HALF[half], tmp_path)


def test_sessions_send_the_infos_of_a_gymnasium_id() -> None:
    assert "--send-info" in ok("sessions --help")
    result = run("sessions tests.plugins.sessions.game:Drift --grpc 0 --send-info")
    assert result.exit_code == 2
    assert "Gymnasium" in result.output
