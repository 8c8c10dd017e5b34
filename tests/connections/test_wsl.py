"""A trainer in WSL, whose engine is a game on Windows: shared memory does not cross, and that is said."""

from __future__ import annotations

import logging
import platform
import sys
from typing import Any

import pytest

from tests.support.games import Sum
from ue_rl.bridges import ShmUpgrader, run_in_thread
from ue_rl.connections import open_engine
from ue_rl.protocol.memory.segment import PREFIX
from ue_rl.protocol.spec import EnvSpec


class Elsewhere(ShmUpgrader):
    """Its segments are on the other machine."""

    def offer(self, bridge: Any) -> str | None:
        offer = super().offer(bridge)
        assert offer is not None
        return offer.replace(PREFIX, "not_here_")


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="WSL is a Linux")


@pytest.mark.parametrize(("release", "said"), [("5.15.153.1-microsoft-standard-WSL2", True), ("6.1.0-18-amd64", False)])
def test_it_says_why_there_is_no_shared_memory(
    release: str, said: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(platform, "release", lambda: release)
    caplog.set_level(logging.INFO)
    with run_in_thread(Sum(EnvSpec(2, 2)), upgrader=Elsewhere()) as server:
        engine = open_engine("127.0.0.1", server.port, timeout=30)
        told = engine.describe()["shared memory"]
        engine.close()
    assert "there is no shared memory named 'not_here_" in told
    assert ("WSL" in told) is said
    assert told in caplog.text
