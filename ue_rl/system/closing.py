"""Closing: what a `with` block closes at its end."""

from __future__ import annotations

from typing import TypeVar

_Self = TypeVar("_Self", bound="Closing")


class Closing:
    """Whoever derives from it has `close()`."""

    def close(self) -> None:
        """Ends it; idempotent."""
        raise NotImplementedError

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
