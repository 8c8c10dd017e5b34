"""Messages beside the steps, whatever carries them (docs/commands.md)."""

from __future__ import annotations

from ue_rl.commands.dispatcher import Dispatcher, Handler
from ue_rl.commands.envelope import (
    MAX_TEXT,
    Command,
    Method,
    decode,
    encode,
    messages,
    method_name,
    mismatch,
    text,
    write_within,
)
from ue_rl.json_text import json_object, json_text

__all__ = [
    "MAX_TEXT",
    "Command",
    "Dispatcher",
    "Handler",
    "Method",
    "decode",
    "encode",
    "json_object",
    "json_text",
    "messages",
    "method_name",
    "mismatch",
    "text",
    "write_within",
]
