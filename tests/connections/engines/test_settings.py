"""Calls to several engines: what one refuses none keeps; a call that cannot be sent costs nothing."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.lab import Lab
from tests.harness.several import FragileSource
from tests.support.steps import advance, begin
from ue_rl.bridges import run_in_thread
from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.dialling import open_transport
from ue_rl.connections.engines.restarts import Restarts
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.protocol.calls.asking import EngineCalls
from ue_rl.system import errors


class Picky(Lab):
    """Refuses what it is told to refuse, as a game's own code may."""

    refuses = ""

    def set_parameter(self, name: str, value: float, env_id: int) -> None:
        self._may("SET")
        super().set_parameter(name, value, env_id)

    def set_time_scale(self, scale: float) -> None:
        self._may("TIME_SCALE")
        super().set_time_scale(scale)

    def set_paused(self, paused: bool) -> None:
        self._may("PAUSE")
        super().set_paused(paused)

    def _may(self, what: str) -> None:
        if what == self.refuses:
            raise errors.ConfigurationError("not in this level", fault="engine")


def three() -> tuple[EnginesTransport, list[FragileSource]]:
    sources = [FragileSource(functools.partial(lambda life: Picky(2)), f"m{n}") for n in range(3)]
    transport = EnginesTransport(sources, restarts=Restarts())
    transport.connect()
    return transport, sources


@pytest.mark.parametrize("refusing", [0, 1, 2])
def test_a_parameter_that_one_engine_refuses_is_set_in_none(refusing: int) -> None:
    transport, sources = three()
    bridges = [source.bridges[0] for source in sources]
    calls = EngineCalls(transport)
    calls.set_parameters({"gravity": 3.0}, env_id=1)
    calls.set_parameters({"gravity": 5.0}, env_id=3)
    bridges[refusing].refuses = "SET"
    with pytest.raises(errors.CommandFailed):
        calls.set_parameters({"gravity": 7.0})
    assert [bridge.gravity for bridge in bridges] == [[9.8, 3], [9.8, 5], [9.8, 9.8]]
    bridges[refusing].refuses = ""
    sources[0].breaks = ["ask_resets"]  # nor in the next life of an engine that had taken it
    assert begin(transport).lost
    begin(transport)
    assert sources[0].bridges[1].gravity == [9.8, 3]
    calls.set_parameters({"gravity": 7.0})
    assert [source.bridges[-1].gravity for source in sources] == [[7, 7]] * 3
    transport.close()


@pytest.mark.parametrize(
    ("name", "noted", "begin"), [("TIME_SCALE", "scales", [2.0, 4.0, 2.0]), ("PAUSE", "pauses", [True, False, True])]
)
def test_a_speed_that_one_engine_refuses_is_taken_back(name: str, noted: str, begin: list[Any]) -> None:
    transport, sources = three()
    bridges = [source.bridges[0] for source in sources]
    assert transport.call(f"{name}={int(begin[0])}") == "OK"
    bridges[1].refuses = name
    with pytest.raises(errors.CommandFailed):
        transport.call(f"{name}={int(begin[1])}")
    assert getattr(bridges[0], noted) == begin
    assert getattr(bridges[2], noted) == begin[:1]
    transport.close()


def test_an_engine_that_is_away_takes_the_setting_when_it_is_back() -> None:
    transport, sources = three()
    sources[0].breaks = ["call"]
    EngineCalls(transport).set_parameters({"gravity": 7.0})
    begin(transport)
    begin(transport)
    assert [source.bridges[-1].gravity for source in sources] == [[7, 7]] * 3
    transport.close()


@pytest.fixture(params=["one", "several"])
def connection(request: pytest.FixtureRequest) -> Iterator[BaseTransport]:
    with run_in_thread(Lab(2)) as one, run_in_thread(Lab(2)) as two:
        urls: Any = one.url if request.param == "one" else [one.url, two.url]
        transport = open_transport(urls, "tcp", timeout=20)
        assert isinstance(transport, BaseTransport)
        yield transport
        transport.close()


@pytest.mark.parametrize(
    "line", ["SET=höhe:1", "SET=gravity:1\n", "GET\nGET", "PAUSE=\x00", "GET=\u0661", f"GET={'x' * 2**20}"]
)
def test_a_call_that_is_no_line_of_ascii_costs_nothing(line: str, connection: BaseTransport) -> None:
    begin(connection)
    with pytest.raises(errors.ConfigurationError):
        connection.call(line)
    with pytest.raises(errors.ConfigurationError):
        connection.call(line)
    assert connection.call("GET=gravity") == "VALUES=gravity:9.8"
    advance(connection, 0)
