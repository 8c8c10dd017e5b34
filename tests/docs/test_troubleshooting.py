"""docs/troubleshooting.md, by error: on the site each entry begins with the docstring of ue_rl/system/errors.py."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from ue_rl.system import errors

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
CATALOGUE = runpy.run_path(str(ROOT / "docs" / "catalogue.py"))


def test_each_entry_begins_with_the_docstring() -> None:
    page = PAGE.read_text("utf-8")
    text = CATALOGUE["filled"](page)
    assert text.startswith(page.partition("\n### UeRlError")[0])
    for line in page.splitlines():
        assert line in text, line
    begun = dict(re.findall(r"^### (\w+)\n\n(.+)$", text.partition("## By error")[2], re.M))
    kinds = {k: v for k, v in vars(errors).items() if isinstance(v, type) and issubclass(v, errors.UeRlError)}
    assert begun.keys() == kinds.keys()
    for name, kind in kinds.items():
        assert begun[name].startswith((kind.__doc__ or "").partition("\n")[0]), name
    assert begun["EngineTimeout"].endswith(" Also a `TimeoutError`.")
    assert begun["EngineBusy"].endswith(" Also an `EngineUnreachable`.")


def test_the_entries_do_not_repeat_it() -> None:
    text = PAGE.read_text("utf-8")
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.UeRlError):
            assert (kind.__doc__ or "").partition("\n")[0] not in text, kind


def test_an_entry_of_no_error_is_refused() -> None:
    with pytest.raises(LookupError, match="NoSuchError"):
        CATALOGUE["by_error"]("### NoSuchError\n\n- Cure: none.\n")
