"""Every row of every field is what the game sent for it in this request, over each carrier, with one engine or more."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest

from tests.harness.asker import judge
from tests.harness.telling import KINDS, told
from tests.support.carriers import over, served
from ue_rl.connections.dialling import open_transport
from ue_rl.connections.engines.restarts import Restarts
from ue_rl.connections.engines.transport import EnginesTransport
from ue_rl.connections.engines.url_engine import UrlEngine
from ue_rl.connections.launching.engine import LaunchedEngine

SIZES = (3, 1, 2, 2)  # envs of the engines
TEXT = ("shared", "shared-pure", "per_env", "per_env-pure")


@contextlib.contextmanager
def several(carrier: str, kind: str, count: int, masks: bool, **options: Any) -> Iterator[tuple[Any, list[Any]]]:
    """(One connection to `count` engines, their bridges)."""
    with contextlib.ExitStack() as stack:
        bridges: list[Any] = []
        sources = []
        for size in SIZES[:count]:
            bridge = KINDS[kind](size, masks)
            url, how = stack.enter_context(served(carrier, bridge))
            bridges.append(bridge)

            def dial(*_: object, url: str = url, how: dict[str, Any] = how) -> Any:
                return open_transport(url, **{"timeout": 20.0, **how, **options})

            sources.append(UrlEngine(url, dial, reconnect=20.0))
        yield stack.enter_context(EnginesTransport(sources, restarts=Restarts(1000, 1.0, first_pause=0.0))), bridges


def single_cases() -> Iterator[Any]:
    """Carrier, kind and masks. In each run each carrier once with masks and once without, each kind both ways."""
    for at, carrier in enumerate(["memory", "arrays", *TEXT, "upgraded", "shm"]):
        for kind, masks in itertools.product(KINDS, [False, True]):
            each_run = (kind == "arrays") == (masks == bool(at % 2))
            marks = [] if each_run else [pytest.mark.exhaustive]
            yield pytest.param(carrier, kind, masks, marks=marks, id=f"{carrier}-{kind}-{masks}")


@pytest.mark.parametrize(("carrier", "kind", "masks"), list(single_cases()))
def test_one_engine(carrier: str, kind: str, masks: bool) -> None:
    with over(carrier, KINDS[kind](3, masks)) as transport:
        judge(transport, 1)


def several_cases() -> Iterator[Any]:
    """Carrier, kind, count and masks. In each run two engines, and four: each carrier once, each kind both ways."""
    for at, carrier in enumerate([*TEXT, "upgraded", "shm"]):
        for kind in KINDS:
            each_run = (kind == "arrays") != bool(at // 2 % 2)
            marks = [] if each_run else [pytest.mark.exhaustive]
            yield pytest.param(carrier, kind, 2, False, marks=marks, id=f"{carrier}-{kind}-2")
            for masks in (False, True):
                each_run = masks == bool(at % 2) and (kind == "arrays") == bool(at // 2 % 2)
                marks = [] if each_run else [pytest.mark.exhaustive]
                words = "masks" if masks else "plain"
                yield pytest.param(carrier, kind, 4, masks, marks=marks, id=f"{carrier}-{kind}-4-{words}")


@pytest.mark.parametrize(("carrier", "kind", "count", "masks"), list(several_cases()))
def test_several_engines(carrier: str, kind: str, count: int, masks: bool) -> None:
    with several(carrier, kind, count, masks=masks) as (transport, _):
        judge(transport, count)


def losses() -> Iterator[Any]:
    """Each pair of carrier, kind and count that is not nightly."""
    each_run = {
        ("shared", "arrays", 3),
        ("shared", "one by one", 1),
        ("per_env", "one by one", 3),
        ("upgraded", "arrays", 1),
        ("shm", "one by one", 3),
        ("shm", "arrays", 1),
    }
    for case in itertools.product(["shared", "per_env", "upgraded", "shm"], KINDS, [1, 3]):
        marks = [] if case in each_run else [pytest.mark.exhaustive]
        yield pytest.param(*case, marks=marks, id="-".join(map(str, case)))


@pytest.mark.slow
@pytest.mark.parametrize(("carrier", "kind", "count"), list(losses()))
def test_engines_that_are_lost_now_and_then(carrier: str, kind: str, count: int) -> None:
    random = np.random.default_rng(7)
    with several(carrier, kind, count, masks=False) as (transport, bridges):

        def strike() -> None:
            bridges[random.integers(count)].breaks = True

        assert judge(transport, 11 + count, strike=strike).losses


@pytest.mark.parametrize("kind", ["arrays", pytest.param("one by one", marks=pytest.mark.exhaustive)])
def test_engines_that_are_killed(kind: str) -> None:
    command = [sys.executable, "-m", "tests.harness.telling", "--port", "{port}", "--kind", kind]
    sources = [LaunchedEngine(command, None, None, n, None, open_transport) for n in range(2)]
    with EnginesTransport(sources, restarts=Restarts(1000, 1.0, first_pause=0.0)) as transport:
        left = iter([0, 1])

        def strike() -> None:
            engine = next(left, None)
            if engine is not None:
                process = sources[engine]._process
                assert process is not None
                os.kill(psutil.Process(process.pid).pid, signal.SIGKILL)

        assert judge(transport, 3, strike=strike).losses == 4


def test_the_game_is_silent_in_every_second_step_and_answers_in_several_lines() -> None:
    """Else what this file compares would not be what it says."""
    infos = [told(0, step, 0.0).info for step in range(10)]
    assert [info is None for info in infos] == [True, False] * 5
    assert len({told(0, step, 0.0).ticks for step in range(10)}) > 1
