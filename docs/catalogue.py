"""What docs/hooks.py writes into docs/checking.md: every mistake that `ue-rl check` can name, from its catalogue."""

from __future__ import annotations

from ue_rl.compliance.mistakes import MISTAKES

MARK = "<!-- every mistake -->"


def table() -> str:
    """A table in Markdown."""
    lines = ["| name | what is wrong | what to do | section |", "|---|---|---|---|"]
    for mistake in MISTAKES.values():
        cells = [f"`{mistake.name}`", mistake.title, mistake.cure, mistake.section]
        lines.append("| " + " | ".join(cell.replace("|", r"\|").replace("*", r"\*") for cell in cells) + " |")
    return "\n".join(lines)
