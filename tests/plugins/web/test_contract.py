"""The contract of every Transport, for a page's game: in binary, and in text."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.carriers.contract import Contract, Opener, Parameters
from tests.harness.several import Walk
from tests.plugins.web.pages import needs_node, node
from tests.support.listening import free_port
from ue_rl.connections.dialling import open_transport
from ue_rl.protocol.transport import Transport

WALK = Path(__file__).with_name("walk.mjs")


@needs_node
@pytest.mark.parametrize("form", ["binary", pytest.param("text", marks=pytest.mark.exhaustive)])
class TestContract(Contract, Parameters):
    @pytest.fixture
    def opener(self, form: str) -> Iterator[Opener]:
        with contextlib.ExitStack() as stack:

            def opened(game: type[Walk] = Walk) -> Transport:
                port = free_port()
                stack.enter_context(node(WALK, game.__name__, f"ws://127.0.0.1:{port}", form))
                page: Any = open_transport(f"page://127.0.0.1:{port}", wait=20.0, timeout=20.0)
                return stack.enter_context(contextlib.closing(page))

            yield opened
