"""SB3's tables on a disk that is full."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from stable_baselines3.common.logger import KVWriter

from ue_rl.training.writing import Guard


class Surviving(KVWriter):
    """A table of SB3's logger that goes on without what the disk does not take.

    Args:
        table: the table. tell: shows the one warning.
    """

    def __init__(self, table: KVWriter, tell: Callable[[str], object]) -> None:
        self._table = table
        self._guard = Guard(type(table).__name__.lstrip("_"), tell)

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        """See KVWriter."""
        with self._guard:
            self._table.write(key_values, key_excluded, step)

    def close(self) -> None:
        """See KVWriter."""
        with self._guard:
            self._table.close()


@contextmanager
def quiet_tensorboard() -> Iterator[None]:
    """TensorBoard's writer has a thread, whose traceback says again what Surviving has said."""
    before = threading.excepthook

    def hook(arguments: Any) -> None:
        if type(arguments.thread).__name__ != "_AsyncWriterThread" or not issubclass(arguments.exc_type, OSError):
            before(arguments)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before
