"""Messages beside the steps, whatever carries them (docs/commands.md)."""

from __future__ import annotations

from ue_rl.commands.dispatcher import Dispatcher
from ue_rl.commands.envelope import Command, Method, decode, encode, messages, text

__all__ = ["Command", "Dispatcher", "Method", "decode", "encode", "messages", "text"]
