"""What docs/hooks.py writes into pages of the site, from the code.

- docs/cli.md: every command.
- docs/fifty-lines.md: the engines of samples/fifty_lines.
- docs/checking.md: every mistake that `ue-rl check` can name.
- docs/troubleshooting.md, "By error": what each error means, from its docstring.
"""

from __future__ import annotations

import inspect
import re
import runpy
from pathlib import Path

from ue_rl.devtools.check.mistakes import MISTAKES
from ue_rl.system import errors

MARK = "<!-- every mistake -->"
COMMANDS, REFERENCE = "<!-- every command -->", Path(__file__).with_name("cli_reference.py")
ROOT = Path(__file__).resolve().parents[1]
FILE = re.compile(r"^<!-- file (\S+) as (\w+) -->$", re.M)
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


def kinds() -> list[str]:
    """The names of all errors, in the order of their file."""
    found = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.UeRlError)]
    return [kind.__name__ for kind in found]


def by_error(entries: str) -> str:
    """An entry for each error: what it is, then what the page says of causes and cure."""
    said = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", entries, re.M | re.S))
    parts = [f"### {name}\n\n{meaning(name)}\n{said.pop(name, '').rstrip()}\n" for name in kinds()]
    if said:
        raise LookupError(f"docs/troubleshooting.md: ue_rl/system/errors.py has no {', '.join(said)}")
    return "\n".join(parts)


def filled(markdown: str) -> str:
    """A page with all that."""
    markdown = FILE.sub(lambda found: f"```{found[2]}\n{(ROOT / found[1]).read_text('utf-8')}```", markdown)
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, runpy.run_path(str(REFERENCE))["commands"]())
    before, heading, entries = markdown.replace(MARK, table()).partition(BY_ERROR)
    introduction, mark, entries = entries.partition("\n### ")
    return before + heading + introduction + "\n" * bool(mark) + (by_error(mark[1:] + entries) if mark else "")
