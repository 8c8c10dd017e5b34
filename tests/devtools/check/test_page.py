"""docs/checking.md: its table of mistakes is the catalogue's, its keys and options are those of `ue-rl check`."""

from __future__ import annotations

import json
import re
import runpy
from typing import Any

import pytest
from click.testing import CliRunner

from tests.devtools.check.reports import check
from tests.docs.blocks import ROOT, labelled
from tests.harness.engines.mistaken import MistakenEngine
from tests.support.programs import program
from ue_rl.cli import cli
from ue_rl.devtools.check import MISTAKES

PAGE = ROOT / "docs" / "checking.md"


def test_the_table_is_the_catalogue() -> None:
    catalogue = runpy.run_path(str(ROOT / "docs" / "catalogue.py"))
    assert PAGE.read_text("utf-8").count(catalogue["MARK"]) == 1
    rows = [re.split(r"(?<!\\) \| ", line[2:-2]) for line in catalogue["table"]().splitlines()[2:]]
    seen = [[re.sub(r"\\([|*])", r"\1", cell) for cell in row] for row in rows]
    assert seen == [[f"`{m.name}`", m.title, m.cure, m.section] for m in MISTAKES.values()]


def test_the_page_names_real_mistakes() -> None:
    named = {name for name in re.findall(r"`([a-z]+(?:-[a-z]+)+)`", PAGE.read_text("utf-8")) if name != "ue-rl"}
    assert named <= MISTAKES.keys()


def test_the_keys_of_the_json_are_those_of_the_page() -> None:
    with MistakenEngine("nan", channel="SHARED") as engine:
        report = json.loads(json.dumps(check(engine.url).as_dict()))
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


def test_the_report_is_that_of_an_engine_without_the_semicolon() -> None:
    source = labelled("docs/protocol-in-ten-minutes.md", "python engine")
    with program(source.replace("};REW", "}REW")) as port:
        said = CliRunner().invoke(cli, ["check", f"127.0.0.1:{port}"]).output
    seen = re.sub(r"after [\d.]+ ms", "after 0.0 ms", said).replace(str(port), "7777")
    assert seen.split() == labelled("docs/checking.md", "text report").split()


def test_the_test_of_the_page_fails_where_something_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {}
    with MistakenEngine("missing-separator", channel="SHARED") as engine:
        exec(labelled("docs/checking.md", "python test").replace("tcp://127.0.0.1:7777", engine.url), names)
        with pytest.raises(AssertionError, match="missing-separator"):
            names["test_my_engine"]()
