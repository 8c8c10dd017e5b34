"""What `ue-rl arena inspect` shows of decisions: on a terminal, or as one HTML file."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ue_rl.system.errors import printable, shorten

if TYPE_CHECKING:
    from rich.console import Console

_HEAD = "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
_STYLE = """body{font:15px sans-serif;max-width:72em;margin:2em auto;padding:0 1em}pre{background:#f4f2ec;padding:.6em;
white-space:pre-wrap}summary{cursor:pointer;padding:.2em}.bad{color:#b00020}li{margin:.1em}"""


def show(screen: Console, rows: list[dict[str, Any]], ends: list[dict[str, Any]], whole: bool = False) -> None:
    """A line for each decision, the plans as a tree, how episodes ended, and, with `whole`, all that led to each."""
    from rich.table import Table
    from rich.tree import Tree

    table = Table("tick", "agent", "tool", "params", "reasoning", "tokens", "ms")
    for row in rows:
        if row["code"]:
            reason = f"{row['code']}: {row['reasoning']}"
        else:
            reason = row["reasoning"]
        cells = [row["tick"], row["agent_id"], row["tool"], shorten(json.dumps(row["params"]), 60), shorten(reason, 60),
                 row.get("trace", {}).get("tokens", ""), f"{row['seconds'] * 1000:.1f}"]  # fmt: skip
        table.add_row(*(printable(str(cell)) for cell in cells))
    screen.print(table)
    tree = Tree("plans")
    for tick, agent, plan in plans(rows):
        goal = tree.add(printable(f"{agent}, tick {tick}: {plan['goal']}"))
        for step in plan["steps"]:
            goal.add(printable(step))
    if tree.children:
        screen.print(tree)
    for end in () if whole else ends:
        screen.rule(printable(ended(end)))
        screen.print(printable(end["summary"], lines=True))
    for row in rows if whole else ():
        for title, text in parts(row):
            screen.rule(printable(f"{row['agent_id']}, tick {row['tick']}: {title}"))
            screen.print(printable(text, lines=True))


def ended(end: Mapping[str, Any]) -> str:
    """How an episode ended for an agent."""
    numbers = ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in end["metrics"].items()
    )
    return f"{end['agent_id']}: the episode was {'won' if end['success'] else 'not won'}: {numbers}"


def plans(rows: Iterable[Mapping[str, Any]]) -> list[tuple[int, str, dict[str, Any]]]:
    """(tick, agent, plan) of each new plan."""
    found: list[tuple[int, str, dict[str, Any]]] = []
    last: dict[str, Any] = {}
    for row in rows:
        plan = row.get("trace", {}).get("plan")
        if plan and last.get(row["agent_id"]) != plan:
            last[row["agent_id"]] = plan
            found.append((row["tick"], row["agent_id"], plan))
    return found


def parts(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(title, text) of all that is known of a decision."""
    trace = row.get("trace", {})
    shown = {"observation": row["observation"], **{name: value for name, value in trace.items() if value}}
    return [(name, value if isinstance(value, str) else "\n".join(_lines(value))) for name, value in shown.items()]


def _lines(value: Any) -> Iterable[str]:
    """A line for each part."""
    if isinstance(value, dict):
        return (f"{json.dumps(name)}: {json.dumps(part, ensure_ascii=False)}" for name, part in value.items())
    return (json.dumps(part, ensure_ascii=False) for part in (value if isinstance(value, list) else [value]))


def page(title: str, rows: list[dict[str, Any]], ends: list[dict[str, Any]]) -> str:
    """One HTML file: decisions that open, the plans, and how episodes ended."""
    out = [
        f"{_HEAD}<title>{html.escape(title)}</title><style>{_STYLE}</style>",
        f"<h1>{html.escape(title)}: {len(rows)} decisions</h1>",
    ]
    if found := plans(rows):
        out.append("<h2>Plans</h2><ul>")
        for tick, agent, plan in found:
            steps = "".join(f"<li>{html.escape(step)}" for step in plan["steps"])
            out.append(f"<li>{html.escape(agent)}, tick {tick}: {html.escape(plan['goal'])}<ol>{steps}</ol>")
        out.append("</ul>")
    for end in ends:
        out.append(f"<h2>{html.escape(ended(end))}</h2><pre>{html.escape(end['summary'])}</pre>")
    out.append("<h2>Decisions</h2>")
    for row in rows:
        call = f"{row['tick']} {row['agent_id']}: {row['tool']}({shorten(json.dumps(row['params']), 100)})"
        state = ""
        if row["code"]:
            state = " class=bad"
        why = html.escape(f"{row['code'] or ''} {row['reasoning']}".strip())
        out.append(f"<details><summary{state}>{html.escape(call)} <i>{why}</i></summary>")
        out += [f"<h4>{html.escape(name)}</h4><pre>{html.escape(text)}</pre>" for name, text in parts(row)]
        out.append("</details>")
    return "\n".join(out)
