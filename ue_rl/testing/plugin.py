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
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from ue_rl.bridges import BridgeServer
    from ue_rl.bridges.runners import ThreadHandle
    from ue_rl.testing.chaos_engine import ChaosEngine
    from ue_rl.testing.engines.faulty import FaultyEngine
    from ue_rl.testing.engines.plugin_stand_in import PluginStandIn
    from ue_rl.testing.leftovers import Leftovers
    from ue_rl.testing.memory import MemoryTransport
    from ue_rl.testing.network import FaultyNetwork


@pytest.fixture
def ue_rl_plugin_stand_in() -> Iterator[Callable[..., PluginStandIn]]:
    """A factory of started stand-ins for the deployed plugin; takes PluginStandIn's options."""
    from ue_rl.testing.engines.plugin_stand_in import PluginStandIn

    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(PluginStandIn(**options))


@pytest.fixture
def ue_rl_faulty_engine() -> Iterator[Callable[..., FaultyEngine]]:
    """A factory of started faulty engines; takes a Script or a Fault, and FaultyEngine's options."""
    from ue_rl.testing.engines.faulty import FaultyEngine

    with ExitStack() as stack:
        yield lambda script=None, **options: stack.enter_context(FaultyEngine(script, **options))


@pytest.fixture
def ue_rl_bridge_server() -> Iterator[Callable[..., ThreadHandle[BridgeServer]]]:
    """A factory: serves a bridge on 127.0.0.1 and a free port, in a thread of its own."""
    from ue_rl.bridges import run_in_thread

    with ExitStack() as stack:
        yield lambda bridge, **options: stack.enter_context(run_in_thread(bridge, **{"port": 0, **options}))


@pytest.fixture
def ue_rl_memory_transport() -> Iterator[Callable[..., MemoryTransport]]:
    """A factory of connected in-memory transports; takes a bridge and MemoryTransport's options."""
    from ue_rl.testing.memory import MemoryTransport

    with ExitStack() as stack:
        yield lambda bridge, **options: stack.enter_context(MemoryTransport(bridge, **options))


@pytest.fixture
def ue_rl_faulty_network() -> Iterator[Callable[[str], FaultyNetwork]]:
    """A factory of started proxies; takes the engine's URL."""
    from ue_rl.testing.network import FaultyNetwork

    with ExitStack() as stack:
        yield lambda url: stack.enter_context(FaultyNetwork(url))


@pytest.fixture
def ue_rl_chaos_engine() -> Iterator[Callable[..., ChaosEngine]]:
    """A factory of engines in processes of their own; takes ChaosEngine's options."""
    from ue_rl.testing.chaos_engine import ChaosEngine

    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(ChaosEngine(**options))


@pytest.fixture
def ue_rl_leftovers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Leftovers]:
    """Fails the test, at its end, where it has left something behind. Ask for it before what starts processes."""
    from ue_rl.testing.leftovers import Leftovers

    folder: Path = tmp_path_factory.mktemp("temporary")
    with Leftovers(folder) as watch:
        yield watch
