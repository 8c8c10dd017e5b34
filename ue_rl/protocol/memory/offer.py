"""The upgrade from text to shared memory: the offer in the handshake and the three lines that answer it. Text only.

    engine   CONFIG:...;SHM=<name>:<token>              name percent-encoded, token 32 hexadecimal digits
    trainer  SHM=ACCEPT;PROOF=<32 hexadecimal digits>   the proof is in the segment: it shows that the trainer mapped it
    engine   SHM=READY    or    SHM=REFUSED;WHY=<percent-encoded>

After READY the socket carries single bytes that wake a sleeper, and its end is the other side's end. A trainer that
does not take the offer goes on with text and says nothing. Definition: docs/shared-memory.md, section 3.
"""

from __future__ import annotations

import hmac
from urllib.parse import quote, unquote

from ue_rl.system.errors import HandshakeError

READY = b"SHM=READY\n"


def offer_text(name: str, token: bytes) -> str:
    """The value of SHM= in the handshake."""
    return f"{quote(name, safe='')}:{token.hex()}"


def parse_offer(text: str) -> tuple[str, bytes]:
    """(name, token) of an offer; raises HandshakeError: not an offer."""
    name, colon, digits = text.partition(":")
    token = _hex(digits.partition(":")[0])
    if not colon or not name or token is None:
        raise HandshakeError("malformed offer of shared memory", field="SHM", expected="name:32 hex digits", got=text)
    return unquote(name), token


def accept_line(proof: bytes) -> bytes:
    """The trainer's answer."""
    return f"SHM=ACCEPT;PROOF={proof.hex()}\n".encode()


def proves(line: bytes | bytearray | memoryview, proof: bytes) -> bool:
    """Does an accepting line carry the segment's proof?"""
    given = _hex(bytes(line).strip().decode("ascii", "replace").partition("PROOF=")[2])
    return given is not None and hmac.compare_digest(given, proof)


def refuse_line(why: str) -> bytes:
    """The engine's answer where it cannot switch to shared memory."""
    return f"SHM=REFUSED;WHY={quote(why, safe='')}\n".encode()


def refusal(line: bytes) -> str | None:
    """Why the engine refused; None where it is ready; raises HandshakeError: neither READY nor REFUSED."""
    text = line.strip().decode("ascii", "replace")
    if text.upper() == "SHM=READY":
        return None
    if text.upper().startswith("SHM=REFUSED"):
        return unquote(text.partition("WHY=")[2]) or "no reason given"
    raise HandshakeError("malformed answer to SHM=ACCEPT", field="SHM", expected="SHM=READY or SHM=REFUSED", got=line)


def _hex(digits: str) -> bytes | None:
    try:
        if len(digits) == 32:
            return bytes.fromhex(digits)
        return None
    except ValueError:
        return None
