"""The choice of compiled modules, and what an installation without them does: text in Python, no shared memory."""

from __future__ import annotations

import logging
import os
from typing import Any

import numpy as np
import pytest

import ue_rl
from tests.harness.engines.shm_faulty import ShmFaultyEngine
from tests.support.games import Sum
from tests.support.missing import take_away_compiled
from tests.support.segments import own_segments
from ue_rl.bridges import ShmHost, ShmUpgrader, run_in_thread
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text import kernels_pure
from ue_rl.system.compiled import load, name_of
from ue_rl.system.errors import ConfigurationError

KERNELS = pytest.importorskip(
    "ue_rl.protocol.text._kernels", reason="no C compiler built the kernels in this installation"
)
SYNC = pytest.importorskip("ue_rl.protocol.memory._sync", reason="no C compiler built the module in this installation")


@pytest.fixture(params=["not built", "UE_RL_PURE"])
def without(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that takes the compiled modules away."""

    def take_away() -> None:
        if request.param == "UE_RL_PURE":
            monkeypatch.setenv("UE_RL_PURE", "1")
        else:
            take_away_compiled(monkeypatch)

    return take_away


def test_both_modules_are_found() -> None:
    assert load("kernels") is load("kernels", True) is KERNELS
    assert load("sync") is SYNC
    assert load("kernels", False) is kernels_pure
    assert [name_of(module) for module in (KERNELS, SYNC, kernels_pure)] == ["compiled", "compiled", "pure"]


def test_missing_kernels_are_told_of_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    told: set[str] = set()
    monkeypatch.setenv("UE_RL_PURE", "1")
    assert load("kernels") is kernels_pure  # asked for: no warning
    assert load("kernels", True) is KERNELS
    monkeypatch.delenv("UE_RL_PURE")
    take_away_compiled(monkeypatch)
    assert not caplog.records
    assert load("kernels", told=told) is kernels_pure
    assert load("kernels", told=told) is kernels_pure
    assert len(caplog.records) == 1
    with pytest.raises(ConfigurationError, match="no compiled kernels"):
        load("kernels", True)


def test_shared_memory_is_refused_by_name_and_nothing_is_left(without: Any) -> None:
    before = own_segments()  # of a test before this one
    without()
    for make in (
        lambda: ShmHost(Sum(EnvSpec(2, 1, num_envs=2))),
        lambda: ue_rl.connect("shm://nobody", wait=30.0),
        lambda: ue_rl.connect("tcp://127.0.0.1:1", transport="shm", wait=30.0),
    ):
        with pytest.raises(ConfigurationError, match=r"compiled module.*_sync") as caught:
            make()
        assert caught.value.cure is not None
        assert ("UE_RL_PURE" in caught.value.cure) == (os.environ.get("UE_RL_PURE") == "1")
    assert own_segments() <= before


def test_an_offer_is_not_taken_and_the_run_goes_on_in_text(without: Any, caplog: pytest.LogCaptureFixture) -> None:
    with ShmFaultyEngine(num_envs=2) as engine, caplog.at_level(logging.INFO, "ue_rl.connections"):
        without()
        env = ue_rl.connect(engine.url, timeout=20.0)
        assert env.transport.describe()["transport"] == "tcp"
        env.reset()
        env.step(np.zeros((2, *env.action_space.shape), np.float32))
        env.close()
    assert "the run goes on over TCP: shared memory needs ue_rl's compiled module" in caplog.text


def test_an_engine_without_the_module_makes_no_offer_and_says_so_once(
    without: Any, caplog: pytest.LogCaptureFixture
) -> None:
    without()
    with run_in_thread(Sum(EnvSpec(2, 1, num_envs=2)), upgrader=ShmUpgrader()) as server:
        for _ in range(2):
            env = ue_rl.connect(server.url, timeout=20.0)
            env.reset()
            assert env.transport.spec.shm is None
            env.close()
    warnings = [record.message for record in caplog.records if record.name.startswith("ue_rl.bridges.shm")]
    assert len(warnings) == 1
    assert "no shared memory to offer" in warnings[0]
