#!/usr/bin/env bash
# MCP's Python SDK: a tool whose declared result is a float cannot return NaN or infinity to the SDK's own client.
#
# Guess: a tool typed `-> dict[str, float]` may return every float: both ends are one library, which wrote the schema.
# Seen (mcp 2.3.0, pydantic 2.14.4): the server sends null for NaN, and for infinity as the plain result; the client
#   holds it against the schema that the server made of the type, and raises RuntimeError ("None is not of type
#   'number'"). The caller learns nothing of the rest of the result, and the server nothing of the error.
# Here: what our tools answer is JSON that ue_rl writes itself, in which no NaN may stand.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q --disable-pip-version-check -c "$(dirname "$0")/../constraints.txt" \
  mcp==2.3.0 pydantic==2.14.4
cd "$work"
"$work/venv/bin/python" -W ignore - <<'PY'
import asyncio
import sys
from importlib.metadata import version

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("numbers")


@server.tool()
def look(speed: str) -> dict[str, float]:
    return {"speed": float(speed)}


@server.tool()
def ask(speed: str) -> float:
    return float(speed)


server.run("stdio")
"""


async def called(client, tool, speed):
    try:
        result = await client.call_tool(tool, {"speed": speed})
    except RuntimeError as error:
        return str(error).splitlines()[0].split(": ")[1]
    return result.structured_content


async def main():
    server = StdioServerParameters(command=sys.executable, args=["-c", SERVER])
    async with stdio_client(server) as streams, ClientSession(*streams) as client:
        await client.initialize()
        return [await called(client, *call) for call in (("look", "1"), ("look", "nan"), ("ask", "inf"))]


seen = asyncio.run(main())
print(f"mcp {version('mcp')}: 1, NaN in a dict, infinity: {seen}")
assert seen == [{"speed": 1.0}, "None is not of type 'number'", "None is not of type 'number'"], "this has changed"
PY
