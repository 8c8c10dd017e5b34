"""Memory of agents: a sliding window, one that summarises, and a vector store; each survives a restart."""

from __future__ import annotations

from ue_rl.plugins.arena.memory.base import Entry, Memory
from ue_rl.plugins.arena.memory.embedders import ApiEmbedder, Embedder, HashingEmbedder, OnnxEmbedder
from ue_rl.plugins.arena.memory.vector import VectorMemory
from ue_rl.plugins.arena.memory.windows import SlidingWindow, SummarisingMemory

MEMORIES = {"sliding": SlidingWindow, "summarising": SummarisingMemory, "vector": VectorMemory}
EMBEDDERS = {"hashing": HashingEmbedder, "onnx": OnnxEmbedder, "api": ApiEmbedder}

__all__ = [
    "EMBEDDERS", "MEMORIES", "ApiEmbedder", "Embedder", "Entry", "HashingEmbedder", "Memory", "OnnxEmbedder",
    "SlidingWindow", "SummarisingMemory", "VectorMemory",
]  # fmt: skip
