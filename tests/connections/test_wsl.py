"""A trainer in WSL, whose engine is a game on Windows: shared memory does not cross, and that is said."""

from __future__ import annotations

import logging
import platform
import sys
from typing import Any

import pytest

from tests.support.games import Sum
from ue_rl.bridges import ShmUpgrader, run_in_thread
from ue_rl.connections import SharedMemoryConnection, open_engine
from ue_rl.connections.shm.upgrade import UpgradeRefused
from ue_rl.protocol.spec import EnvSpec

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="WSL is a Linux")


@pytest.mark.parametrize(("release", "said"), [("5.15.153.1-microsoft-standard-WSL2", True), ("6.1.0-18-amd64", False)])
def test_it_says_why_there_is_no_shared_memory(
    release: str, said: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise UpgradeRefused("there is no shared memory named 'walker'")

    monkeypatch.setattr(platform, "release", lambda: release)
    monkeypatch.setattr(SharedMemoryConnection, "upgrade", refuse)
    caplog.set_level(logging.INFO)
    with run_in_thread(Sum(EnvSpec(2, 2)), upgrader=ShmUpgrader()) as server:
        engine = open_engine("127.0.0.1", server.port, timeout=30)
        told = engine.describe()["shared memory"]
        engine.close()
    assert "there is no shared memory named 'walker'" in told
    assert ("WSL" in told) is said
    assert told in caplog.text
