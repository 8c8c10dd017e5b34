"""The golden vectors of docs/protocol.md as dataclasses: for the project's own tests and for authors of
engines.

A vector is a fenced block marked `yaml golden`. It names a handshake (`config`) and says what it means
(`spec`), what one line under it means (`request` with `asks`, `reply` with `states`), or which error it
must give (`reject`). An unknown or a missing key is an error, so that no
vector goes unchecked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

__all__ = ["Ask", "GoldenVector", "StateRow", "find_protocol", "load_golden"]

_BLOCK = re.compile(r"^```yaml golden[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Ask:
    """One row of a request: `reset`, or an `action`."""

    env: int
    action: tuple[float, ...] | None = None
    reset: bool = False
    seed: int | None = None
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class StateRow:
    """One row of a reply."""

    env: int
    obs: tuple[float, ...]
    reward: float
    done: int
    truncated: int = 0
    info: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class GoldenVector:
    """One block.

    Attributes:
        name: unique within the file.
        config: the handshake line, without its newline.
        spec: what the handshake means, by the names of EnvSpec; `channel: null` means that it does not say.
            `action_kind`, `low`, `high`, `counts` are the action space's.
        request, reply: one line, without its line feed.
        asks, states: what the line means, in the line's order.
        canonical: a writer gives exactly this line for this meaning.
        reject: the name of the error in ue_rl.errors that the line (or the handshake) must give.
        line_number: where the block begins in the file.
    """

    name: str
    config: str
    spec: Mapping[str, Any] | None = None
    request: str | None = None
    asks: tuple[Ask, ...] = ()
    reply: str | None = None
    states: tuple[StateRow, ...] = ()
    canonical: bool = False
    reject: str | None = None
    line_number: int = 0

    @property
    def kind(self) -> str:
        """ "handshake", "request" or "reply"."""
        if self.request is not None:
            return "request"
        return "handshake" if self.reply is None else "reply"


def find_protocol(start: str | Path) -> Path:
    """docs/protocol.md, sought in `start` and upwards.

    Raises:
        FileNotFoundError: there is none.
    """
    start = Path(start).resolve()
    for folder in (start, *start.parents):
        candidate = folder / "docs" / "protocol.md"
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"no docs/protocol.md in {start} or above it")


def load_golden(path: str | Path) -> list[GoldenVector]:
    """The vectors of a protocol file, in its order. Needs PyYAML.

    Raises:
        ValueError: a block that is incomplete or ambiguous.
    """
    import yaml

    text = Path(path).read_text(encoding="utf-8")
    vectors: list[GoldenVector] = []
    for block in _BLOCK.finditer(text):
        line_number = text.count("\n", 0, block.start()) + 1
        try:
            vectors.append(_vector(yaml.safe_load(block.group(1)), line_number))
        except (TypeError, KeyError, ValueError, yaml.YAMLError) as error:
            raise ValueError(f"{path}, line {line_number}: not a golden vector: {error}") from error
    names = [vector.name for vector in vectors]
    if len(set(names)) != len(names):
        raise ValueError(f"{path}: names come twice: {sorted(n for n in names if names.count(n) > 1)}")
    return vectors


def _vector(block: Any, line_number: int) -> GoldenVector:
    if not isinstance(block, dict):
        raise TypeError("the block is not a mapping")
    allowed = {field.name for field in fields(GoldenVector)} - {"line_number"}
    if unknown := set(block) - allowed:
        raise ValueError(f"unknown keys {sorted(unknown)}")
    vector = GoldenVector(
        **{
            **block,
            "asks": tuple(_ask(ask) for ask in block.get("asks", ())),
            "states": tuple(_state(state) for state in block.get("states", ())),
            "line_number": line_number,
        }
    )
    if vector.request is not None and vector.reply is not None:
        raise ValueError("a vector has a request or a reply, not both")
    meaning = {"handshake": vector.spec, "request": vector.asks, "reply": vector.states}[vector.kind]
    if bool(meaning) == bool(vector.reject):
        raise ValueError("a vector says what its line means, or how it is rejected")
    return vector


def _ask(row: Mapping[str, Any]) -> Ask:
    action = row.get("action")
    ask = Ask(**{**row, "action": None if action is None else tuple(float(x) for x in action)})
    if (ask.action is None) != ask.reset:
        raise ValueError(f"an ask has an action or is a reset: {dict(row)}")
    return ask


def _state(row: Mapping[str, Any]) -> StateRow:
    return StateRow(**{**row, "obs": tuple(float(x) for x in row["obs"]), "reward": float(row["reward"])})
