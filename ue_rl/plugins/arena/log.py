"""RunLog: every decision of a run with what led to it, as JSON lines in a folder; `ue-rl arena inspect` shows it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ue_rl.plugins.arena.memory.lines import JsonLines
from ue_rl.plugins.arena.seats import Decision
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.json_values import readable

SHOWN = 100  # of each kind, kept for GET /debug
DECISIONS = "decisions.jsonl"
SUMMARIES = "summaries.jsonl"
_OF_ROW = {"agent_id", "tick", "observation", "tool", "params", "reasoning", "code", "seconds"}
_log = logging.getLogger("ue_rl.plugins.arena")


class RunLog:
    """What was seen and decided: the last of it in memory, all of it in a folder where one is given.

    A disk that is full ends the log, which is said once, and not the game.

    Args:
        folder: DECISIONS and, of each episode that ended, SUMMARIES are written into it; None: nothing is.
    """

    def __init__(self, folder: Path | str | None = None) -> None:
        if folder is None:
            self.folder = None
        else:
            self.folder = Path(folder)
        self.recent: deque[Decision] = deque(maxlen=SHOWN)
        self._files: dict[str, JsonLines] = {}
        if self.folder is not None:
            self._files = {name: JsonLines(self.folder / name) for name in (DECISIONS, SUMMARIES)}

    def add(self, outcome: Decision) -> None:
        """Writes one decision."""
        self.recent.append(outcome)
        if self._files:
            self._write(DECISIONS, row_of(outcome))

    def add_episode(self, agent_id: str, success: bool, metrics: Mapping[str, Any], summary: str) -> None:
        """Writes how an episode ended for an agent, and what its memory says of it."""
        if self._files:
            row = {"agent_id": agent_id, "success": success, "metrics": readable(metrics), "summary": summary}
            self._write(SUMMARIES, row)

    def _write(self, name: str, row: Mapping[str, Any]) -> None:
        try:
            self._files[name].append(row)
        except OSError as error:
            self._files = {}
            _log.warning("the log ends here, the game goes on: %s", error)

    def changes(self) -> list[dict[str, Any]]:
        """Of the recent observations: which fields changed since the agent's one before."""
        last: dict[str, dict[str, Any]] = {}
        found = []
        for outcome in list(self.recent):
            seen = readable(outcome.observation.model_dump())
            before = last.get(outcome.agent_id)
            last[outcome.agent_id] = seen
            if before is not None:
                changed = {name: value for name, value in seen.items() if before.get(name) != value}
                found.append({"agent_id": outcome.agent_id, "tick": outcome.observation.tick, "changes": changed})
        return found


def row_of(outcome: Decision) -> dict[str, Any]:
    """One decision as JSON."""
    return {
        "agent_id": outcome.agent_id,
        "tick": outcome.observation.tick,
        "observation": readable(outcome.observation.model_dump()),
        "tool": outcome.decision.tool,
        "params": outcome.decision.params,
        "reasoning": outcome.decision.reasoning,
        "code": outcome.code,
        "seconds": round(outcome.seconds, 6),
        **({"trace": dict(outcome.trace)} if outcome.trace else {}),
    }


def summaries_in(folder: Path) -> Iterator[dict[str, Any]]:
    """How the episodes of a run's folder ended."""
    rows = JsonLines(folder / SUMMARIES).read()
    return (row for row in rows if {"agent_id", "success", "metrics", "summary"} <= set(row))


def decisions_in(folder: Path) -> Iterator[dict[str, Any]]:
    """The decisions of a run's folder, in their order.

    Raises:
        ConfigurationError: the folder has none.
    """
    if not (folder / DECISIONS).is_file():
        raise ConfigurationError(
            "no log of decisions is there",
            field="run",
            expected=DECISIONS,
            got=str(folder),
            cure="write one: --out FOLDER",
        )
    return (row for row in JsonLines(folder / DECISIONS).read() if set(row) >= _OF_ROW)
