"""What the tests of training share."""

from __future__ import annotations

import pytest

from ue_rl.training import learning


@pytest.fixture(autouse=True)
def _undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No curves.png but of `@pytest.mark.drawn`: it is a quarter of what most runs here would take."""
    if request.node.get_closest_marker("drawn") is None:
        monkeypatch.setattr(learning, "draw_curves", lambda *_: None)
