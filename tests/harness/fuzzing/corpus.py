"""The lines that fuzzing begins with."""

from __future__ import annotations

from pathlib import Path

from ue_rl.devtools.testing.fault_cases import FAULT_CASES
from ue_rl.devtools.testing.golden import GoldenVector, load_golden


def corpus(vectors: Path) -> dict[str, list[tuple[bytes, bytes]]]:
    """(handshake, line) pairs by the kind of line: handshake, request, reply, call, answer, notice.

    Args:
        vectors: docs/protocol-vectors.json; the rows of ue_rl.devtools.testing.FAULT_CASES are added.
    """
    found: dict[str, list[tuple[bytes, bytes]]] = {}
    for vector in load_golden(vectors):
        for kind, line in _lines(vector):
            found.setdefault(kind, []).append((vector.config.encode(), line.encode()))
    plain = b"CONFIG:OBS=4;ACT=2;ENV_TYPE=MULTI;ENV_COUNT=3"
    for case in FAULT_CASES:
        script = case.script
        config = plain if script.handshake in (None, "auto") else str(script.handshake).encode()
        found["handshake"].append((config, config))
        found["reply"] += [(config, fault.text.encode()) for fault in script.faults if fault.text]
    return found


def _lines(vector: GoldenVector) -> list[tuple[str, str]]:
    given = (
        ("handshake", vector.config), ("request", vector.request), ("reply", vector.reply), ("call", vector.call),
        ("answer", vector.answer), ("notice", vector.notice),
    )  # fmt: skip
    return [(kind, line) for kind, line in given if line]
