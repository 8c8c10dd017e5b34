"""RunLog: every decision of a run with what led to it, as JSON lines in a folder; `ue-rl arena inspect` shows it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ue_rl.arena.memory.lines import JsonLines
from ue_rl.arena.seats import Outcome
from ue_rl.errors import ConfigurationError

SHOWN = 100  # of each kind, kept for GET /debug
DECISIONS = "decisions.jsonl"


class RunLog:
    """What was seen and decided: the last of it in memory, all of it in a folder where one is given.

    Args:
        folder: DECISIONS is written into it; None: nothing is.
    """

    def __init__(self, folder: Path | str | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self._lines = None if self.folder is None else JsonLines(self.folder / DECISIONS)
        self.recent: deque[Outcome] = deque(maxlen=SHOWN)

    def add(self, outcome: Outcome) -> None:
        """Writes one decision."""
        self.recent.append(outcome)
        if self._lines is not None:
            self._lines.append(row_of(outcome))

    def changes(self) -> list[dict[str, Any]]:
        """Of the recent observations: which fields changed since the agent's one before."""
        last: dict[str, dict[str, Any]] = {}
        found = []
        for outcome in list(self.recent):
            seen = outcome.observation.model_dump(mode="json")
            before, last[outcome.agent_id] = last.get(outcome.agent_id), seen
            if before is not None:
                changed = {name: value for name, value in seen.items() if before.get(name) != value}
                found.append({"agent_id": outcome.agent_id, "tick": outcome.observation.tick, "changes": changed})
        return found


def row_of(outcome: Outcome) -> dict[str, Any]:
    """One decision as JSON."""
    return {
        "agent_id": outcome.agent_id,
        "tick": outcome.observation.tick,
        "observation": outcome.observation.model_dump(mode="json"),
        "tool": outcome.decision.tool,
        "params": outcome.decision.params,
        "reasoning": outcome.decision.reasoning,
        "code": outcome.code,
        "seconds": round(outcome.seconds, 6),
        **({"trace": dict(outcome.trace)} if outcome.trace else {}),
    }


def decisions_in(folder: Path) -> Iterator[dict[str, Any]]:
    """The decisions of a run's folder, in their order.

    Raises:
        ConfigurationError: the folder has none.
    """
    if not (folder / DECISIONS).is_file():
        raise ConfigurationError("no log of decisions is there", field="run", expected=DECISIONS, got=str(folder),
                                 cure="write one: --out FOLDER")  # fmt: skip
    return JsonLines(folder / DECISIONS).read()
