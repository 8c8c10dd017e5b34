"""What docs/hooks.py writes into pages of the site, from the code.

- docs/checking.md: every mistake that `ue-rl check` can name.
- docs/troubleshooting.md, "By error": what each error means, from its docstring.
"""

from __future__ import annotations

import inspect
import re

from ue_rl import errors
from ue_rl.compliance.mistakes import MISTAKES

MARK = "<!-- every mistake -->"
BY_ERROR = "\n## By error\n"
GROUPS = ("UeRlError", "Exception", "TransportError", "ProtocolError", "InferenceError")  # said on the page


def table() -> str:
    """Every mistake, as a table in Markdown."""
    lines = ["| name | what is wrong | what to do | section |", "|---|---|---|---|"]
    for mistake in MISTAKES.values():
        cells = [f"`{mistake.name}`", mistake.title, mistake.cure, mistake.section]
        lines.append("| " + " | ".join(cell.replace("|", r"\|").replace("*", r"\*") for cell in cells) + " |")
    return "\n".join(lines)


def meaning(name: str) -> str:
    """What an error is, and which other errors it is too."""
    kind = getattr(errors, name)
    text = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
    others = [base.__name__ for base in kind.__bases__ if base.__name__ not in GROUPS]
    also = " and ".join(f"{'an' if other[0] in 'AEIOU' else 'a'} `{other}`" for other in others)
    return f"{text} Also {also}." if also else text


def filled(markdown: str) -> str:
    """A page with all that."""
    before, heading, entries = markdown.replace(MARK, table()).partition(BY_ERROR)
    return (
        before
        + heading
        + re.sub(r"^### (\w+)\n", lambda found: f"{found[0]}\n{meaning(found[1])}\n", entries, flags=re.M)
    )
