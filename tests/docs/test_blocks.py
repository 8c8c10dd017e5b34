"""No block escapes: each has a kind that some test runs, and where a test says that it runs one, it does."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import ROOT, RUN_BY, Block, blocks, every, pages, runs_elsewhere, text_of

KINDS = {
    "python": "test_python_blocks.py", "setup": "test_python_blocks.py", "bash": "test_shell_blocks.py",
    "bat": "test_shell_blocks.py",
    "cpp": "test_other_blocks.py", "csharp": "test_other_blocks.py", "gdscript": "test_other_blocks.py",
    "yaml": "test_other_blocks.py", "text": "test_other_blocks.py", "abnf": "test_other_blocks.py",
    "dockerfile": "test_other_blocks.py",
}  # fmt: skip


@pytest.mark.parametrize("page", [page for page in pages() if blocks(page)])
def test_every_block_is_of_a_kind_that_is_run(page: str) -> None:
    for block in blocks(page):
        assert runs_elsewhere(block) or block.language in KINDS, f"{block}: ```{block.language} is run by no test"


@pytest.mark.parametrize(("key", "test"), RUN_BY.items(), ids=lambda value: str(value).replace("/", "."))
def test_who_says_that_he_runs_a_block_reads_it(key: tuple[str, str], test: str) -> None:
    page, info = key
    assert [block for block in blocks(page) if block.info == info], "no such block"
    assert page.rpartition("/")[2] in (ROOT / test).read_text("utf-8")


def test_fences_are_seen() -> None:
    for page in pages():
        fences = len(re.findall(r"^ *`{3,}", text_of(page), re.M))
        assert fences == 2 * sum(block.language != "setup" for block in blocks(page)), page


def test_the_kinds_are_all_in_use() -> None:
    assert {kind for kind in KINDS if not every(kind)} == set()


def test_what_is_read() -> None:
    block = Block("docs/x.md", 3, "python", "", "1 / 0\n")
    assert block.source.splitlines().index("1 / 0") == block.line
