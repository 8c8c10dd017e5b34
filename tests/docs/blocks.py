"""The fenced blocks of every page in Markdown: docs/, README.md and the READMEs of the folders.

What a Python block needs before it stands in a comment that no reader sees:

    <!-- setup
    serve_at(7777, Game())
    instead("1_000_000", "64")
    -->

`serve_at` and `instead` are those of tests/docs/test_python_blocks.py.
"""

from __future__ import annotations

import re
import runpy
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"^<!-- setup\n(?P<setup>.*?)^-->$"
    r"|^(?P<indent> *)(?P<fence>`{3,})(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=indent)(?P=fence) *$",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """One block.

    Attributes:
        page: from the repository's root. line: that of its fence. language, label: the words behind the fence.
        setup: a hidden comment, as if it were a block; its language is "setup".
    """

    page: str
    line: int
    language: str
    label: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def info(self) -> str:
        """The words behind the fence."""
        return f"{self.language} {self.label}".strip()

    @property
    def source(self) -> str:
        """With as many lines before it as on the page, for tracebacks."""
        return "\n" * self.line + self.text


@cache
def pages() -> list[str]:
    """Every page, from the repository's root."""
    done = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False)
    named = done.stdout.split() or [str(path.relative_to(ROOT)) for path in ROOT.rglob("*.md")]  # no repository: sdist
    return sorted(name for name in named if (ROOT / name).exists() and not name.startswith((".", "build")))


@cache
def text_of(page: str) -> str:
    """A page as on the site, as far as its blocks go."""
    text = (ROOT / page).read_text("utf-8")
    if page == "docs/cli.md":
        text += runpy.run_path(str(ROOT / "docs" / "cli_reference.py"))["commands"]()
    return text


@cache
def blocks(page: str) -> list[Block]:
    """Those of a page, in order, with its comments."""
    text, found = text_of(page), []
    for match in BLOCK.finditer(text):
        setup, indent = match["setup"], match["indent"] or ""
        code = setup if setup is not None else re.sub(f"^{indent}", "", match["text"], flags=re.M)
        language, _, label = ("setup", "", "") if setup is not None else match["info"].strip().partition(" ")
        found.append(Block(page, text[: match.start()].count("\n") + 1, language, label, code))
    return found


def labelled(page: str, info: str) -> str:
    """The text of the one block of a page with these words behind its fence."""
    (block,) = [block for block in blocks(page) if block.info == info]
    return block.text


def every(*languages: str) -> list[Block]:
    """The blocks of these languages on all pages."""
    return [block for page in pages() for block in blocks(page) if block.language in languages]


# (page, the words behind the fence) -> the test that runs it. All others are run by the tests beside this file.
RUN_BY = {
    ("README.md", "python engine"): "tests/docs/test_readme.py",
    ("README.md", "python trainer"): "tests/docs/test_readme.py",
    ("docs/browser.md", "js game"): "tests/plugins/web/test_module.py",
    ("docs/browser.md", "js agent"): "tests/plugins/web/test_page_export.py",
    ("docs/checking.md", "python test"): "tests/devtools/check/test_page.py",
    ("docs/checking.md", "text report"): "tests/devtools/check/test_page.py",
    ("docs/commands.md", "text methods"): "tests/protocol/commands/test_envelope.py",
    ("docs/deploy.md", "cpp onnx"): "tests/samples/test_deploy_onnx.py",
    ("docs/deploy.md", "csharp onnx"): "tests/samples/test_deploy_onnx.py",
    ("docs/grpc.md", "js play"): "tests/plugins/sessions/test_node.py",
    ("docs/mujoco.md", "python cart"): "tests/plugins/mujoco/test_mujoco.py",
    ("docs/policy-server.md", "text session"): "tests/inference/test_policy_server.py",
    ("docs/protocol-in-ten-minutes.md", "python engine"): "tests/docs/test_protocol_engine.py",
    ("docs/protocol-in-ten-minutes.md", "python numbers"): "tests/docs/test_protocol_engine.py",
    ("docs/shared-memory.md", "text extension"): "tests/docs/test_shared_memory_engine.py",
    ("docs/shared-memory.md", "text layout"): "tests/docs/test_shared_memory_engine.py",
    ("docs/testing.md", "python test"): "tests/docs/test_testing.py",
    ("docs/training.md", "yaml curriculum"): "tests/docs/test_training.py",
    ("docs/training.md", "yaml file"): "tests/docs/test_training.py",
    ("docs/training.md", "yaml her"): "tests/docs/test_training.py",
    ("docs/training.md", "yaml params"): "tests/docs/test_training.py",
    ("docs/training.md", "yaml wrappers"): "tests/docs/test_training.py",
    ("samples/unreal/UeRlBridge/README.md", "cpp CartBridge.cpp"): "tests/samples/test_unreal.py",
    ("samples/unreal/UeRlBridge/README.md", "cpp CartBridge.h"): "tests/samples/test_unreal.py",
}


def runs_elsewhere(block: Block) -> bool:
    """Another test has it."""
    return (block.page, block.info) in RUN_BY
