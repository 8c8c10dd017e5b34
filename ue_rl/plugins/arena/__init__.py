"""Agents that reason: behaviours that see a game and call its tools by name; over HTTP, or in a bridge of ours."""

from ue_rl.system.lazy import lazy

__getattr__, __dir__ = lazy(__name__)
