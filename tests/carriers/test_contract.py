"""The contract of every Transport, for each carrier of the core and for a transport around another one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.carriers.contract import Beginning, Contract, N, Opener, Parameters
from tests.harness.several import Walk
from tests.support.carriers import CARRIERS, over, served
from ue_rl.bridges import run_in_thread, run_shm_in_thread
from ue_rl.connections import MultiTcpConnection, SharedMemoryConnection
from ue_rl.connections.dialling import open_transport, url_engines
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.devtools.recording import RecordingTransport
from ue_rl.devtools.testing import MemoryTransport
from ue_rl.protocol.transport import Transport

Make = Callable[..., Any]


@pytest.mark.parametrize("kind", ["memory", "arrays", "shared", "per_env", "shm", "several", "recorded"])
class TestBeginning(Beginning):
    @pytest.fixture
    def opener(self, kind: str, tmp_path: Path) -> Iterator[Opener]:
        with contextlib.ExitStack() as stack:

            def made(make: Make = Walk) -> Transport:
                transport: Transport
                if kind in ("memory", "arrays"):
                    transport = MemoryTransport(make(N), through_codec=kind == "memory")
                elif kind == "shm":
                    host = stack.enter_context(run_shm_in_thread(make(N)))
                    transport = SharedMemoryConnection(host.name)
                elif kind == "several":
                    urls = [stack.enter_context(run_in_thread(make(N // 2, first))).url for first in (0, N // 2)]
                    transport = EnginesTransport(url_engines(urls))
                else:
                    server = stack.enter_context(run_in_thread(make(N)))
                    channel = "shared" if kind == "recorded" else kind
                    transport = MultiTcpConnection("127.0.0.1", server.port, channel=channel)
                if kind == "recorded":
                    transport = RecordingTransport(transport, tmp_path / "trace")
                stack.callback(transport.close)
                return transport

            yield made


@pytest.mark.parametrize("kind", [*CARRIERS, "several", "several-shm", "recorded", "recorded-shm"])
class TestContract(Contract, Parameters):
    @pytest.fixture
    def opener(self, kind: str, tmp_path: Path) -> Iterator[Opener]:
        with contextlib.ExitStack() as stack:

            def opened(make: Make = Walk) -> Transport:
                around, _, carrier = kind.partition("-")
                carrier = carrier or "shared"
                if around == "several":
                    urls = [stack.enter_context(served(carrier, make(N // 2, first)))[0] for first in (0, N // 2)]
                    transport: Transport = open_transport(urls, timeout=20.0)
                elif around == "recorded":
                    transport = RecordingTransport(stack.enter_context(over(carrier, make(N))), tmp_path / "trace")
                else:
                    transport = stack.enter_context(over(kind, make(N)))
                stack.callback(transport.close)
                transport.connect()
                return transport

            yield opened
