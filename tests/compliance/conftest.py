"""What the tests of the checks share."""

from __future__ import annotations

import contextlib

from tests.harness.engines.mistaken import MistakenEngine
from tests.harness.engines.ways import Way
from ue_rl.compliance import Finding, Options, Outcome, check


class _Enough(Exception):
    """What the test wants to know is known."""


def first_findings(way: Way, options: Options) -> list[Finding]:
    """What is wrong with an engine of this way, up to the finding that names it; without one all of them."""
    wanted = (way.mistake, *way.also)
    found: list[Finding] = []

    def note(finding: Finding) -> None:
        if finding.mistake is not None:
            found.append(finding)
            sure = finding.outcome is Outcome.FAIL or not way.certain
            if finding.mistake.name in wanted and sure:
                raise _Enough

    with MistakenEngine(way.name) as engine:
        with contextlib.suppress(_Enough):
            check(engine.url, options, progress=note)
    return found
