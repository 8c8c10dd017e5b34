"""Both kernels, for the tests of the text protocol: as a Codec takes them, and as modules."""

from __future__ import annotations

from typing import Any

import pytest

from ue_rl.system.compiled import load


@pytest.fixture(params=[True, False], ids=["compiled", "pure"])
def compiled(request: pytest.FixtureRequest) -> bool:
    """Codec's argument."""
    return bool(request.param)


@pytest.fixture
def kernels(compiled: bool) -> Any:
    """The functions that such a Codec calls."""
    return load("kernels", compiled)
