"""A bridge over each of the carriers that lie between it and a trainer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ue_rl.bridges import ShmUpgrader, run_in_thread, run_shm_in_thread
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.testing.memory import MemoryTransport

WAITING = ("shared", "shared-pure", "per_env", "per_env-pure", "upgraded", "shm")  # for an engine, which is elsewhere
CARRIERS = ("memory", "arrays", *WAITING)


@contextlib.contextmanager
def served(carrier: str, bridge: Any, **hosting: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """(URL, options of `open_transport`) of an engine with this bridge; hosting: of `run_shm_in_thread`."""
    channel, _, pure = carrier.partition("-")
    if channel == "shm":
        with run_shm_in_thread(bridge, **hosting) as host:
            yield host.url, {}
    elif channel == "upgraded":
        with run_in_thread(bridge, upgrader=ShmUpgrader()) as server:
            yield server.url, {"transport": "shm"}
    else:
        with run_in_thread(bridge) as server:
            yield server.url, {"transport": "tcp", "channel": channel, "compiled": False if pure else None}


@contextlib.contextmanager
def over(carrier: str, bridge: Any, **options: Any) -> Iterator[Any]:
    """A connected transport to the bridge; options: of `open_transport`."""
    with contextlib.ExitStack() as stack:
        if carrier in ("memory", "arrays"):
            transport: Any = MemoryTransport(bridge, through_codec=carrier == "memory")
        else:
            url, how = stack.enter_context(served(carrier, bridge))
            transport = open_transport(url, **{"timeout": 20.0, **how, **options})
        stack.callback(transport.close)
        transport.connect()
        yield transport
