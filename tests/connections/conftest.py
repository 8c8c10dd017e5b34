"""What the tests of shared memory leave behind."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ue_rl.shm import segment


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Every test leaves /dev/shm as it found it."""

    def there() -> set[str]:
        return {p.name for p in segment.SHM_DIR.glob(f"{segment.PREFIX}{os.getpid()}_*")}

    before = there()
    yield
    assert there() == before
