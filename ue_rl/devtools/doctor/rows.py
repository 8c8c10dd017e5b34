"""What `ue-rl doctor` can name, a row each with its cure. A name is a promise to scripts: it stays what it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class DoctorVerdict(Enum):
    """Of one check."""

    OK = "OK"
    WARN = "WARN"  # it works, but costs something, or will fail where more is asked of it
    FAIL = "FAIL"


# fmt: off
FAULTS: dict[str, str] = {
    # this installation
    "wrong-version": "Install what ue_rl was made for: pip install -c constraints.txt 'ue_rl[all]'.",
    "no-kernels": "Reinstall where a C compiler is present: pip install --force-reinstall --no-deps 'ue_rl'.",
    "kernels-off": "Unset UE_RL_PURE: it turns the compiled modules off.",
    # this machine
    "shm-missing": "Mount it: mount -t tmpfs tmpfs /dev/shm. Without it engines and trainers talk over TCP.",
    "shm-denied": "Make it writable: chmod 1777 /dev/shm.",
    "shm-full": "Delete what dead programs have left there (ls -l /dev/shm), or enlarge it (docker --shm-size 1g).",
    # an engine
    "not-listening": "Start the game first (Play), and compare the port. An engine listens; the trainer connects.",
    "firewall": "Nothing came back: let the firewalls on both machines pass this port, and compare the address.",
    "unknown-host": "Compare the name with the machine's, or give its address in numbers.",
    "not-let-in": "It asks for a token (tcp://HOST:PORT?token-file=FILE), or for TLS (tls://HOST:PORT?ca=FILE).",
    "busy": "Close the other trainer: an engine serves one at a time.",
    "other-wiring": "Leave channel= out of the URL: the engine serves another one. docs/protocol.md, section 4.",
    "no-handshake": "Another program may listen there. Otherwise the engine's log says why it is silent.",
    "wrong-handshake": "ue-rl check URL says what is wrong with the engine's side, and what to do.",
    "no-answer": "Is the game paused? ue-rl check URL says more.",
}
# fmt: on


@dataclass(frozen=True)
class DoctorRow:
    """What one check found.

    Args:
        check: its name. outcome, text: for people. fault: a key of FAULTS; "" where it is OK.
    """

    check: str
    outcome: DoctorVerdict
    text: str
    fault: str = ""

    @property
    def cure(self) -> str:
        """What to do; "" where it is OK."""
        return FAULTS.get(self.fault, "")

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        said = {"check": self.check, "outcome": self.outcome.value, "text": self.text}
        hints = {}
        if self.fault:
            hints = {"fault": self.fault, "cure": self.cure}
        return said | hints


def ok(check: str, text: str) -> DoctorRow:
    """Nothing to do."""
    return DoctorRow(check, DoctorVerdict.OK, text)


def warn(check: str, fault: str, text: str) -> DoctorRow:
    """It works, but."""
    return DoctorRow(check, DoctorVerdict.WARN, text, fault)


def fail(check: str, fault: str, text: str) -> DoctorRow:
    """It does not work."""
    return DoctorRow(check, DoctorVerdict.FAIL, text, fault)
