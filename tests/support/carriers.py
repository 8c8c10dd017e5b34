"""A bridge over each of the carriers that lie between it and a trainer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ue_rl.bridges import ShmUpgrader, run_in_thread, run_shm_in_thread
from ue_rl.connecting import open_transport
from ue_rl.testing.memory import MemoryTransport

WAITING = ("shared", "shared-pure", "per_env", "per_env-pure", "upgraded", "shm")  # for an engine, which is elsewhere
CARRIERS = ("memory", "arrays", *WAITING)


@contextlib.contextmanager
def over(carrier: str, bridge: Any, **options: Any) -> Iterator[Any]:
    """A connected transport to the bridge; options: of `open_transport`."""
    with contextlib.ExitStack() as stack:
        channel, _, pure = carrier.partition("-")
        options = {"timeout": 20.0, **options}
        if channel in ("memory", "arrays"):
            transport: Any = MemoryTransport(bridge, through_codec=channel == "memory")
        elif channel == "shm":
            transport = open_transport(stack.enter_context(run_shm_in_thread(bridge)).url, **options)
        elif channel == "upgraded":
            server = stack.enter_context(run_in_thread(bridge, upgrader=ShmUpgrader()))
            transport = open_transport(server.url, transport="shm", **options)
        else:
            options |= {"channel": channel, "compiled": False if pure else None}
            transport = open_transport(stack.enter_context(run_in_thread(bridge)).url, transport="tcp", **options)
        stack.callback(transport.close)
        transport.connect()
        yield transport
