"""The session that most tests of commands have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.protocol.commands.game import Game, Session, attached, upgraded


@pytest.fixture(params=[attached, upgraded], ids=["attached", "upgraded"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    game = Game()
    with request.param(game) as connection:
        yield game, connection
