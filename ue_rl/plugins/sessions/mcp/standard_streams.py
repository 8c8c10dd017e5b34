"""StandardStreams: standard input and output for MCP's messages alone, whatever a game prints, reads or starts."""

from __future__ import annotations

import asyncio
import io
import os
import queue
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio

from ue_rl.system.closing import Closing


class StandardStreams(Closing):
    """From its making to `close()` this process's descriptor 1 leads to standard error, and descriptor 0 to nothing.

    So what a game prints by itself, from C or from a process that it starts reaches no client, and none of them reads
    what a client says. To be made before the game is imported: an import may print. A process that ends behind its
    client never closes it: a game may print at the exit, too, and what C has kept in its buffers is written then.

    Attributes:
        input: the client's lines, as `async for` gives them. output: a file of anyio.
    """

    def __init__(self) -> None:
        sys.stdout.flush()  # what was printed before belongs where it was printed to
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)  # as standard error is
        # Duplicates of os.dup are not inherited: children of the game cannot reach them.
        self._input = os.dup(0)
        self._output = os.dup(1)
        _lead(0, os.open(os.devnull, os.O_RDONLY))
        _lead(1, _standard_error())
        # They stay open to the end of the process: a thread may be reading still when all else is over.
        writes = os.fdopen(self._output, "wb", closefd=False)
        self.input: Any = _InputLines(self._input)
        self.output: Any = anyio.wrap_file(io.TextIOWrapper(writes, encoding="utf-8"))

    def close(self) -> None:
        """Descriptors 0 and 1 lead where they led before; idempotent."""
        sys.stdout.flush()
        os.dup2(self._input, 0)
        os.dup2(self._output, 1)


class _InputLines:
    """The lines of a descriptor, read one when one is asked for.

    A file of anyio would read in a thread that the interpreter waits for at its end: Ctrl-C and SIGTERM would end
    nothing before the client has said another line, or has gone.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._asked: queue.SimpleQueue[asyncio.Future[str]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, name="ue_rl-mcp-stdin", daemon=True)

    async def __aiter__(self) -> AsyncIterator[str]:
        if not self._thread.is_alive():
            self._thread.start()
        loop = asyncio.get_running_loop()
        while True:
            line = loop.create_future()
            self._asked.put(line)
            text = await line
            if not text:
                return
            yield text

    def _read(self) -> None:
        held = bytearray()
        ended = False
        while True:
            asked = self._asked.get()
            searched = 0
            while not ended and held.find(b"\n", searched) < 0:
                searched = len(held)
                piece = self._more()
                held += piece
                ended = not piece
            end = held.find(b"\n") + 1 or len(held)
            text = held[:end].decode("utf-8", "replace")
            del held[:end]
            try:
                asked.get_loop().call_soon_threadsafe(_give, asked, text)
            except RuntimeError:  # the loop has ended meanwhile
                return

    def _more(self) -> bytes:
        try:
            return os.read(self._descriptor, 1 << 16)
        except OSError:  # it was closed: <&-
            return b""


def _give(asked: asyncio.Future[str], text: str) -> None:
    if not asked.done():
        asked.set_result(text)


def _standard_error() -> int:
    try:
        return os.dup(2)
    except OSError:  # it was closed: 2>&-
        return os.open(os.devnull, os.O_WRONLY)


def _lead(descriptor: int, to: int) -> None:
    os.dup2(to, descriptor)
    os.close(to)
