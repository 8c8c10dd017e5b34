"""docs/performance.md: its charts are those of its data; benchmarks/README.md has a row for every benchmark."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

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


def test_every_benchmark_is_in_the_list() -> None:
    text = (BENCHMARKS / "README.md").read_text("utf-8")
    named = set(re.findall(r"\b(\w+\.(?:py|c))\b", text))
    files = {file.name for file in BENCHMARKS.iterdir() if file.suffix in (".py", ".c")}
    assert files - named == set()
    assert {row for row in re.findall(r"^\| `(\w+\.py)", text, re.M)} <= files
