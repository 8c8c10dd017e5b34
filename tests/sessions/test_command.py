"""`ue-rl sessions` with the carriers of this folder."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing

import httpx

from tests.sessions.talking import mcp_client, plain
from tests.support.steps import advance, begin
from ue_rl.connecting import open_transport


def command(game: str, *words: str) -> list[str]:
    return ["-m", "ue_rl", "sessions", f"tests.sessions.game:{game}", "--max-sessions", "4", "--workers", "1", *words]


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


async def test_over_standard_input_and_output() -> None:
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    server = StdioServerParameters(command=sys.executable, args=command("Talks", "--mcp", "stdio"))
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        await session.call_tool("reset", {"seed": 1})
        seen, wrong = plain(await session.call_tool("advance", {"ticks": 5}))
        assert (seen["tick"], wrong) == (5, False)
