"""What `ue-rl check` shows: one finding after the other, and the verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from rich.text import Text

from ue_rl.cli.common import console
from ue_rl.compliance import Finding, Outcome, Report
from ue_rl.errors import printable

_COLOURS = {Outcome.PASS: "green", Outcome.WARN: "yellow", Outcome.FAIL: "bold red", Outcome.SKIP: "dim"}
_MARGIN = 6  # of the text behind an outcome's word
_LABEL = 10  # of "seen", "protocol", "cure"


class View:
    """On a terminal lines are cut at its width; elsewhere they are as long as they are, for grep."""

    def __init__(self) -> None:
        self.screen = console()
        self.width = self.screen.width if self.screen.is_terminal else None
        self.carrier = ""
        self.skipped: list[Finding] = []  # in a row, for one reason

    def says(self, text: str) -> None:
        """A line about the run itself."""
        self._block("", "", text, "dim")

    def waiting(self, address: str) -> AbstractContextManager[Any]:
        """Around the checks."""
        self.says(f"checking {address}")
        return nullcontext()

    def finding(self, finding: Finding) -> None:
        """One more."""
        if self.skipped and (finding.outcome is not Outcome.SKIP or _reason(finding) != _reason(self.skipped[0])):
            self._show_skipped()
        if finding.carrier and finding.carrier != self.carrier:
            self.carrier = finding.carrier
            self.screen.print(Text(f"\nover {finding.carrier}", "bold"))
        if finding.outcome is Outcome.SKIP:
            self.skipped.append(finding)
            return
        env = "" if finding.env_id is None or "env " in finding.text else f" (env {finding.env_id})"
        text = f"{finding.check}: {finding.text}{env}"
        self._outcome(finding.outcome, text)
        if finding.mistake is None:
            return
        label = "seen"
        for line in finding.seen.splitlines():
            self._detail(label, line)
            label = ""
        self._detail("protocol", section(finding.mistake.section))
        self._detail("cure", finding.mistake.cure)
        self._detail("name", finding.mistake.name)

    def ends(self, report: Report, words: str, stopped: bool) -> None:
        """The verdict, and above it what became of the engine, if it has gone."""
        self._show_skipped()
        self.screen.print()
        if words:
            for line in words.splitlines():
                self.screen.print(Text(printable(line, lines=True), "yellow"), soft_wrap=True)
        verdict = "STOPPED" if stopped else "FAIL" if report.exit_code else "PASS"
        colour = "bold red" if report.exit_code else "yellow" if stopped else "bold green"
        self._block(f"{verdict}  ", colour, f"{report.summary}", "")

    def _show_skipped(self) -> None:
        """Many checks may need what has failed: they are one line."""
        if self.skipped:
            more = f" and {len(self.skipped) - 1} more" if len(self.skipped) > 1 else ""
            self._outcome(Outcome.SKIP, f"{self.skipped[0].check}{more}: {self.skipped[0].text}", "dim")
            self.skipped.clear()

    def _outcome(self, outcome: Outcome, text: str, style: str = "") -> None:
        self._block(outcome.value.ljust(_MARGIN), _COLOURS[outcome], text, style)

    def _detail(self, label: str, text: str) -> None:
        self._block(" " * _MARGIN + label.ljust(_LABEL), "dim", text, "")

    def _block(self, head: str, head_style: str, text: str, style: str) -> None:
        """A text behind a head; the lines below begin where the text began."""
        text = printable(text, lines=True).replace("\n", " ")
        lines = [text] if self.width is None else list(_cut(text, max(self.width - len(head) - 1, 20)))
        shown = Text(head, head_style, end="")
        shown.append(f"\n{' ' * len(head)}".join(lines), style or "default")
        shown.end = "\n"
        self.screen.print(shown, soft_wrap=True)


def _reason(finding: Finding) -> tuple[str, str]:
    return finding.carrier, finding.text


def _cut(text: str, room: int) -> Iterator[str]:
    """Lines of at most so many characters, cut behind blanks, and in a message behind its separators."""
    line = ""
    for piece in re.findall(r"[^\s;,|]*[;,|]*\s*", text):
        if line and len(line) + len(piece.rstrip()) > room:
            yield line.rstrip()
            line = ""
        line += piece
        while len(line.rstrip()) > room:
            yield line[:room]
            line = line[room:]
    yield line.rstrip()


def section(text: str) -> str:
    """Where to read about a mistake."""
    return text if text.startswith("docs/") else f"docs/protocol.md, section {text}"
