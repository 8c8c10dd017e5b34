"""Does an engine's side follow the protocol? `ue-rl check URL`, and from Python:

    report = ue_rl.devtools.check.check("tcp://127.0.0.1:7777")
    assert not report.mistakes, report

Each check says PASS, WARN, FAIL or SKIP, what was seen, what docs/protocol.md says about it, and a cure. A mistake has
a name that stays the same from version to version (ue_rl/devtools/check/mistakes.py).
"""

from ue_rl.system.lazy import lazy

__getattr__, __dir__ = lazy(__name__)
