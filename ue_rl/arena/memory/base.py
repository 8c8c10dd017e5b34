"""Memory: what an agent keeps of what it has seen. What each kind does with it is theirs; the interface is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from ue_rl.arena.memory.lines import JsonLines


@dataclass(frozen=True)
class Entry:
    """One thing remembered.

    Attributes:
        text: for minds that read; what a query is compared with.
        tick: of the game. priority: the larger, the longer it is kept where that decides.
        kind: "observation", "decision", "episode" or whatever the writer calls it.
    """

    text: str
    tick: int = 0
    priority: float = 0.0
    kind: str = "observation"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Memory(Protocol):
    """What a behaviour and the server need of a memory."""

    def store(self, entry: Entry | str, /) -> None:
        """Keeps it; forgets another where the memory is full."""
        ...

    def retrieve(self, query: str | None = None, limit: int | None = None) -> list[Entry]:
        """At most `limit` entries: the newest first; with a query those that fit it best first."""
        ...

    def summarize(self) -> str:
        """All of it in a few lines."""
        ...

    def dump(self) -> list[dict[str, Any]]:
        """Every entry, oldest first."""
        ...

    def clear(self) -> None:
        """Forgets everything, on the disk too."""
        ...


def entry_of(value: Entry | str) -> Entry:
    """A text becomes an entry."""
    return value if isinstance(value, Entry) else Entry(str(value))


def by_words(entries: Iterable[Entry], query: str) -> list[Entry]:
    """Those that share most words with the query first, newer ones before older of the same; `entries` oldest first."""
    wanted = set(query.lower().split())
    return sorted(reversed(list(entries)), key=lambda entry: -len(wanted & set(entry.text.lower().split())))


def load(path: Path | str | None, take: Callable[[Entry], object]) -> JsonLines | None:
    """The file of a memory, if it has one, after `take` got each entry that is in it."""
    if path is None:
        return None
    lines = JsonLines(Path(path))
    for row in lines.read():
        take(Entry(**{name: row[name] for name in Entry.__dataclass_fields__ if name in row}))
    return lines
