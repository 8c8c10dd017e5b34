"""Notices: lines that an engine sends instead of what is awaited. Source: docs/protocol.md, section 10. No I/O.

BUSY;SINCE=12.5;PEER=10.0.0.7:51234   somebody else is served; a handshake may follow on the same connection later
ERROR=out%20of%20memory               the engine ends the session, and says why
"""

from __future__ import annotations

import math
import re
from urllib.parse import quote, unquote

from ue_rl.system.errors import EngineDisconnected

MAX_TEXT = 330  # bytes of an ERROR's sentence: percent-encoded, they fit the shortest line that a session allows
MOST_READ = 4096  # bytes of a sentence as it came: lines may be very long
_NOTICE = re.compile(rb"[ \t\r]*(?:(BUSY)[ \t\r]*(?:;(.*))?|ERROR[ \t\r]*=(.*))", re.IGNORECASE | re.DOTALL)
_PLAIN = re.compile(r"[^;|=\s]{1,200}")


def busy_line(since: float | None = None, peer: str | None = None) -> bytes:
    """The line, with its line ending, for one who has to wait.

    Args:
        since: for how many seconds the other one has been served.
        peer: the other one's address; left out where it cannot stand in a field.
    """
    line = "BUSY"
    if since is not None and math.isfinite(since):
        line += f";SINCE={max(since, 0.0):.1f}"
    if peer and peer.isascii() and _PLAIN.fullmatch(peer):
        line += f";PEER={peer}"
    return f"{line}\n".encode()


def error_line(text: str) -> bytes:
    """The line, with its line ending, that ends a session; a sentence of more than MAX_TEXT bytes is cut."""
    raw = text.encode("utf-8", "replace")[:MAX_TEXT].decode("utf-8", "ignore")
    return f"ERROR={quote(raw, safe='')}\n".encode()


def notice_of(line: bytes | bytearray | memoryview) -> tuple[str, str, dict[str, str]] | None:
    """("BUSY", "", fields) or ("ERROR", sentence, {}); None: the line is no notice.

    The fields of BUSY have upper-case names: SINCE, PEER, and whatever else came. It never raises.
    """
    found = _NOTICE.fullmatch(bytes(line).rstrip(b"\r\n"))
    if found is None:
        return None
    busy, more, text = found.groups()
    if busy is None:
        sentence = text.strip()[:MOST_READ].decode("ascii", "backslashreplace")
        return "ERROR", unquote(sentence, errors="replace"), {}
    fields: dict[str, str] = {}
    for part in (more or b"").decode("ascii", "backslashreplace").split(";"):
        key, equals, value = part.partition("=")
        if equals:
            fields.setdefault(key.strip().upper(), value.strip())
    return "BUSY", "", fields


def ended_by(line: bytes | bytearray | memoryview, env_id: int | None = None) -> EngineDisconnected | None:
    """The error for an ERROR line, with the engine's sentence; None: the line is none."""
    if bytes(line[:64]).lstrip()[:5].upper() != b"ERROR":  # this is asked of lines of any length
        return None
    notice = notice_of(line)
    if notice is None:
        return None
    return ended(notice[1], env_id)


def ended(sentence: str, env_id: int | None = None) -> EngineDisconnected:
    """The error for an engine that says why it has ended the session; one that quotes this error adds nothing to it."""
    told = "the engine ended the session: "
    why = sentence.removeprefix(told)
    if not why:
        why = "it does not say why"
    return EngineDisconnected(
        told + why,
        env_id=env_id,
        field="ERROR",
        got="an ERROR line",
        cure="the engine's log may say more",
    )
