"""The client of an arena, as the tests of the arena have it."""

from __future__ import annotations

from tests.plugins.arena.conftest import client

__all__ = ["client"]
