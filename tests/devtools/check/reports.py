"""What the tests of the checks share: the checks by their kind, and reports of engines that are hosted for them."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.harness.engines.mistaken import MistakenEngine
from tests.harness.engines.right import Answer, Ask
from tests.support.slack import patient
from ue_rl.bridges import VectorBridge, run_in_thread
from ue_rl.devtools import check as compliance
from ue_rl.devtools.check import CheckReport, Options, Verdict
from ue_rl.devtools.check.checks import CHECKS

HANGS = 60  # seconds, where a check takes a few: it must not wait for ever, and a machine may be busy


def _of(*modules: str) -> tuple[str, ...]:
    """The checks of these modules of ue_rl/devtools/check/checks."""
    return tuple(each.name for each in CHECKS if each.run.__module__.rsplit(".", 1)[-1] in modules)


BEHAVIOUR = _of("resets", "episodes", "seeds", "spaces", "envs", "reach", "carriers")
DELIVERY, CALLS = _of("delivery"), _of("calls")
SESSIONS = (*_of("sessions"), "pause", "requests in two pieces")
TIMING = ("speed", "delayed pieces")


def found(report: CheckReport, outcome: Verdict) -> set[str]:
    """The names of what is wrong."""
    return {one.mistake.name for one in report.findings if one.outcome is outcome and one.mistake is not None}


def check(url: str, options: Options | None = None, **more: Any) -> CheckReport:
    """What `ue-rl check` finds, where a busy machine has time for each answer."""
    asked = options or Options()
    return compliance.check(url, replace(asked, timeout=patient(asked.timeout)), **more)


def slow_down(engine: MistakenEngine, asks: float = math.inf) -> None:
    """The engine takes 0.12 s longer for each ask, or for so many of them."""
    one = engine.one
    asked = itertools.count()

    def slowly(ask: Ask) -> Answer:
        if next(asked) < asks:
            time.sleep(0.12)
        return one(ask)

    engine.one = slowly


def of_engine(
    way: str | None = None, only: Sequence[str] = (), options: Options | None = None, **engine: Any
) -> CheckReport:
    """Of an engine that makes a mistake in this way, or none."""
    with MistakenEngine(way, **engine) as running:
        return check(running.url, options, only=only)


def of_bridge(
    bridge: VectorBridge, only: Sequence[str] = BEHAVIOUR, seed: int = 0, patience: float = 3.0
) -> CheckReport:
    """Of a bridge; by the behavioural checks alone."""
    with run_in_thread(bridge) as engine:
        return check(engine.url, Options(timeout=3.0, patience=patience, seed=seed), only=only)
