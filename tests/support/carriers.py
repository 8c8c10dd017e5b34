"""A transport to a bridge, over each carrier."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from ue_rl.bridges import ShmUpgrader, run_in_thread, run_shm_in_thread
from ue_rl.connecting import open_transport
from ue_rl.testing import MemoryTransport


@contextmanager
def transport_over(carrier: str, bridge: Any) -> Iterator[Any]:
    """`carrier`: "arrays" or "codec" in memory, "text", "upgraded" or "shm"."""
    if carrier in ("arrays", "codec"):
        yield MemoryTransport(bridge, through_codec=carrier == "codec")
        return
    upgrader = ShmUpgrader() if carrier == "upgraded" else None
    host: Any = run_shm_in_thread(bridge) if carrier == "shm" else run_in_thread(bridge, upgrader=upgrader)
    wanted = "tcp" if carrier == "text" else "shm"
    with host as engine, closing(open_transport(engine.url, wanted, timeout=20)) as transport:
        yield transport
