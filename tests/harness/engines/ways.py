"""Way: how a mistake is made, as a change of a RightEngine's hooks; and short forms for what most ways change."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.harness.engines.right import Answer, Ask, Refused, RightEngine

__all__ = [
    "Change",
    "Way",
    "collector",
    "config",
    "field_of",
    "line",
    "made",
    "number",
    "numbers_of",
    "refuse_text",
    "row",
    "sometimes",
    "with_numbers",
]

Change = Callable[["RightEngine"], None]
Edit = Callable[[str, "Answer"], str]


@dataclass(frozen=True)
class Way:
    """One way of making a mistake.

    Args:
        mistake: as ue_rl.compliance names it; "": it is none, only unusual.
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
        """For a command line."""
        return f"{self.mistake or 'right'}:{self.way}"


def made(
    mistake: str, way: str, says: str, *, certain: bool = True, also: tuple[str, ...] = (), **needs: Any
) -> Callable[[Change], Way]:
    """A decorator that turns a change into a Way."""
    return lambda change: Way(mistake, way, says, change, needs, certain, also)


def collector(table: list[Way]) -> Callable[..., Callable[[Change], Change]]:
    """A decorator with the arguments of `made`, that adds each Way to the table."""

    def way(mistake: str, name: str, says: str, **more: Any) -> Callable[[Change], Change]:
        def add(change: Change) -> Change:
            table.append(made(mistake, name, says, **more)(change))
            return change

        return add

    return way


def row(mistake: str, way: str, says: str, edit: Edit, **more: Any) -> Way:
    """Edits the text of a row."""

    def change(engine: RightEngine) -> None:
        before = engine.write
        engine.write = lambda answer: edit(before(answer), answer)

    return made(mistake, way, says, **more)(change)


def number(mistake: str, way: str, says: str, edit: Callable[[Answer], dict[str, Any]], **more: Any) -> Way:
    """Edits an answer before it is written: `edit` gives the fields that are others."""

    def change(engine: RightEngine) -> None:
        before = engine.observe

        def edited(ask: Ask) -> Answer:
            answer = before(ask)
            return replace(answer, **edit(answer))

        engine.observe = edited

    return made(mistake, way, says, **more)(change)


def line(mistake: str, way: str, says: str, edit: Callable[[bytes], bytes], **more: Any) -> Way:
    """Edits all that is sent but the handshake."""

    def change(engine: RightEngine) -> None:
        before = engine.join
        engine.join = lambda rows: edit(before(rows))

    return made(mistake, way, says, **more)(change)


def config(mistake: str, way: str, says: str, edit: Callable[[str], str], **more: Any) -> Way:
    """Edits the handshake."""

    def change(engine: RightEngine) -> None:
        engine.config = edit(engine.config)

    return made(mistake, way, says, **more)(change)


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


def refuse_text(engine: RightEngine, pattern: bytes, says: str) -> None:
    """Lines in which `pattern` is found end the session."""
    parse = engine.parse

    def strictly(data: bytes, own: int | None) -> list[Ask]:
        if re.search(pattern, data):
            raise Refused(says)
        return parse(data, own)

    engine.parse = strictly
