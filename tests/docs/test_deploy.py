"""The Python blocks of docs/deploy.md run as they stand there, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import torch as th

PAGE = Path(__file__).resolve().parents[2] / "docs" / "deploy.md"


def test_the_page_runs(tmp_path, monkeypatch):
    text = PAGE.read_text(encoding="utf-8")
    blocks = [(m.group(1), text[: m.start(1)].count("\n")) for m in re.finditer(r"```python\n(.*?)```", text, re.S)]
    assert len(blocks) >= 4
    monkeypatch.chdir(tmp_path)
    th.manual_seed(0)
    names: dict[str, object] = {"__name__": "deploy"}
    for source, line in blocks:
        exec(compile("\n" * line + source, str(PAGE), "exec"), names)
    assert (tmp_path / "policy.onnx").exists()
