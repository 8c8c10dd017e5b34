"""docs/checking.md: its table of mistakes is the catalogue's. `python -m tests.compliance.test_page` writes it anew."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.harness.engines.mistaken import MistakenEngine
from ue_rl import compliance
from ue_rl.compliance import MISTAKES, Options

PAGE = Path(__file__).resolve().parents[2] / "docs" / "checking.md"
BEGIN, END = "<!-- mistakes -->\n", "<!-- end of mistakes -->\n"


def table() -> str:
    lines = ["| name | what is wrong | section |", "|---|---|---|"]
    for mistake in MISTAKES.values():
        section = re.sub(r"\(.*, (.*)\)", r"(\1)", mistake.section)
        lines.append(f"| `{mistake.name}` | {mistake.title.replace('|', chr(92) + '|')} | {section} |")
    return "\n".join(lines) + "\n"


def parts() -> tuple[str, str, str]:
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    now, _, after = rest.partition(END)
    return before + BEGIN, now, END + after


def test_the_table_is_the_catalogue() -> None:
    assert parts()[1] == table(), "python -m tests.compliance.test_page writes it anew"


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


if __name__ == "__main__":
    before, _, after = parts()
    PAGE.write_text(before + table() + after, "utf-8")
