"""Orders: what the agents of a world want done, numbers and tool calls, at the beginning of the next tick."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ue_rl.bridges.tools import ToolRegistry
from ue_rl.plugins.sessions.realtime.observation import ToolCall
from ue_rl.system.errors import ToolError

if TYPE_CHECKING:
    from ue_rl.plugins.sessions.realtime.counters import Counters
    from ue_rl.plugins.sessions.realtime.session import Session
    from ue_rl.plugins.sessions.realtime.stage import Rows, Stage

_log = logging.getLogger("ue_rl.plugins.sessions.realtime")


class Orders:
    """Of one world, whose worker alone calls its methods.

    Attributes:
        waiting: sessions whose queue is not empty; added to by any thread. tools: the game's.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self.waiting: set[Session] = set()
        self.tools = ToolRegistry()

    def apply(self, stage: Stage, rows: Rows) -> None:
        """Applies what waits for these rows, session by session in the order of their rows.

        Raises:
            what the game raises.
        """
        moving = set(rows.tolist())
        for session in sorted(list(self.waiting), key=lambda each: each.row):  # list: others may add meanwhile
            row = session.row
            if not session.life.live:
                self.waiting.discard(session)
            if row not in moving or stage.acts_still(row):
                continue
            self.waiting.discard(session)
            actions = session.queue.drain()
            numbers = sum(not isinstance(action, ToolCall) for action in actions)
            for action in actions:
                if isinstance(action, ToolCall):
                    self._call(session, action, stage)
                    continue
                numbers -= 1
                if not stage.act(row, action, numbers > 0):
                    session.queue.dropped += 1
                elif session.recorder is not None:
                    session.recorder.acted(int(stage.ticks[row]), action)

    def call_tools(self, session: Session, stage: Stage) -> None:
        """Calls the tools that wait, without a tick; actions in numbers wait for one."""
        for action in session.queue.drain():
            if isinstance(action, ToolCall):
                self._call(session, action, stage)
            else:
                session.queue.put(action)
                self.waiting.add(session)

    def _call(self, session: Session, call: ToolCall, stage: Stage) -> None:
        if session.recorder is not None:
            session.recorder.acted(int(stage.ticks[session.row]), call)
        self._counters.add("tool_calls")
        answer: dict[str, Any] = {"tool": call.tool}
        try:
            answer["result"] = self.tools.answer(call.tool, call.arguments, env_id=session.row)
        except ToolError as error:
            self._counters.add("tool_errors")
            answer.update(error=error.plain(), code=error.code)
            if error.code == "TOOL_EXECUTION_FAILED":
                _log.warning("session %s: %s", session.id, error.message, exc_info=error.__cause__)
        session.tool_answers.append(answer)
