"""Every Python block of a page runs as it stands there, the blocks of one page one after the other.

A page's hidden comments (tests/docs/blocks.py) serve what its reader has, and make long trainings short.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.docs.blocks import ROOT, Block, blocks, pages, runs_elsewhere
from tests.docs.games import Draws, Game
from ue_rl.bridges import run_in_thread


class Page:
    """The names of a page's blocks, and what its comments have asked for."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.stack = stack
        self.swaps: list[tuple[str, str]] = []
        self.unused: set[str] = set()
        self.needed: list[str] = []
        self.names: dict[str, Any] = {
            "__name__": "page",
            "ROOT": ROOT,
            "Game": Game,
            "Draws": Draws,
            "serve_at": self.serve_at,
            "instead": self.instead,
            "needs": self.needed.append,
            "in_thread": self.in_thread,
        }

    def serve_at(self, address: str, bridge: Any, **options: Any) -> None:
        """An engine at a free port, which stands for `address` in the blocks that follow; `engine` is its handle."""
        self.close()
        self.names["engine"] = self.stack.enter_context(run_in_thread(bridge, **options))
        self.swaps = [swap for swap in self.swaps if swap[0] != address]
        place = f"127.0.0.1:{self.names['engine'].port}"
        self.swaps.append((address, place.replace(":", '", ') if '"' in address else place))

    def instead(self, text: str, other: str) -> None:
        """In the blocks that follow `other` stands in place of `text`, which must come."""
        self.swaps.append((text, other))
        self.unused.add(text)

    def in_thread(self, run: Callable[[threading.Event], object]) -> None:
        """Runs until the page's end, when the event is set."""
        stop = threading.Event()
        thread = threading.Thread(target=run, args=(stop,), daemon=True)
        thread.start()
        self.stack.callback(thread.join, 10)
        self.stack.callback(stop.set)

    def close(self) -> None:
        """The page's env: an engine serves one trainer at a time."""
        if hasattr(self.names.get("env"), "close"):
            self.names["env"].close()

    def run(self, block: Block) -> None:
        source = block.source
        if block.language == "python":
            for text, other in self.swaps:
                self.unused -= {text} if text in source else set()
                source = source.replace(text, other)
        exec(compile(source, block.page, "exec"), self.names)


def end_ray() -> None:
    """A page does not; the next test begins with none."""
    if ray := sys.modules.get("ray"):
        ray.shutdown()


def shown(page: str) -> list[Block]:
    return [block for block in blocks(page) if block.language in ("setup", "python") and not runs_elsewhere(block)]


@pytest.mark.timeout(300)  # two pages start Ray, which takes its time beside other work
@pytest.mark.parametrize("name", [name for name in pages() if shown(name)])
def test_the_python_of_a_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    with contextlib.ExitStack() as stack:
        stack.callback(end_ray)
        page = Page(stack)
        stack.callback(page.close)
        for block in shown(name):
            page.run(block)
            if missing := [need for need in page.needed if importlib.util.find_spec(need) is None]:
                pytest.skip(f"not installed: {missing[0]}")
        for test in [each for each_name, each in page.names.items() if each_name.startswith("test_")]:
            test()
    assert page.unused == set(), "the page has no such text any more"
