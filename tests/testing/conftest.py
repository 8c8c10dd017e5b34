"""What the tests of the engines share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from ue_rl.testing import RawClient
from ue_rl.testing.engines.loop import EngineLoop


@pytest.fixture
def dial() -> Iterator[Callable[[EngineLoop], RawClient]]:
    """A factory of bare clients of an engine, closed when the test ends."""
    with ExitStack() as stack:
        yield lambda engine: stack.enter_context(RawClient(engine.address))
