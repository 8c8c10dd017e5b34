"""UnknownFields: says once which fields of an engine's rows nobody reads, and what may have been meant. No I/O.

The decoders skip fields that they do not know, as docs/protocol.md, section 2 wants it: a mistyped one (`TRUNCATED=1`)
is lost without a word. Most of what an engine ever sends stands in its first rows, and in those that end an episode.
"""

from __future__ import annotations

import difflib
import re

from ue_rl.protocol.spec import EnvSpec, EnvType
from ue_rl.system.errors import printable, shorten

KNOWN = frozenset({"OBS", "REW", "DONE", "TRUNC", "ENV", "AGENT", "MASK", "INFO", "SEQ"})
_MEANT = {"TERMINATED": "DONE", "TERMINAL": "DONE", "TIMEOUT": "TRUNC"}
_FIELD = re.compile(rb"(?:^|[;|])[ \t]*([A-Za-z_][A-Za-z0-9_.\-]{0,99})[ \t]*=")
_LINES = 8  # looked through from the start
_ENDS = 4  # looked through where an episode ends
_PATIENCE = 5_000  # lines until it is given up that an episode ends
_LOOKED = 65_536  # bytes of a line


class UnknownFields:
    """Looks through some of a session's lines.

    Args:
        spec: of the session.

    Attributes:
        watching: there are lines to look through; False: `look` need not be called any more.
    """

    def __init__(self, spec: EnvSpec) -> None:
        self.watching = spec.env_type is not EnvType.RLBASE  # whose rows have no fields
        self._first = _LINES
        self._ends = _ENDS
        self._left = _PATIENCE
        self._said: set[str] = set()

    def look(self, data: bytes | bytearray, start: int, end: int, ended: bool) -> list[str]:
        """Sentences about the unknown fields of the line data[start:end] that nothing was said about yet.

        Args:
            ended: an episode ends in it.
        """
        self._left -= 1
        self.watching = self._left > 0 and (self._first > 0 or self._ends > 0)
        if not (self._first > 0 or (ended and self._ends > 0)):
            return []
        self._first -= 1
        self._ends -= ended
        line = bytes(data[start : min(end, start + _LOOKED)])
        sentences = []
        for word in {found.decode("ascii").upper() for found in _FIELD.findall(line)} - KNOWN - self._said:
            self._said.add(word)
            if word in _MEANT:
                near = [_MEANT[word]]
            else:
                near = difflib.get_close_matches(word[:40], sorted(KNOWN), 1)
            meant = ""
            if near:
                meant = f": did you mean {near[0]}?"
            sentences.append(
                printable(f"the engine's rows have an unknown field, which is ignored: {shorten(word)}{meant}")
            )
        return sorted(sentences)
