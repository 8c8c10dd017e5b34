"""Sessions for clients of MCP, with the client of the installed package; the other major version's: real_clients.py."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.plugins.sessions.game import Drift, Half
from tests.plugins.sessions.talking import mcp_client, mcp_session, plain
from tests.plugins.tools.test_answers import MODEL, Odd
from tests.support.waiting import eventually
from ue_rl.plugins.sessions.mcp.playing import Players

OF_EVERY_GAME = ["reset", "step", "advance", "get_observation", "get_game_state", "get_map_info"]


async def called(session: Any, name: str, **arguments: Any) -> tuple[dict[str, Any], bool]:
    return plain(await session.call_tool(name, arguments))


async def test_a_game_is_played_by_tools(served: Any) -> None:
    _, server = served("mcp")
    async with mcp_session(server.url) as session:
        tools = (await session.list_tools()).tools
        assert [each.name for each in tools] == [*OF_EVERY_GAME, "nudge", "break_down"]
        about = tools[OF_EVERY_GAME.index("advance")].model_dump(by_alias=True)
        assert about["description"] == "Let the game go on; it stops early at the end of the episode."
        assert about["inputSchema"]["required"] == ["ticks"]
        ticks = about["inputSchema"]["properties"]["ticks"]
        assert (ticks["minimum"], ticks["maximum"], ticks["description"]) == (1, 5000, "how many ticks, 1 to 5000.")
        seen, _ = await called(session, "reset", seed=3)
        again, _ = await called(session, "reset", seed=3)
        assert seen["observation"] == again["observation"]
        assert (await called(session, "get_observation"))[0]["observation"] == seen["observation"]
        assert (await called(session, "get_map_info"))[0] == {"left": -4, "right": 4}
        nudged, _ = await called(session, "nudge", by=0.25)
        assert nudged["info"]["tools"][0]["tool"] == "nudge"
        while not (seen["terminated"] or seen["truncated"]):
            seen, _ = await called(session, "advance", ticks=7, action=[0.5, 0.0])
        state, _ = await called(session, "get_game_state")
        assert (state["phase"], state["result"]) == ("GAME_OVER", seen["result"])
        assert state["text"].startswith("x is ")


async def test_each_client_has_a_session_of_its_own(served: Any) -> None:
    pool, server = served("mcp")
    async with mcp_client(server.url) as one, mcp_client(server.url) as other:
        await one("reset", {})
        assert len(pool.sessions()) == 1, "it begins with the first tool"
        await one("advance", {"ticks": 3})
        assert (await other("advance", {"ticks": 1}))["tick"] == 1
        assert len(pool.sessions()) == 2
    eventually(lambda: not pool.sessions())


async def test_what_is_wrong_is_a_result_that_says_so(served: Any) -> None:
    _, server = served("mcp")
    async with mcp_session(server.url) as session:
        codes = {}
        for name, arguments in (
            ("fly", {}), ("nudge", {"by": "far"}), ("advance", {}), ("advance", {"ticks": 6000}),
            ("advance", {"ticks": 0, "action": [1.0, 0.0]}),
            ("step", {"action": [1.0]}), ("break_down", {}),
        ):  # fmt: skip
            answer, wrong = await called(session, name, **arguments)
            assert wrong
            codes[(name, *arguments)] = answer["code"]
        assert codes == {
            ("fly",): "TOOL_NOT_FOUND", ("nudge", "by"): "INVALID_PARAMETERS", ("advance",): "INVALID_PARAMETERS",
            ("advance", "ticks"): "INVALID_PARAMETERS", ("step", "action"): "INVALID_ARGUMENT",
            ("advance", "ticks", "action"): "INVALID_PARAMETERS", ("break_down",): "TOOL_EXECUTION_FAILED",
        }  # fmt: skip
        assert (await called(session, "advance", ticks=1))[0]["tick"] == 1, "it cost nothing"


async def test_what_a_tool_returns_reaches_the_client_or_an_error_says_why_not(served: Any) -> None:
    """Never NaN, on which the package's own clients raise."""
    _, server = served("mcp", Odd)
    async with mcp_session(server.url) as session:
        answer, wrong = await called(session, "look", what="model")
        assert not wrong
        assert answer["info"]["tools"] == [{"tool": "look", "result": MODEL}]
        answer, wrong = await called(session, "look", what="refused 1")
        assert (wrong, answer["code"]) == (True, "TOOL_EXECUTION_FAILED")
        assert "inf at result['a']['b'][1]" in answer["message"]
        assert "[at fault: engine]" in answer["message"], "not the assistant that has called it"
        assert (await called(session, "get_map_info"))[0] == {"kinds": ["berry", 2], "size": [3, 4]}
        await called(session, "advance", ticks=1)
        answer, wrong = await called(session, "get_map_info")
        assert wrong
        assert "nan at map_info['size']" in answer["message"]


async def test_a_session_too_many_and_one_that_has_ended(served: Any) -> None:
    pool, server = served("mcp", max_sessions=1)
    async with mcp_session(server.url) as one, mcp_session(server.url) as other:
        await called(one, "reset")
        answer, wrong = await called(other, "reset")
        assert (wrong, answer["code"]) == (True, "RESOURCE_EXHAUSTED")
        pool.sessions()[0].detach("the dog ate it")
        answer, wrong = await called(one, "advance", ticks=1)
        assert (wrong, answer["code"]) == (True, "ABORTED")
        assert "the dog ate it" in answer["message"]
        assert (await called(one, "reset"))[1] is False, "another one begins"


async def test_half_a_character_of_the_game_breaks_no_answer(served: Any) -> None:
    _, server = served("mcp", Half)
    async with mcp_session(server.url) as session:
        assert (await called(session, "get_map_info"))[0] == {"name": "half ?"}
        assert (await called(session, "get_game_state"))[0]["text"] == "half \\ud800"
        assert (await session.read_resource("ue-rl://rules")).contents[0].text == "half \\ud800"


async def test_clients_that_have_gone_without_a_word_are_forgotten(make_pool: Any) -> None:
    pool = make_pool()
    players = Players(pool, remembered=2)
    for client in "abcdebf":
        await players.call(client, "reset", {})
        pool.sessions()[0].destroy()
    told = {client: (await players.call(client, "advance", {"ticks": 1}))["isError"] for client in "abf"}
    assert told == {"a": False, "b": True, "f": True}, "a client of long ago begins anew"


async def test_resources(served: Any) -> None:
    pool, server = served("mcp")
    async with mcp_session(server.url) as session:
        listed = {each.name: each.uri for each in (await session.list_resources()).resources}
        assert listed.keys() == {"rules", "spec"}
        (rules,) = (await session.read_resource(listed["rules"])).contents
        assert rules.text == Drift.__doc__
        (spec,) = (await session.read_resource(listed["spec"])).contents
        about = json.loads(spec.text)
        assert (about["handshake"], about["numbers_of_an_action"]) == (pool.handshake, 2)
        nowhere = [None] * pool.spec.obs_size  # JSON has no infinity
        assert about["observation_low"] == about["observation_high"] == nowhere
        with pytest.raises(Exception, match="no resource"):  # McpError of 1.x, MCPError of 2.x
            await session.read_resource("ue-rl://nothing")


_ABOUT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
_INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _ABOUT}


def test_a_page_of_elsewhere_is_refused(served: Any) -> None:
    pool, server = served("mcp")
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accepts = {"Accept": "application/json, text/event-stream"}
    assert httpx.post(server.url, json=asked, headers={**accepts, "Host": "evil.example:80"}).status_code == 421
    assert httpx.post(server.url, json=asked, headers={**accepts, "Origin": "http://evil.example"}).status_code == 403
    began = httpx.post(server.url, json=_INITIALIZE, headers=accepts)
    known = {**accepts, "mcp-session-id": began.headers["mcp-session-id"]}
    begin = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "reset", "arguments": {"seed": 1}}}
    assert httpx.post(server.url, json=begin, headers=known).status_code == 200
    (session,) = pool.sessions()
    assert httpx.delete(server.url, headers={**known, "Origin": "http://evil.example"}).status_code >= 400
    assert pool.sessions() == [session], "it goes on"
    assert httpx.delete(server.url, headers=known).status_code < 300
    eventually(lambda: not pool.sessions())


async def test_a_protocol_without_sessions_names_one_in_each_call(served: Any) -> None:
    """MCP 2026-07-28 over HTTP: nothing but the arguments says which session of the game is meant."""
    mcp = pytest.importorskip("mcp")
    if not hasattr(mcp, "Client"):
        pytest.skip("mcp 1.x does not know it")
    pool, server = served("mcp", max_sessions=2)
    async with mcp.Client(server.url, mode="2026-07-28") as one, mcp.Client(server.url) as other:
        assert one.protocol_version == other.protocol_version == "2026-07-28"
        tools = {each.name: each.input_schema for each in (await one.list_tools()).tools}
        assert all("session_id" in schema["properties"] for schema in tools.values())
        assert {name for name, schema in tools.items() if "session_id" not in schema["required"]} == {"reset"}
        first, _ = await called(one, "reset", seed=3)
        second, _ = await called(other, "reset", seed=3)
        assert first["session_id"] != second["session_id"]
        assert first["observation"] == second["observation"]
        for ticks in (1, 2):
            seen, wrong = await called(one, "advance", ticks=1, session_id=first["session_id"])
            assert (seen["tick"], seen["session_id"], wrong) == (ticks, first["session_id"], False)
        seen, _ = await called(one, "get_observation", session_id=second["session_id"])
        assert seen["tick"] == 0, "the other's was left alone"
        nudged, _ = await called(one, "nudge", by=0.25, session_id=first["session_id"])
        assert nudged["info"]["tools"][0]["tool"] == "nudge"
        again, _ = await called(one, "reset", seed=3, session_id=first["session_id"])
        assert (again["session_id"], again["observation"]) == (first["session_id"], first["observation"])
        for arguments, code in (
            ({"ticks": 1}, "INVALID_PARAMETERS"), ({"ticks": 1, "session_id": 7}, "INVALID_PARAMETERS"),
            ({"ticks": 1, "session_id": "nobody's"}, "NOT_FOUND"),
            ({"ticks": 0, "session_id": first["session_id"]}, "INVALID_PARAMETERS"),
        ):  # fmt: skip
            answer, wrong = await called(one, "advance", **arguments)
            assert (wrong, answer["code"]) == (True, code)
        assert "Call reset" in (await called(one, "step", action=[0.0, 0.0]))[0]["message"]
        assert (await called(one, "reset"))[0]["code"] == "RESOURCE_EXHAUSTED"
        pool.get(first["session_id"]).detach("the dog ate it")
        answer, _ = await called(one, "advance", ticks=1, session_id=first["session_id"])
        assert (answer["code"], "the dog ate it" in answer["message"]) == ("ABORTED", True)
        third, wrong = await called(one, "reset", session_id=first["session_id"])
        assert not wrong, "another one begins"
        assert third["session_id"] not in (first["session_id"], second["session_id"])
    server.close()
    assert not pool.sessions(), "they end with the server, at the latest"


async def test_a_client_with_a_session_needs_no_name(served: Any) -> None:
    _, server = served("mcp")
    async with mcp_session(server.url) as session:
        for each in (await session.list_tools()).tools:
            assert "session_id" not in each.model_dump(by_alias=True)["inputSchema"]["properties"]


async def test_the_server_says_its_version_and_what_it_has_not(served: Any) -> None:
    import ue_rl

    _, server = served("mcp")
    accepts = {"Accept": "application/json, text/event-stream"}

    def ask(method: str, session: str | None = None, **params: Any) -> Any:
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return httpx.post(server.url, json=asked, headers=accepts | ({"mcp-session-id": session} if session else {}))

    about = {"capabilities": {}, "clientInfo": {"name": "a test", "version": "1"}}
    hello = ask("initialize", protocolVersion="2025-06-18", **about)
    assert hello.json()["result"]["serverInfo"]["version"] == ue_rl.__version__
    missing = ask("resources/read", hello.headers["mcp-session-id"], uri="ue-rl://nothing").json()["error"]
    assert missing["code"] == (-32602 if hasattr(__import__("mcp"), "Client") else 0)
    assert "there are ue-rl://rules" in missing["message"]
