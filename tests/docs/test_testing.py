"""The tests that docs/testing.md shows are run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.slack import patient
from ue_rl.devtools.testing.fault_cases import FaultCase
from ue_rl.system.errors import EngineTimeout

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
TESTS = re.findall(r"```python test\n(.*?)```", PAGE.read_text("utf-8"), re.S)


def comes(case: FaultCase) -> bool:
    """Does this engine send what is wrong? Else it sends nothing, and the test waits until its time is over."""
    return case.script.handshake is not None and case.wanted_on("shared").kind is not EngineTimeout


for _block in TESTS:
    # all the cases are those of tests/connections/test_faults.py
    _source = _block.replace("in FAULT_CASES if", "in FAULT_CASES[:6] if")
    # A busy machine has time for each answer that comes.
    _source = _source.replace("timeout=0.3)", "timeout=20 if comes(case) else 0.3)")
    _source = _source.replace("timeout=2)", "timeout=patient(2))")
    _names: dict[str, object] = {"__name__": __name__, "comes": comes, "patient": patient}
    exec(compile(_source, str(PAGE), "exec"), _names)
    globals().update({_name: _test for _name, _test in _names.items() if _name.startswith("test_")})


def test_all_of_them_are_here() -> None:
    shown = re.findall(r"^def (test_\w+)", "\n".join(TESTS), re.M)
    assert len(shown) == len(set(shown)) > 4
    assert set(shown) <= globals().keys()
