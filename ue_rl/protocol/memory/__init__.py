"""Shared memory: the segment's header, arrays, rings and waits (docs/shared-memory.md). No sockets of its own."""

from __future__ import annotations

from ue_rl.protocol.memory.memory import StepMemory

__all__ = ["StepMemory"]
