"""docs/performance.md: charts and tables are those of the data; benchmarks/README.md has a row for every benchmark."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"


def test_the_charts_are_those_of_the_data() -> None:
    charts = runpy.run_path(str(BENCHMARKS / "charts.py"))["charts"]()
    folder = ROOT / "docs" / "performance"
    assert {file.name: file.read_text("utf-8") for file in folder.glob("*.svg")} == charts, (
        "python benchmarks/charts.py"
    )


def test_the_page_shows_every_chart() -> None:
    shown = re.findall(r"\(performance/(\w+\.svg)\)", (ROOT / "docs" / "performance.md").read_text("utf-8"))
    assert sorted(shown) == sorted(file.name for file in (ROOT / "docs" / "performance").glob("*.svg"))


def test_the_tables_are_those_of_the_data() -> None:
    tables = runpy.run_path(str(BENCHMARKS / "tables.py"))
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    assert tables["written"](page) == page, "python benchmarks/tables.py"
    changed = page.replace("| PPO | 5 ms", "| PPO | 6 ms", 1)
    assert changed != page
    assert tables["written"](changed) == page


@pytest.mark.parametrize("name", ["learner.json", "learner_quality.json", "overlap.json", "sessions.json"])
def test_the_data_say_where_they_were_measured(name: str) -> None:
    held = json.loads((BENCHMARKS / name).read_text("utf-8"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", held["date"])
    assert held["machine"]
    assert "Python" in held["versions"]


def test_every_benchmark_is_in_the_list() -> None:
    text = (BENCHMARKS / "README.md").read_text("utf-8")
    named = set(re.findall(r"\b(\w+\.(?:py|c))\b", text))
    files = {file.name for file in BENCHMARKS.iterdir() if file.suffix in (".py", ".c")}
    assert files - named == set()
    assert {row for row in re.findall(r"^\| `(\w+\.py)", text, re.M)} <= files
