"""Does an engine's side follow the protocol? `ue-rl check URL`, and from Python:

    report = ue_rl.compliance.check("tcp://127.0.0.1:7777")
    assert not report.mistakes, report

Each check says PASS, WARN, FAIL or SKIP, what was seen, what docs/protocol.md says about it, and a cure. A mistake has
a name that stays the same from version to version (ue_rl/compliance/mistakes.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ue_rl.system.lazy import lazy

if TYPE_CHECKING:
    from ue_rl.compliance.mistakes import MISTAKES as MISTAKES
    from ue_rl.compliance.mistakes import Mistake as Mistake
    from ue_rl.compliance.report import Finding as Finding
    from ue_rl.compliance.report import Outcome as Outcome
    from ue_rl.compliance.report import Report as Report
    from ue_rl.compliance.running import Options as Options
    from ue_rl.compliance.running import check as check

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "mistakes": "MISTAKES Mistake",
        "report": "Finding Outcome Report",
        "running": "Options check",
    },
)
