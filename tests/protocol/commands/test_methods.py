"""Every method of the commands, over shared memory by name and by upgrade."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ue_rl
from tests.protocol.commands.game import SPEC, Game, M, Session, unhosted
from tests.support.games import Sum
from ue_rl.bridges import run_in_thread
from ue_rl.devtools.testing.memory import MemoryTransport
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.protocol.commands.envelope import Method
from ue_rl.system import errors


def test_ping(session: Session) -> None:
    _, connection = session
    assert 0 < connection.commands.ping() < 10
    assert connection.commands.request(Method.PING, M.PingT(stamp=2**64 - 1)).stamp == 2**64 - 1


def test_get_schema(session: Session) -> None:
    game, connection = session
    schema = connection.commands.get_schema()
    assert schema["config"] == game.build_handshake()
    assert (schema["observation_names"], schema["action_names"]) == (["x", "v"], ["push"])
    assert {Method.PING, Method.RESET_OPTIONS, 1000, 1001, 1002} <= set(schema["methods"])
    assert Method.GET_ENTITY not in schema["methods"]


def test_parameters(session: Session) -> None:
    _, connection = session
    commands = connection.commands
    assert commands.list_parameters() == {"gravity": (9.81, 0, 20), "friction": (0.5, 0, 1)}
    commands.set_parameters({"gravity": 3.7, "friction": 1})
    assert commands.get_parameters() == {"gravity": 3.7, "friction": 1}
    commands.set_parameters({"gravity": 1.6}, env_id=2)
    assert commands.get_parameters(["gravity"]) == {"gravity": 3.7}
    assert commands.get_parameters(["gravity"], env_id=2) == {"gravity": 1.6}
    assert commands.get_parameters(env_id=1) == {"gravity": 3.7, "friction": 1}


@pytest.mark.parametrize(
    ("values", "env_id", "words"),
    [
        ({"friction": 0.1, "mass": 1}, -1, "no such parameter (field mass); expected gravity, friction; got mass"),
        ({"friction": 0.1, "gravity": 20.5}, -1, "out of range: gravity (field gravity); expected 0 to 20; got 20.5"),
        ({"gravity": float("nan")}, -1, "out of range"),
        ({"gravity": 1}, 3, "env id does not exist (field ENV); expected 0 to 2; got 3"),
        ({"gravity": 1}, -2, "env id does not exist"),
    ],
)
def test_refused_parameters(session: Session, values: dict[str, float], env_id: int, words: str) -> None:
    game, connection = session
    with pytest.raises(errors.CommandFailed) as caught:
        connection.commands.set_parameters(values, env_id)
    assert words in str(caught.value.got)
    assert caught.value.field == "SET_PARAMETERS"
    assert game.values == {"gravity": 9.81, "friction": 0.5}, "half of a refused request was applied"
    assert not game.per_env
    connection.commands.ping()


def test_refused_queries(session: Session) -> None:
    _, connection = session
    for names, env_id in ((["mass"], -1), (["gravity"], 3), ([], -2)):
        with pytest.raises(errors.CommandFailed):
            connection.commands.get_parameters(names, env_id)


def test_time_scale(session: Session) -> None:
    game, connection = session
    connection.commands.set_time_scale(2.5)
    assert game.told == [2.5]
    for scale in (0, -1, float("inf"), float("nan")):
        with pytest.raises(errors.CommandFailed, match="positive and finite"):
            connection.commands.set_time_scale(scale)
    assert game.told == [2.5]


def test_contract(session: Session) -> None:
    game, connection = session
    commands = connection.commands
    commands.set_contract(
        seed=2**63 - 1, parameters={"gravity": 5}, randomization={"friction": (0.25, 0.75)}, env_ids=[2, 0]
    )
    commands.set_contract()
    assert game.told == [(2**63 - 1, {"gravity": 5.0}, {"friction": (0.25, 0.75)}, [2, 0]), (None, {}, {}, [])]
    refused: list[dict[str, Any]] = [
        {"env_ids": [3]}, {"parameters": {"gravity": 21}}, {"parameters": {"mass": 1}},
        {"randomization": {"mass": (0, 1)}},
        {"randomization": {"friction": (0.5, 0.25)}}, {"randomization": {"friction": (0.5, 1.5)}},
        {"randomization": {"friction": (float("nan"), 1)}},
    ]  # fmt: skip
    for contract in refused:
        with pytest.raises(errors.CommandFailed):
            commands.set_contract(**contract)
    with pytest.raises(errors.CommandFailed, match="contract is missing"):
        commands.request(Method.RESET_AGENT, M.ResetAgentT())
    for seed in (-1, 2**63):
        with pytest.raises(errors.ConfigurationError):
            commands.set_contract(seed=seed)
    assert len(game.told) == 2


def test_close_says_why(session: Session) -> None:
    game, connection = session
    connection.commands.close("the run is over")
    assert game.told == ["the run is over"]
    connection.commands.ping()


def test_methods_that_the_bridge_lacks(session: Session) -> None:
    _, connection = session
    for method in Method:
        if method in (Method.GET_ENTITY, Method.LIST_CAMERAS, Method.STREAM_VIEWPORT, Method.SET_SIMULATION_MODE):
            with pytest.raises(errors.CommandFailed, match=f"does not know method {method.name}"):
                connection.commands.request(method)


def test_a_bridge_that_offers_nothing() -> None:
    with unhosted(Sum(SPEC)) as (_, connection):  # type: ignore[arg-type]
        commands = connection.commands
        commands.ping()
        commands.close()
        calls: list[tuple[Callable[[], object], str]] = [
            (commands.list_parameters, "list_parameters"), (lambda: commands.set_parameters({}), "set_parameter"),
            (lambda: commands.set_time_scale(1), "set_time_scale"), (commands.set_contract, "begin_contract"),
        ]  # fmt: skip
        for call, name in calls:
            with pytest.raises(errors.CommandFailed, match=f"this engine has no {name}"):
                call()


def test_handlers_of_the_games_own(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    _, connection = session
    assert connection.commands.request(1001, M.PingT(stamp=21)).stamp == 42
    with pytest.raises(errors.CommandFailed, match="ZeroDivisionError") as caught:
        connection.commands.request(1000)
    assert (caught.value.field, caught.value.fault) == ("1000", "engine")
    assert "method 1000 failed" in caplog.text
    with pytest.raises(errors.CommandFailed, match="AttributeError"):
        connection.commands.request(1001)
    with pytest.raises(errors.CommandFailed, match="does not know method 1003"):
        connection.commands.request(1003)
    connection.commands.send(1000)
    connection.commands.ping()


def test_a_vec_env_reaches_its_commands(session: Session) -> None:
    game, connection = session
    env = UnrealVecEnv(connection)
    env.reset()
    env.transport.commands.set_parameters({"gravity": 1})  # type: ignore[attr-defined]
    env.step(np.zeros((3, 1), np.float32))
    assert game.values["gravity"] == 1


def test_text_has_no_commands() -> None:
    with run_in_thread(Game(), port=0) as handle:
        transport: Any = ue_rl.connections.open_engine("127.0.0.1", handle.port, transport="tcp", timeout=10)
        with pytest.raises(errors.UnsupportedByEngine, match=r"need shared memory.*TCP.*Connect with"):
            _ = transport.commands
        assert not hasattr(transport, "commands")
        assert Game().send_event(Method.CLOSE, M.CloseT()) is False
        transport.close()
    with pytest.raises(errors.UnsupportedByEngine):
        _ = MemoryTransport(Game()).commands
