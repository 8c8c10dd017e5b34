"""Lets the real clients of other venvs play whole games: openenv 0.10, openenv-core 0.3 (475 MB each), mcp 1.x and 2.x.

    python -m tests.plugins.sessions.real_clients --openenv VENV/bin/python --mcp VENV/bin/python ..

serves Drift from this venv and runs the functions below in the others, which need nothing of ue_rl.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

STDIO = """
from tests.plugins.sessions.game import Drift
from ue_rl.plugins.sessions.mcp import serve_stdio
from ue_rl.plugins.sessions.realtime import SessionPool
with SessionPool(Drift, max_sessions=1, workers=1) as pool:
    serve_stdio(pool)
"""


def play_openenv(url: str) -> None:
    """Two clients of the package, one of which calls tools; the pool has room for two sessions."""
    from openenv.core import GenericEnvClient
    from openenv.core.mcp_client import MCPToolClient

    with GenericEnvClient(base_url=url).sync() as env:
        told, steps = env.reset(seed=11), 0
        first = told.observation["observation"]
        while not told.done:
            told, steps = env.step({"action": [0.5, 0.0]}), steps + 1
        assert told.observation["result"] in ("win", "lose", "draw")
        assert env.state()["tick"] == steps
        assert env.reset(seed=11).observation["observation"] == first, "the seed decides"
        codes = {
            "EXECUTION_ERROR": [{"action": [1.0]}, {"tool": "fly"}, {"tool": "nudge", "arguments": {"by": "far"}}],
            "VALIDATION_ERROR": [{"action": "far"}, {"act": 1}],
        }
        for code, wrong in codes.items():
            for action in wrong:
                assert code in refused(lambda action=action: env.step(action)), action
        with GenericEnvClient(base_url=url).sync() as other:
            other.reset()
            third = GenericEnvClient(base_url=url).sync()
            why = refused(lambda: (third.connect(), third.reset()))
            assert "CAPACITY_REACHED" in why or "ConnectionClosed" in why, why  # 0.3 sends into what the server closed
    print(f"openenv: an episode of {steps} steps, codes, capacity")

    async def tools() -> None:
        ways: tuple[dict[str, Any], ...] = ({}, {"mode": "production"})
        for way in ways:
            async with MCPToolClient(base_url=url, **way) as env:
                names = [tool.name for tool in await env.list_tools()]
                assert names[-2:] == ["nudge", "break_down"], names
                seen = await env.call_tool("advance", ticks=3)
                assert seen["tick"] == 3, seen
                for name, arguments in (("fly", {}), ("nudge", {"by": "far"}), ("break_down", {})):
                    try:
                        await env.call_tool(name, **arguments)
                    except RuntimeError:
                        continue
                    raise AssertionError(name)

    asyncio.run(tools())
    print("openenv: tools, as steps and over JSON-RPC")


def play_mcp(url: str, python: str) -> None:
    """The package's client over HTTP, and over stdio with a server that it starts itself."""
    sys.path.insert(0, str(Path(__file__).parents[3]))
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    from tests.plugins.sessions.talking import mcp_session, plain

    async def game(session: Any, transport: str) -> None:
        assert len((await session.list_tools()).tools) == 8
        seen, _ = plain(await session.call_tool("reset", {"seed": 11}))
        steps = 0
        while not (seen["terminated"] or seen["truncated"]):
            seen, wrong = plain(await session.call_tool("step", {"action": [0.5, 0.0]}))
            assert not wrong, seen
            steps += 1
        for name, arguments, code in (
            ("fly", {}, "TOOL_NOT_FOUND"), ("nudge", {"by": "far"}, "INVALID_PARAMETERS"),
            ("step", {"action": [1.0]}, "INVALID_ARGUMENT"),
        ):  # fmt: skip
            answer, wrong = plain(await session.call_tool(name, arguments))
            assert wrong, name
            assert answer["code"] == code, answer
        assert len((await session.list_resources()).resources) == 2
        print(f"mcp over {transport}: an episode of {steps} steps, codes, resources")

    class Naming:
        """Gives each tool the session that the last reset has answered, as a protocol without sessions needs it."""

        def __init__(self, client: Any) -> None:
            self.client, self.given = client, dict[str, Any]()
            self.list_tools, self.list_resources = client.list_tools, client.list_resources

        async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
            answer = await self.client.call_tool(name, {**arguments, **self.given})
            if name == "reset":
                self.given = {"session_id": plain(answer)[0]["session_id"]}
            return answer

    async def both() -> None:
        async with mcp_session(url) as session:
            await game(session, "HTTP")
        server = StdioServerParameters(command=python, args=["-c", STDIO], cwd=str(Path(__file__).parents[3]))
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            await game(session, "stdio")
        try:
            from mcp import Client  # 2.x: it tries a protocol without sessions first
        except ImportError:
            return
        async with Client(url, mode="legacy") as client:
            await game(client, "HTTP, Client")
        async with Client(url) as client:
            assert client.protocol_version >= "2026-07-28"
            await game(Naming(client), f"HTTP without sessions, Client, {client.protocol_version}")

    asyncio.run(both())


def refused(call: Any) -> str:
    """What it raises."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever the client makes of it
        return f"{type(error).__name__}: {error}"
    raise AssertionError("it was taken")


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--openenv", nargs="*", default=[], metavar="PYTHON")
    parser.add_argument("--mcp", nargs="*", default=[], metavar="PYTHON")
    parser.add_argument("--play", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.play:
        name, *arguments = json.loads(given.play)
        globals()[name](*arguments)
        return
    from tests.plugins.sessions.game import Drift
    from ue_rl.plugins.sessions import mcp, openenv
    from ue_rl.plugins.sessions.realtime import SessionPool

    with SessionPool(Drift, max_sessions=2, workers=2) as pool, openenv.serve(pool) as one, mcp.serve(pool) as other:
        plays = [(python, ["play_openenv", one.url]) for python in given.openenv]
        plays += [(python, ["play_mcp", other.url, sys.executable]) for python in given.mcp]
        for python, play in plays:
            print(f"-- {python}", flush=True)
            subprocess.run([python, __file__, "--play", json.dumps(play)], check=True, timeout=120)


if __name__ == "__main__":
    main()
