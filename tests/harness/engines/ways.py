"""Way: how a mistake is made, as a change of a RightEngine's hooks. `way`, `row` and the others add one to WAYS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tests.harness.engines.right import Answer, RightEngine

Change = Callable[[RightEngine], None]
Edit = Callable[[str, Answer], str]


@dataclass(frozen=True)
class Way:
    """One way of making a mistake.

    Args:
        mistake: as ue_rl.devtools.check names it; "": it is none, only unusual.
        way: how it is made. says: the same for people.
        change: of a new engine.
        needs: options of the engine without which the way means nothing.
        certain: whether a check can be sure, so that it is a FAIL; else a WARN.
        also: other names that are as right.
    """

    mistake: str
    way: str
    says: str
    change: Change
    needs: dict[str, Any] = field(default_factory=dict)
    certain: bool = True
    also: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.mistake or 'right'}:{self.way}"


WAYS: list[Way] = []  # of all modules beside this one, in the order in which mistakes.py imports them


def way(
    mistake: str, name: str, says: str, *, certain: bool = True, also: tuple[str, ...] = (), **needs: Any
) -> Callable[[Change], Change]:
    """A decorator of a change."""

    def add(change: Change) -> Change:
        WAYS.append(Way(mistake, name, says, change, needs, certain, also))
        return change

    return add


def instead(hook: str, mistake: str, name: str, says: str, **more: Any) -> Callable[[Any], Any]:
    """A decorator of what takes a hook's place: it gets the engine, the hook as it was, and the hook's arguments."""

    def add(new: Any) -> Any:
        def plant(engine: RightEngine) -> None:
            setattr(engine, hook, partial(new, engine, getattr(engine, hook)))

        way(mistake, name, says, **more)(plant)
        return new

    return add


def row(mistake: str, name: str, says: str, edit: Edit, **more: Any) -> None:
    """Edits the text of a row."""
    instead("write", mistake, name, says, **more)(lambda engine, write, answer: edit(write(answer), answer))


def number(mistake: str, name: str, says: str, edit: Callable[[Answer], dict[str, Any]], **more: Any) -> None:
    """Edits an answer before it is written: `edit` gives the fields that are others."""

    def edited(engine: RightEngine, observe: Any, ask: Any) -> Answer:
        answer = observe(ask)
        return replace(answer, **edit(answer))

    instead("observe", mistake, name, says, **more)(edited)


def line(mistake: str, name: str, says: str, edit: Callable[[bytes], bytes], **more: Any) -> None:
    """Edits all that is sent but the handshake."""
    instead("join", mistake, name, says, **more)(lambda engine, join, rows: edit(join(rows)))


def config(mistake: str, name: str, says: str, edit: Callable[[str], str], **more: Any) -> None:
    """Edits the handshake."""

    def plant(engine: RightEngine) -> None:
        engine.config = edit(engine.config)

    way(mistake, name, says, **more)(plant)


def sometimes(edit: Edit, when: Callable[[Answer], bool]) -> Edit:
    """An edit of some rows only."""
    return lambda text, answer: edit(text, answer) if when(answer) else text


def numbers_of(text: str) -> str:
    """The observation's numbers in a row's text."""
    return text[4 : text.index(";REW")]


def with_numbers(text: str, numbers: str) -> str:
    """A row's text with others."""
    return f"OBS={numbers}{text[text.index(';REW') :]}"


def field_of(text: str, key: str) -> str:
    """A field of a row's text, such as "REW=0.5"."""
    return next(part for part in text.split(";") if part.startswith(f"{key}="))
