"""What tests of bridges with agents need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.forking import forking
from ue_rl.devtools.testing import MemoryTransport

__all__ = ["forking", "open_agents"]


@pytest.fixture(params=[True, False], ids=["codec", "arrays"])
def open_agents(request: pytest.FixtureRequest) -> Callable[[Any], MemoryTransport]:
    """From a bridge with agents to a connected transport: over lines of text, and with arrays copied straight over."""

    def opened(bridge: Any) -> MemoryTransport:
        transport = MemoryTransport(bridge, through_codec=request.param, max_ticks=20)
        transport.connect()
        return transport

    return opened
