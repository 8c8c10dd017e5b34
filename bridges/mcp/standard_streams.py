"""StandardStreams: standard input and output for MCP's messages alone, whatever a game prints, reads or starts."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import anyio

from ue_rl.system.closing import Closing


class StandardStreams(Closing):
    """From its making to `close()` this process's descriptor 1 leads to standard error, and descriptor 0 to nothing.

    So what a game prints by itself, from C or from a process that it starts reaches no client, and none of them reads
    what a client says. To be made before the game is imported: an import may print.

    Attributes:
        input, output: the client's, as files of anyio.
    """

    def __init__(self) -> None:
        sys.stdout.flush()  # what was printed before belongs where it was printed to
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # as standard error is
        # Duplicates of os.dup are not inherited: children of the game cannot reach them.
        self._input, self._output = os.dup(0), os.dup(1)
        _lead(0, os.open(os.devnull, os.O_RDONLY))
        _lead(1, _standard_error())
        # They stay open to the end of the process: a thread may be reading still when all else is over.
        reads = os.fdopen(self._input, "rb", closefd=False)
        writes = os.fdopen(self._output, "wb", closefd=False)
        self.input: Any = anyio.wrap_file(io.TextIOWrapper(reads, encoding="utf-8", errors="replace"))
        self.output: Any = anyio.wrap_file(io.TextIOWrapper(writes, encoding="utf-8"))

    def close(self) -> None:
        """Descriptors 0 and 1 lead where they led before; idempotent."""
        sys.stdout.flush()
        os.dup2(self._input, 0)
        os.dup2(self._output, 1)


def _standard_error() -> int:
    try:
        return os.dup(2)
    except OSError:  # it was closed: 2>&-
        return os.open(os.devnull, os.O_WRONLY)


def _lead(descriptor: int, to: int) -> None:
    os.dup2(to, descriptor)
    os.close(to)
