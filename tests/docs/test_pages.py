"""The pages as a whole: line lengths, links that lead somewhere, and an entry for each error."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def prose(page: Path) -> list[tuple[int, str]]:
    """(line number, line) of what is neither code nor a table."""
    lines, code = [], False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not line.lstrip().startswith("|"):
            lines.append((number, line))
    return lines


def test_lines_can_be_read_in_an_editor() -> None:
    lines = [(page.name, number, len(line)) for page in PAGES for number, line in prose(page)]
    assert [line for line in lines if line[2] > 120] == []


def without_code(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S)


def test_links_lead_to_a_file_and_a_heading() -> None:
    wrong = []
    for page in [*PAGES, ROOT / "benchmarks" / "README.md"]:
        for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
            name, _, anchor = target.partition("#")
            file = (page.parent / name).resolve() if name else page
            if "://" not in target and not (file.exists() and (not anchor or anchor in anchors(file))):
                wrong.append((page.name, target))
    assert wrong == []


@cache
def anchors(page: Path) -> set[str]:
    return {slug(line.lstrip("#").strip()) for _, line in prose(page) if line.startswith("#")}


def test_named_files_exist() -> None:
    rooms = "ue_rl|connections|bridges|inference|tests|samples|benchmarks"
    name = re.compile(rf"`((?:[\w-]+/)+[\w.-]*\.(?:py|pyi|c|h|md|fbs|gd)|(?:{rooms})/(?:[\w-]+/)*)`")
    named = [(page.name, found) for page in PAGES for found in name.findall(without_code(page))]
    assert len(named) > 50
    assert [(page, found) for page, found in named if not (ROOT / found).exists()] == []


@cache
def sources() -> dict[Path, str]:
    rooms = ("connections", "bridges", "inference")
    paths = [*(ROOT / "ue_rl").rglob("*.py"), *(p for room in rooms for p in (ROOT / room).rglob("*.py"))]
    return {path: path.read_text("utf-8") for path in paths}


@cache
def messages(path: Path) -> str:
    """Every string of a file, an f-string with ".." for what is filled in."""
    found = []
    for node in ast.walk(ast.parse(sources()[path])):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else ".." for part in node.values]
            found.append("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return "\n".join(found)


def is_said(piece: str) -> bool:
    """Whether a string of the code has it; only files with its words are parsed, those with most of it first."""
    words = piece.split()
    having = [path for path, text in sources().items() if all(word in text for word in words)]
    having.sort(key=lambda path: piece not in sources()[path])
    return any(piece in messages(path) for path in having)


def test_troubleshooting_quotes_messages_that_exist() -> None:
    symptoms = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8").partition("## By error")[0]
    quoted = [" ".join(text.split()) for text in re.findall(r'"([^"]*)"', symptoms)]
    quoted = [text for text in quoted if text not in ("ue_rl", "When something is wrong")]
    assert len(quoted) > 12
    for text in quoted:
        for piece in text.split(".."):
            if piece.strip() and not is_said(piece.strip()):
                pytest.fail(f"no message says {text!r}")


def slug(heading: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_page_is_in_the_table_of_pages() -> None:
    text = (ROOT / "docs" / "pages.md").read_text("utf-8")
    linked = set(re.findall(r"\(([\w-]+\.md)\)", text))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - linked == {"pages.md"}


def test_every_page_has_its_place_on_the_site() -> None:
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    named = re.findall(r"^ +- ([\w/-]+\.md)$", nav, re.M)
    assert len(named) == len(set(named))
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES[1:]}
    assert set(named) == pages | {"index.md"}  # README.md, see docs/hooks.py
