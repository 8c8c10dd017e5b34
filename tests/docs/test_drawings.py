"""The pictures of docs/drawings.py are those that it draws, and pages show them."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
PICTURES = runpy.run_path(str(DOCS / "drawings.py"))["PICTURES"]


def test_the_pictures_are_those_of_the_script() -> None:
    for name, draw in PICTURES.items():
        assert (DOCS / name).read_text("utf-8") == draw(), "python docs/drawings.py"


def test_a_page_shows_each_picture() -> None:
    text = "".join(page.read_text("utf-8") for page in DOCS.glob("*.md"))
    assert [name for name in PICTURES if f"]({name})" not in text] == []


def test_every_picture_has_its_script_in_the_list() -> None:
    listed = (DOCS.parent / "CONTRIBUTING.md").read_text("utf-8").partition("is made by a script:")[2]
    others = {"architecture.svg", "protocol-step.svg"}
    assert {picture.name for picture in DOCS.glob("*.svg")} == others | PICTURES.keys()
    assert [name for name in others if f"`docs/{name}`" not in listed] == []
    folders = {file.parent.name for kind in ("svg", "png", "gif") for file in DOCS.glob(f"*/*.{kind}")}
    assert [name for name in folders if f"`docs/{name}/*" not in listed] == []
