"""Text: lines <-> rows of arrays (docs/protocol.md). No state, no I/O."""

from __future__ import annotations

from ue_rl.protocol.text.codec import Codec
from ue_rl.protocol.text.handshake import MAX_HANDSHAKE, decode_handshake, encode_handshake
from ue_rl.protocol.text.limits import line_limit
from ue_rl.protocol.text.space_text import read_space, space_text

__all__ = ["MAX_HANDSHAKE", "Codec", "decode_handshake", "encode_handshake", "line_limit", "read_space", "space_text"]
