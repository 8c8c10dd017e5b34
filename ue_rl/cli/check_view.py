"""What `ue-rl check` shows: one finding after the other, and the verdict."""

from __future__ import annotations

import textwrap
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

    def says(self, text: str) -> None:
        """A line about the run itself."""
        self._block("", "", text, "dim")

    def waiting(self, address: str) -> AbstractContextManager[Any]:
        """Around the checks."""
        self.says(f"checking {address}")
        return nullcontext()

    def finding(self, finding: Finding) -> None:
        """One more."""
        if finding.carrier and finding.carrier != self.carrier:
            self.carrier = finding.carrier
            self.screen.print(Text(f"\nover {finding.carrier}", "bold"))
        env = "" if finding.env_id is None or "env " in finding.text else f" (env {finding.env_id})"
        text = f"{finding.check}: {finding.text}{env}"
        self._block(finding.outcome.value.ljust(_MARGIN), _COLOURS[finding.outcome], text,
                    "dim" if finding.outcome is Outcome.SKIP else "")  # fmt: skip
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
        self.screen.print()
        if words:
            for line in words.splitlines():
                self.screen.print(Text(printable(line), "yellow"), soft_wrap=True)
        for carrier, numbers in report.speed.items():
            self._block("", "", f"speed over {carrier}: {', '.join(f'{k} {v:g}' for k, v in numbers.items())}", "")
        verdict = "STOPPED" if stopped else "FAIL" if report.exit_code else "PASS"
        colour = "bold red" if report.exit_code else "yellow" if stopped else "bold green"
        self._block(f"{verdict}  ", colour, f"{report.summary}", "")

    def _detail(self, label: str, text: str) -> None:
        self._block(" " * _MARGIN + label.ljust(_LABEL), "dim", text, "")

    def _block(self, head: str, head_style: str, text: str, style: str) -> None:
        """A text behind a head; the lines below begin where the text began."""
        text = printable(text).replace("\n", " ")
        lines = [text]
        if self.width is not None:
            room = max(self.width - len(head) - 1, 20)
            lines = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
        shown = Text(head, head_style, end="")
        shown.append(f"\n{' ' * len(head)}".join(lines), style or "default")
        shown.end = "\n"
        self.screen.print(shown, soft_wrap=True)


def section(text: str) -> str:
    """Where to read about a mistake."""
    return text if text.startswith("docs/") else f"docs/protocol.md, section {text}"
