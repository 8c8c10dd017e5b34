"""RLlink's framing: eight ASCII digits, the length of the body, then the body. No I/O.

Source: ray.rllib.env.external.rllink, the same in every version from 2.41 to 2.60. RLlib's writer does not look whether
eight digits are enough: a body of 100 000 000 bytes or more gets nine, and whoever reads it loses its place.
"""

from __future__ import annotations

from ue_rl.system.errors import ConfigurationError, MalformedMessage

HEADER = 8
MAX_BODY = 10**HEADER - 1


def frame(body: bytes) -> bytes:
    """The body with its header.

    Raises:
        ConfigurationError: it is too long for a header of eight digits.
    """
    if len(body) > MAX_BODY:
        raise ConfigurationError(
            "the message is longer than RLlink can say",
            field="EPISODES",
            expected=f"at most {MAX_BODY} bytes",
            got=f"{len(body)} bytes",
            cure="send fewer steps at a time, or smaller observations",
        )
    return b"%0*d" % (HEADER, len(body)) + body


class FrameReader:
    """Cuts a stream of bytes into bodies, however it was split.

    Args:
        most: the longest body that is taken, in bytes.
    """

    def __init__(self, most: int = MAX_BODY) -> None:
        self._most = most
        self._data = bytearray()

    def __len__(self) -> int:
        """Bytes that were fed and not given out."""
        return len(self._data)

    def said(self) -> str:
        """How much of the next message there is, for people."""
        length = bytes(self._data[:HEADER])
        if not length:
            return "nothing"
        if len(length) < HEADER or not length.isdigit():
            return f"{len(self)} bytes"
        return f"{len(self) - HEADER} of {int(length)} bytes"

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Adds received bytes."""
        self._data += data

    def next_body(self) -> bytes | None:
        """The next whole body; None: there is none yet.

        Raises:
            MalformedMessage: no header stands where one must; the stream cannot be read any further.
        """
        if len(self._data) < HEADER:
            return None
        header = bytes(self._data[:HEADER])
        if not header.isdigit() or int(header) > self._most:
            raise MalformedMessage(
                "an RLlink message begins with its length",
                fault="server",
                field="header",
                expected=f"{HEADER} digits, {self._most} at most",
                got=header,
                cure="is this the port of RLlib's external env runner?",
            )
        if bytes(self._data[HEADER : HEADER + 1]).isdigit():  # no message of either dialect begins with one
            raise MalformedMessage(
                "an RLlink message of 100 MB or more has a header that nobody can read",
                fault="server",
                field="header",
                expected=f"{HEADER} digits",
                got=bytes(self._data[: HEADER + 1]),
                cure="messages must be smaller: a smaller network, or fewer steps at a time",
            )
        end = HEADER + int(header)
        if len(self._data) < end:
            return None
        body = bytes(self._data[HEADER:end])
        del self._data[:end]
        return body
