"""What the tests of shared memory are connected to, and leave behind."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.connections.shm_games import hosted
from tests.support.segments import own_segments
from tests.support.steps import begin
from ue_rl.connections import SharedMemoryConnection


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Every test leaves /dev/shm as it found it."""
    before = own_segments()
    yield
    assert own_segments() <= before  # an earlier test's may be collected meanwhile


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
