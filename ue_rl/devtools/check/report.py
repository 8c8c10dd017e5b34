"""What the checks found: Finding by Finding, and as a CheckReport with an exit code. No I/O."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ue_rl.devtools.check.mistakes import Mistake


class Verdict(Enum):
    """Of one check."""

    PASS = "PASS"
    WARN = "WARN"  # allowed, but it costs something, or a known limit of the deployed plugin
    FAIL = "FAIL"
    SKIP = "SKIP"


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Args:
        check: the check's name, such as "reset".
        carrier: what it ran over, such as "text, shared channel"; "" before there is one.
        outcome: of the check. A check may have several findings that are no PASS.
        text: one sentence.
        mistake: what is wrong; None for PASS and SKIP.
        env_id: the env concerned.
        seen: the bytes, or the numbers, that it was seen in; shortened.
    """

    check: str
    carrier: str
    outcome: Verdict
    text: str
    mistake: Mistake | None = None
    env_id: int | None = None
    seen: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON; keys that say nothing are left out."""
        said: dict[str, Any] = {
            "check": self.check, "carrier": self.carrier, "outcome": self.outcome.value, "text": self.text,
            "env_id": self.env_id, "seen": self.seen,
        }  # fmt: skip
        if self.mistake is not None:
            said |= {"mistake": self.mistake.name, "section": self.mistake.section, "cure": self.mistake.cure}
        return {key: value for key, value in said.items() if value not in ("", None)}


@dataclass
class CheckReport:
    """All findings of a run.

    Attributes:
        address: of the engine. handshake: the CONFIG line as it came, "" where none came.
        findings: in the order in which the checks ran.
        speed: carrier -> name -> number, see ue_rl/devtools/check/checks/timing.py.
        seconds: that the run took.
    """

    address: str
    handshake: str = ""
    findings: list[Finding] = field(default_factory=list)
    speed: dict[str, dict[str, float]] = field(default_factory=dict)
    seconds: float = 0.0

    def count(self, outcome: Verdict) -> int:
        """How many findings have this outcome."""
        return Counter(finding.outcome for finding in self.findings)[outcome]

    @property
    def mistakes(self) -> list[str]:
        """The names of what is wrong, FAIL before WARN, each once."""
        found = sorted((f for f in self.findings if f.mistake is not None), key=lambda f: f.outcome is not Verdict.FAIL)
        return list(dict.fromkeys(f.mistake.name for f in found if f.mistake is not None))

    @property
    def exit_code(self) -> int:
        """0: no FAIL; 1: there is one."""
        return int(self.count(Verdict.FAIL) > 0)

    @property
    def summary(self) -> str:
        """The last line."""
        counts = ", ".join(f"{self.count(outcome)} {outcome.value}" for outcome in Verdict)
        names = ""
        if self.mistakes:
            names = f": {', '.join(self.mistakes)}"
        return f"{counts}{names}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "address": self.address,
            "handshake": self.handshake,
            "exit_code": self.exit_code,
            "mistakes": self.mistakes,
            "findings": [finding.as_dict() for finding in self.findings],
            "speed": self.speed,
            "seconds": round(self.seconds, 3),
            "summary": self.summary,
        }

    def __str__(self) -> str:
        lines = [f"{f.outcome.value} {f.check}: {f.text}" for f in self.findings if f.outcome is not Verdict.PASS]
        return "\n".join([*lines, self.summary])
