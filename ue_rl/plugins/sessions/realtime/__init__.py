"""Games that do not wait: many sessions of one game in one process, in real time or advanced as told. No I/O.

with SessionPool("my_game:Game", max_sessions=64) as pool:
    session = pool.create(seed=1)
    seen = session.advance(ticks=25, actions=[[0.5, 0.0], ToolCall("harvest", {"unit": 3})])
"""

from __future__ import annotations

from ue_rl.plugins.sessions.realtime.counters import Counters
from ue_rl.plugins.sessions.realtime.interrupts import Interrupts
from ue_rl.plugins.sessions.realtime.lifecycle import Phase
from ue_rl.plugins.sessions.realtime.observation import Action, SessionObservation, SessionState, ToolCall
from ue_rl.plugins.sessions.realtime.pool import SessionPool
from ue_rl.plugins.sessions.realtime.session import Session
from ue_rl.system.game_clock import GameClock

__all__ = [
    "Action", "Counters", "GameClock", "Interrupts", "Phase", "Session", "SessionObservation", "SessionPool",
    "SessionState", "ToolCall",
]  # fmt: skip
