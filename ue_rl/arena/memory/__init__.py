"""Memory of agents: a sliding window, one that summarises, and a vector store; each survives a restart."""

from __future__ import annotations

from ue_rl.arena.memory.base import Entry, Memory
from ue_rl.arena.memory.embedders import ApiEmbedder, Embedder, HashingEmbedder
from ue_rl.arena.memory.sliding import SlidingWindow
from ue_rl.arena.memory.summarising import SummarisingMemory
from ue_rl.arena.memory.vector import VectorMemory

MEMORIES = {"sliding": SlidingWindow, "summarising": SummarisingMemory, "vector": VectorMemory}

__all__ = [
    "MEMORIES", "ApiEmbedder", "Embedder", "Entry", "HashingEmbedder", "Memory", "SlidingWindow", "SummarisingMemory",
    "VectorMemory",
]  # fmt: skip
