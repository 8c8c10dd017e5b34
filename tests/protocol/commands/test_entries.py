"""Answers, infos and options that cannot be read, and those of other kinds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocol.commands.game import Flood, Game, M, lonely, unhosted
from tests.support.steps import begin
from ue_rl.bridges import run_shm_in_thread
from ue_rl.connections import SharedMemoryConnection
from ue_rl.protocol.commands.entries import json_entry
from ue_rl.protocol.commands.envelope import Method, encode
from ue_rl.system import errors


@pytest.mark.parametrize(
    "answer",
    [
        encode(Method.CLOSE, M.EmptyT(), 1), encode(Method.PING, M.CloseT(), 1), encode(Method.PING, None, 1),
        encode(Method.TELEMETRY_FRAME, M.PingT()), encode(Method.ENV_INFO), encode(Method.ENV_INFO, M.PingT()),
        b"", b"12345678",
    ],
)  # fmt: skip
def test_answers_and_events_that_cannot_be(answer: bytes) -> None:
    with pytest.raises(errors.MalformedMessage) as caught:
        lonely(Flood(answer)).request(Method.PING, M.PingT(), timeout=20)
    assert caught.value.fault == "engine"


def flat(text: Any, env: int = 0) -> bytes:
    """An info as FlatBuffer, as older peers send it."""
    return encode(Method.ENV_INFO, M.EnvInfoT(envId=env, json=text))


def plain(text: bytes, env: int = 0) -> bytes:
    return json_entry(Method.ENV_INFO, env, {}, 100)[:-2] + text


@pytest.mark.parametrize(
    "entry",
    [
        *map(flat, ["", "[]", "{", '{"a": NaN}', "[" * 100_000, '{"a":' + "9" * 10_000 + "}", None]),
        *map(plain, [b"", b"[]", b"{", b'{"a": NaN}', b"\xff{}", b"[" * 100_000]),
    ],
)
def test_infos_that_are_no_json_objects(entry: bytes) -> None:
    with pytest.raises(errors.MalformedMessage, match=r"not a JSON object.*at fault: engine"):
        lonely(Flood(entry)).drain()


@pytest.mark.parametrize("env", [-1, 1, 2**31 - 1])
def test_infos_of_envs_that_do_not_exist(env: int) -> None:
    for entry in (flat("{}", env), plain(b"{}", env)):
        with pytest.raises(errors.UnknownEnv):
            lonely(Flood(entry)).drain()


def test_json_entries_of_another_kind() -> None:
    for wrong in (json_entry(Method.RESET_OPTIONS, 0, {}, 100), b"JSON", b"JSON" + bytes(7)):
        with pytest.raises(errors.MalformedMessage, match="another kind"):
            lonely(Flood(wrong)).drain()


@pytest.mark.parametrize(
    "entry",
    [json_entry(Method.ENV_INFO, 0, {}, 100), json_entry(Method.RESET_OPTIONS, 3, {}, 100), b"JSON1234", b"JSON" * 4],
)
def test_broken_options_end_the_session_and_are_never_applied(entry: bytes) -> None:
    game = Game()
    with run_shm_in_thread(game) as handle:
        with SharedMemoryConnection(handle.name, timeout=10) as connection:
            connection.commands.send_entry(entry)
            with pytest.raises(errors.EngineDisconnected):
                begin(connection)
        with SharedMemoryConnection(handle.name, timeout=10) as connection:
            begin(connection)
    assert game.resets == [([0, 1, 2], [None] * 3, [None] * 3)]


def test_a_peer_that_sends_infos_and_options_as_flatbuffers_is_read() -> None:
    game = Game()
    with unhosted(game) as (host, connection):
        options = M.ResetOptionsT(envId=1, json='{"level": 4}')
        connection.commands.send(Method.RESET_OPTIONS, options)
        connection.reset()
        assert host.memory.s2c is not None
        assert host.memory.s2c.try_write(flat('{"old": true}', 2))
        assert host.tick(0)
        infos = connection.receive().infos
        assert game.resets == [([0, 1, 2], [None] * 3, [None, {"level": 4}, None])]
        assert infos == {0: {"reset": 1}, 1: {"reset": 1}, 2: {"reset": 1}}  # the engine's own came later
        assert host.memory.s2c is not None
        assert host.memory.s2c.try_write(flat('{"old": true}', 2))
        assert connection.commands.poll() == []
        assert connection.buffers.infos[2] == {"old": True}
