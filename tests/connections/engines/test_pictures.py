"""Engines with large images that are lost: what the trainer had mapped goes at once, or /dev/shm is soon full."""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.harness.pictures import FAILS, Pictures, mapped
from tests.support.steps import advance, begin
from ue_rl.bridges import ShmUpgrader, run_in_process, run_in_thread
from ue_rl.connections.dialling import open_transport, url_engines
from ue_rl.connections.engines.restarts import Restarts
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.protocol.spec import ImageSpec
from ue_rl.system import errors
from ue_rl.system.compiled import load

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or load("sync") is None, reason="looks at /proc, at shared memory"
)
SMALL = ImageSpec(8, 8, 3)
# A mount namespace of its own, as root or as a user who may have one.
NAMESPACES = (["unshare", "-m"], ["unshare", "-rm"])
MOUNT = "mount -t tmpfs -o size=24m tmpfs /dev/shm"


def small() -> Pictures:
    return Pictures(2, SMALL)


def ran_in(namespace: list[str], command: str) -> subprocess.CompletedProcess[str]:
    """The shell command, in a namespace of its own."""
    words = [*namespace, "sh", "-c", command]
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=120)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """In a training it may not come by for minutes."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Withdrawn(ShmUpgrader):
    """Offers nothing from the second session on, as where /dev/shm is full."""

    offers = 0

    def offer(self, bridge: Any) -> str | None:
        self.offers += 1
        return super().offer(bridge) if self.offers == 1 else None


@pytest.mark.slow
@pytest.mark.parametrize("transport", [pytest.param("shm", marks=pytest.mark.exhaustive), "auto"])
def test_what_a_lost_engine_had_mapped_goes_at_once(transport: str, no_collector: None) -> None:
    before = len(mapped())
    with run_in_process(small, upgrader=ShmUpgrader()) as engine:
        sources = url_engines([engine.url], transport, reconnect=20.0)
        with EnginesTransport(sources, restarts=Restarts(1000, 1.0, first_pause=0.0)) as connection:
            begin(connection)
            for _ in range(3):
                assert len(mapped()) == before + 1
                assert advance(connection, FAILS).lost == {0, 1}
                begin(connection)
                assert connection.describe()["transport"] == "shared memory"
        del connection
    assert len(mapped()) == before


@pytest.mark.parametrize("how", ["closed", "failed"])
def test_a_connection_that_has_ended_holds_nothing(how: str, no_collector: None) -> None:
    before = len(mapped())
    with run_in_process(small, upgrader=ShmUpgrader()) as engine:
        connection = open_transport(engine.url)
        commands = connection.commands
        begin(connection)
        if how == "closed":
            connection.close()
        else:
            connection.send_actions(np.full((2, 1), FAILS, np.float32))
            with pytest.raises(errors.EngineDisconnected) as caught:
                connection.receive()
            del caught
        with pytest.raises(errors.ConnectionUnusable, match="closed" if how == "closed" else "failed before"):
            commands.poll()
        del connection, commands
        assert len(mapped()) == before


@pytest.mark.slow
def test_restarts_where_shared_memory_is_that_of_a_container() -> None:
    """/dev/shm has room for two segments of 11 MB: all come back over shared memory, and no descriptor is left open."""
    own = [words for words in NAMESPACES if shutil.which("unshare") and ran_in(words, MOUNT).returncode == 0]
    if not own:
        pytest.skip("a mount namespace with a tmpfs cannot be made here (unshare -m): root, or user namespaces")
    ran = ran_in(own[0], f"{MOUNT} && exec {sys.executable} -m tests.harness.pictures lose 3")
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    assert seen["carrier"] == ["shared memory"] * 4
    assert seen["mapped"] == [1] * 4
    assert len(set(seen["descriptors"])) == 1


def test_an_engine_that_comes_back_over_another_carrier_is_told(caplog: pytest.LogCaptureFixture) -> None:
    game = Pictures(2, None)
    with run_in_thread(game, upgrader=Withdrawn()) as engine:
        with open_transport([engine.url], reconnect=20.0) as connection:
            begin(connection)
            assert advance(connection, FAILS).lost == {0, 1}
            begin(connection)
            assert connection.describe()["transport"] == "tcp"
    assert "has come back over text over TCP; before it was shared memory" in caplog.text


def has_free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """The system says that so many bytes are free, whatever is asked about."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=size))


def test_images_that_come_back_without_shared_memory_blame_no_other_game(monkeypatch: pytest.MonkeyPatch) -> None:
    has_free(monkeypatch, 300)
    with run_in_thread(small(), upgrader=Withdrawn()) as engine:
        with open_transport([engine.url], reconnect=20.0) as connection:
            begin(connection)
            assert advance(connection, FAILS).lost == {0, 1}
            with pytest.raises(errors.ConnectionUnusable) as caught:
                begin(connection)
    assert "come back without the shared memory that its images need" in str(caught.value)
    assert "not the one that was lost" not in str(caught.value)
    assert "/dev/shm has only 300 bytes free" in str(caught.value)
    assert "--shm-size" in str(caught.value)


def test_images_and_no_room_for_them_name_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    has_free(monkeypatch, 300)
    with run_in_thread(small()) as engine:
        with pytest.raises(errors.UnsupportedByEngine, match=r"/dev/shm has only 300 bytes free.*384 bytes.*shm-size"):
            open_transport(engine.url)
        has_free(monkeypatch, 10**9)
        with pytest.raises(errors.UnsupportedByEngine, match="let the engine offer shared memory"):
            open_transport(engine.url)
