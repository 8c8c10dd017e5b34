"""Traces that no game has made."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ue_rl.protocol.traces.file import MessageKind
from ue_rl.protocol.traces.writing import TraceWriter


def overflow(path: Path, side: str) -> None:
    """Writes more than the file may take, so that its beginning is dropped."""
    writer = TraceWriter(path, None, side, 1_000_000)
    for _ in range(20):
        writer.add(MessageKind.EPISODE, {"options": os.urandom(100_000).hex()})
        writer.filled(time.perf_counter())
    writer.close()
