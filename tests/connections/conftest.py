"""What the tests of shared memory are connected to, and leave behind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.connections.shm_games import hosted
from tests.support.steps import begin
from ue_rl.connections import SharedMemoryConnection
from ue_rl.shm import segment


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Every test leaves /dev/shm as it found it."""

    def there() -> set[str]:
        return {p.name for p in segment.SHM_DIR.glob(f"{segment.PREFIX}{os.getpid()}_*")}

    before = there()
    yield
    assert there() <= before  # an earlier test's may be collected meanwhile


@pytest.fixture(params=[False, True], ids=["by name", "upgraded"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[[Any], SharedMemoryConnection]]:
    """A function: bridge -> a connection to it that is reset."""
    with contextlib.ExitStack() as stack:

        def connected(bridge: Any) -> SharedMemoryConnection:
            _, connection = stack.enter_context(hosted(bridge, request.param, timeout=10))
            stack.callback(connection.close)
            begin(connection)
            return connection

        yield connected
