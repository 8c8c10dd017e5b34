"""The pages can be read once: a sentence has 17 words by the mean and never more than 35.

Code, tables and headings are no sentences. `python tests/docs/test_readability.py [PAGE ..]` shows what a page has.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MEAN, LONGEST = 17, 35
ALL, PATH = 30_000, 12_000  # words


def sentences(text: str) -> list[str]:
    """What a page says outside of code, tables and headings; code within a sentence is one word."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"^( *)(```|~~~).*?^\1\2\s*$", "\n\n", text, flags=re.S | re.M)
    found: list[str] = []
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)|\n(?=#)", text):
        if re.match(r" {4}(?! *(?:[-*]|\d+\.)\s)", block) or block.strip().startswith(
            ("#", "|", "!", ">", "[^", ":::")
        ):
            continue
        words = re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "", block.strip())
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", words)
        words = " ".join(re.sub(r"`[^`]*`", "CODE", words).split())
        words = re.sub(r"\b(e\.g|i\.e|etc|vs)\.", r"\1", words)
        parts = re.split(r"(?<=[.!?:;])\s+(?=[A-Z\"(*])|(?<=[;:])\s", words)
        found += [part for part in parts if re.search(r"\w", part)]
    return found


def mean(lengths: list[int]) -> float:
    """0 for a page without a sentence."""
    return sum(lengths) / max(1, len(lengths))


def test_sentences_are_short() -> None:
    said = {page.relative_to(ROOT).as_posix(): sentences(page.read_text("utf-8")) for page in PAGES}
    assert [(page, one) for page, each in said.items() for one in each if len(one.split()) > LONGEST] == []
    means = {page: mean([len(sentence.split()) for sentence in each]) for page, each in said.items()}
    assert {page: length for page, length in means.items() if length > MEAN} == {}


def words(page: Path) -> int:
    """Of what is read: tables and headings too, but neither code nor hidden comments."""
    text = re.sub(r"<!--.*?-->", "", page.read_text("utf-8"), flags=re.S)
    return len(re.sub(r"^( *)```.*?^\1```\s*$", "", text, flags=re.S | re.M).split())


def test_all_of_it_can_be_read() -> None:
    """All words of docs/, code and comments too: find docs -name '*.md' | xargs cat | wc -w."""
    assert sum(len(page.read_text("utf-8").split()) for page in (ROOT / "docs").rglob("*.md")) <= ALL


def test_a_game_developer_s_path_is_short() -> None:
    """Of the pages for one engine each, the longest is counted."""
    path = (ROOT / "docs" / "pages.md").read_text("utf-8").partition("## By what")[0]
    steps = re.findall(r"^\d\. .*(?:\n   .*)*", path, re.M)
    counts = [[words(ROOT / "docs" / name) for name in re.findall(r"\((.*?\.md)\)", step)] for step in steps]
    assert len(counts) == 5
    assert sum(max(each) if " or " in step else sum(each) for step, each in zip(steps, counts, strict=True)) <= PATH


def test_what_is_counted() -> None:
    text = "# A heading\n\nOne two `three four`, five. Six seven!\n\n- [eight nine](ten.md): eleven\n\n"
    text += "| a | table |\n|---|---|\n\n```bash\nsome code. And more.\n```\n<!-- a comment. -->\n"
    assert sentences(text) == ["One two CODE, five.", "Six seven!", "eight nine:", "eleven"]


if __name__ == "__main__":
    for name in sys.argv[1:] or map(str, PAGES):
        content = Path(name).read_text("utf-8")
        counts = [len(sentence.split()) for sentence in sentences(content)]
        print(f"{name}: {len(content.split())} words, mean {mean(counts):.1f}, longest {max(counts, default=0)}")
        for each in sentences(content):
            if len(each.split()) > LONGEST:
                print(f"    {len(each.split())}: {each}")
