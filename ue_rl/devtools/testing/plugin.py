"""The pytest plugin: the harness as fixtures, each a factory whose products are closed when the test ends.

    ue_rl_plugin_stand_in(**options)          a started PluginStandIn
    ue_rl_faulty_engine(script, **options)    a started FaultyEngine
    ue_rl_bridge_server(bridge, **options)    a bridge hosted over TCP on a free port, in a thread: its ThreadHandle
    ue_rl_memory_transport(bridge, **options) a connected MemoryTransport
    ue_rl_faulty_network(url)                 a started FaultyNetwork
    ue_rl_chaos_engine(**options)             a ChaosEngine, an engine in a process of its own
    ue_rl_leftovers                           fails the test that leaves a process, port, segment or file behind

Registered as the entry point `ue_rl`. ue_rl is imported when a fixture is first used, so that the plugin
costs other test runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ue_rl.devtools.testing import Leftovers


def _factory(name: str) -> Iterator[Callable[..., Any]]:
    """Of what ue_rl.devtools.testing has under this name."""
    from ue_rl.devtools import testing

    with ExitStack() as stack:
        yield lambda *what, **options: stack.enter_context(getattr(testing, name)(*what, **options))


@pytest.fixture
def ue_rl_plugin_stand_in() -> Iterator[Callable[..., Any]]:
    """A factory of started stand-ins for the deployed plugin; takes PluginStandIn's options."""
    yield from _factory("PluginStandIn")


@pytest.fixture
def ue_rl_faulty_engine() -> Iterator[Callable[..., Any]]:
    """A factory of started faulty engines; takes a Script or a Fault, and FaultyEngine's options."""
    yield from _factory("FaultyEngine")


@pytest.fixture
def ue_rl_bridge_server() -> Iterator[Callable[..., Any]]:
    """A factory: serves a bridge on 127.0.0.1 and a free port, in a thread of its own."""
    from ue_rl.bridges import run_in_thread

    with ExitStack() as stack:
        yield lambda bridge, **options: stack.enter_context(run_in_thread(bridge, **{"port": 0, **options}))


@pytest.fixture
def ue_rl_memory_transport() -> Iterator[Callable[..., Any]]:
    """A factory of connected in-memory transports; takes a bridge and MemoryTransport's options."""
    yield from _factory("MemoryTransport")


@pytest.fixture
def ue_rl_faulty_network() -> Iterator[Callable[..., Any]]:
    """A factory of started proxies; takes the engine's URL."""
    yield from _factory("FaultyNetwork")


@pytest.fixture
def ue_rl_chaos_engine() -> Iterator[Callable[..., Any]]:
    """A factory of engines in processes of their own; takes ChaosEngine's options."""
    yield from _factory("ChaosEngine")


@pytest.fixture
def ue_rl_leftovers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Leftovers]:
    """Fails the test, at its end, where it has left something behind. Ask for it before what starts processes."""
    from ue_rl.devtools.testing import Leftovers

    with Leftovers(tmp_path_factory.mktemp("temporary")) as watch:
        yield watch
