"""A forked child of a game that serves sessions holds none of its sockets."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.support.forking import FORKS, notices_over_http

GAME = """
import os, sys, time
from tests.plugins.sessions.game import Drift
from ue_rl.plugins.sessions.openenv import serve
from ue_rl.plugins.sessions.realtime import SessionPool

server = serve(SessionPool(Drift), port=0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_clients_over_http_notice_that_a_game_is_killed(forking: Any, slack: float) -> None:
    notices_over_http(forking(GAME + FORKS), "health", slack)
