"""What tests say of a report of `ue-rl check`."""

from __future__ import annotations

from ue_rl.devtools.check import CheckReport


def wrong(report: CheckReport) -> list[str]:
    """The mistakes of an engine that makes none; not "slow", which any engine is told on a machine that is busy.

    `tests/devtools/check/test_timing.py` proves what is told "slow", and what is not.
    """
    return [name for name in report.mistakes if name != "slow"]
