"""Engines of the samples as programs that print `PORT n` when they listen, and end in order on SIGTERM."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path


@contextlib.contextmanager
def running(
    binary: Path,
    *words: str,
    log: list[str] | None = None,
    env: Mapping[str, str] | None = None,
    code: int | None = None,
) -> Iterator[int]:
    """The program's port; afterwards it must still have been alive, and no sanitizer may have found anything.

    Args:
        log: gets what it wrote onto stderr. env: more of its environment. code: the exit code that it must end with.
    """
    more = {**os.environ, **(env or {})}
    with subprocess.Popen(
        [str(binary), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=more
    ) as process:
        assert process.stdout is not None
        try:
            word, _, port = process.stdout.readline().partition(" ")
            assert word == "PORT", process.communicate()[1]
            yield int(port)
            assert process.poll() is None, process.communicate()[1]
        finally:
            process.send_signal(signal.SIGTERM)
            said = process.communicate(timeout=10)[1]
            if log is not None:
                log.append(said)
            assert "Sanitizer" not in said, said
            assert "runtime error" not in said, said
        assert code in (None, process.returncode), said
