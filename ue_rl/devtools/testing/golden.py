"""The golden vectors of the protocol as dataclasses: for the project's own tests and for authors of engines.

docs/protocol-vectors.json holds them: a list of objects, one to a line; infinite bounds are the texts "inf" and "-inf".
A vector names a handshake (`config`) and says what it means (`spec`), what one line under it means (`request` with
`asks`, `reply` with `states`, `call` with `asked`, `answer` with `answered`, `notice` with `means`), or which error it
must give (`reject`). An unknown or a missing key is an error, so that no vector goes unchecked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

__all__ = ["GoldenVector", "RequestRow", "StateRow", "find_protocol", "load_golden"]


@dataclass(frozen=True)
class RequestRow:
    """One row of a request: `reset` (of an env, with the parameters `set`), or an `action` (with agents, of one)."""

    env: int
    action: tuple[float, ...] | None = None
    reset: bool = False
    seed: int | None = None
    options: Mapping[str, Any] | None = None
    agent: int | None = None
    set: Mapping[str, float] | None = None


@dataclass(frozen=True)
class StateRow:
    """One row of a reply; `mask`: its flags, as text."""

    env: int
    obs: tuple[float, ...]
    reward: float
    done: int
    truncated: int = 0
    info: Mapping[str, Any] | None = None
    agent: int | None = None
    mask: str | None = None


@dataclass(frozen=True)
class GoldenVector:
    """One vector.

    Attributes:
        name: unique within the file.
        config: the handshake line, without its newline; a notice needs none.
        spec: what the handshake means, by the names of EnvSpec; `channel: null` means that it does not say.
            `action_kind`, `low`, `high`, `counts`, `starts` are the action space's; `act_space` and `obs_space` are the
            text of a tree; `parameters` are [name, value, low, high]; `groups` have a name, a count and what their
            agents' spec says.
        request, reply: one line, without its line feed.
        asks, states: what the line means, in the line's order.
        after: "step", every row is awaited; "reset", agents that may have come, and none that must.
        call, answer: one line each, the second the answer to the first.
        asked: by the names of ue_rl.protocol.text.calls.Call. answered: one of `values`, `ok`, `picture` (rows of
        pixels),
            `rewards`, `refused` (the sentence).
        notice: one line. means: its `kind`, BUSY or ERROR, and its `fields` or its `text`.
        seq: the number behind the rows of a request, a call or its answer (FEATURES=SEQ); of a reply, the number of the
            request that it must answer. None: lines have none.
        canonical: a writer gives exactly this line for this meaning.
        reject: the name of the error in ue_rl.system.errors that the line (or the handshake) must give.
        line_number: where it begins in the file.
    """

    name: str
    config: str = ""
    spec: Mapping[str, Any] | None = None
    request: str | None = None
    asks: tuple[RequestRow, ...] = ()
    reply: str | None = None
    states: tuple[StateRow, ...] = ()
    after: str = "step"
    call: str | None = None
    asked: Mapping[str, Any] | None = None
    answer: str | None = None
    answered: Mapping[str, Any] | None = None
    notice: str | None = None
    means: Mapping[str, Any] | None = None
    seq: int | None = None
    canonical: bool = False
    reject: str | None = None
    line_number: int = 0

    @property
    def kind(self) -> str:
        """ "request", "reply", "call", "notice" or "handshake"."""
        kinds = ("request", "reply", "call", "notice")
        return next((kind for kind in kinds if getattr(self, kind) is not None), "handshake")


def find_protocol(start: str | Path) -> Path:
    """docs/protocol-vectors.json, sought in `start` and upwards.

    Raises:
        FileNotFoundError: there is none.
    """
    start = Path(start).resolve()
    for folder in (start, *start.parents):
        candidate = folder / "docs" / "protocol-vectors.json"
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"no docs/protocol-vectors.json in {start} or above it")


def load_golden(path: str | Path) -> list[GoldenVector]:
    """The vectors of such a file, in its order.

    Raises:
        ValueError: a vector that is incomplete or ambiguous, or text that is no list of JSON objects.
    """
    vectors: list[GoldenVector] = []
    for line_number, line in enumerate(_lines(path), 2):
        try:
            vectors.append(_vector(json.loads(line), line_number))
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"{path}, line {line_number}: not a golden vector: {error}") from error
    names = [vector.name for vector in vectors]
    if len(set(names)) != len(names):
        raise ValueError(f"{path}: names come twice: {sorted(n for n in names if names.count(n) > 1)}")
    return vectors


def _lines(path: str | Path) -> list[str]:
    """The text of each vector: a line each, between a line "[" and a line "]"."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    if len(lines) < 2 or (lines[0], lines[-1]) != ("[", "]"):
        raise ValueError(f"{path}: not a file of golden vectors: it begins with a line [ and ends with a line ]")
    return [line.removesuffix(",") for line in lines[1:-1]]


def _infinite(value: Any) -> Any:
    """`value` with the numbers that JSON has not."""
    if isinstance(value, list):
        return [_infinite(item) for item in value]
    if value in ("inf", "-inf"):
        return float(value)
    return value


def _vector(block: Any, line_number: int) -> GoldenVector:
    if not isinstance(block, dict):
        raise TypeError("the vector is not an object")
    allowed = {field.name for field in fields(GoldenVector)} - {"line_number"}
    if unknown := set(block) - allowed:
        raise ValueError(f"unknown keys {sorted(unknown)}")
    spec = None
    if "spec" in block:
        spec = {key: _infinite(value) for key, value in block["spec"].items()}
    vector = GoldenVector(
        **{
            **block,
            "spec": spec,
            "asks": tuple(_ask(ask) for ask in block.get("asks", ())),
            "states": tuple(_state(state) for state in block.get("states", ())),
            "line_number": line_number,
        }
    )
    if sum(line is not None for line in (vector.request, vector.reply, vector.call, vector.notice)) > 1:
        raise ValueError("a vector has a request or a reply (or a call, or a notice), not both")
    if not vector.config and vector.notice is None:
        raise ValueError("a vector names its handshake")
    meanings = {
        "handshake": vector.spec,
        "request": vector.asks,
        "reply": vector.states,
        "call": vector.asked,
        "notice": vector.means,
    }
    if bool(meanings[vector.kind]) == bool(vector.reject):
        raise ValueError("a vector says what its line means, or how it is rejected")
    if (vector.answer is None) != (vector.answered is None) or (vector.answer is not None and vector.kind != "call"):
        raise ValueError("an answer is that to a call, and says what it means")
    if vector.after not in ("step", "reset"):
        raise ValueError("after is step or reset")
    return vector


def _ask(row: Mapping[str, Any]) -> RequestRow:
    action = row.get("action")
    ask = RequestRow(**{**row, "action": None if action is None else tuple(float(x) for x in action)})
    if (ask.action is None) != ask.reset:
        raise ValueError(f"an ask has an action or is a reset: {dict(row)}")
    return ask


def _state(row: Mapping[str, Any]) -> StateRow:
    return StateRow(**{**row, "obs": tuple(float(x) for x in row["obs"]), "reward": float(row["reward"])})
