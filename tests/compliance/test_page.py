"""docs/checking.md: the catalogue of mistakes, the keys of the JSON and the options are those of `ue-rl check`."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.harness.engines.mistaken import MistakenEngine
from ue_rl import compliance
from ue_rl.compliance import Options

PAGE = Path(__file__).resolve().parents[2] / "docs" / "checking.md"


def test_the_page_leads_to_the_catalogue() -> None:
    text = PAGE.read_text("utf-8")
    assert "(../ue_rl/compliance/mistakes.py)" in text
    assert "<!-- mistakes of ue-rl check -->" in text  # on the site its table: docs/hooks.py


def test_the_keys_of_the_json_are_those_of_the_page() -> None:
    with MistakenEngine("nan", channel="SHARED") as engine:
        report = json.loads(json.dumps(compliance.check(engine.url, Options(timeout=0.5)).as_dict()))
    text = PAGE.read_text("utf-8")
    for key in [*report, *(key for finding in report["findings"] for key in finding)]:
        assert f"`{key}`" in text, key


def test_the_page_uses_a_real_option_of_check() -> None:
    from ue_rl.cli.check import check

    options = {
        word for option in check.params for word in (*option.opts, *option.secondary_opts) if word.startswith("--")
    }
    said = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE.read_text("utf-8")))
    assert options <= said
    assert said - options <= {"--port"}
