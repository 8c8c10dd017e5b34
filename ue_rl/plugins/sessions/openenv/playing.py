"""What OpenEnv asks of one session: reset, step, state, tools; and what is answered, as its clients read it."""

from __future__ import annotations

from typing import Any

from ue_rl.plugins.sessions.openenv.messages import Action, Reset
from ue_rl.plugins.sessions.realtime import Session, SessionObservation, ToolCall
from ue_rl.plugins.sessions.tools import SessionTools, submitted
from ue_rl.plugins.sessions.waiting import described, state_of
from ue_rl.system.errors import ConfigurationError, ToolError

RESERVED = ("reset", "step", "state", "close")  # names that OpenEnv keeps for itself
_ERROR_TYPES = {"TOOL_NOT_FOUND": "tool_not_found", "INVALID_PARAMETERS": "invalid_args"}


class SessionDriver:
    """One session, as OpenEnv speaks of it.

    Args:
        begun: it may be stepped without a reset before.

    Attributes:
        session: the game's. episode_id: as the last reset said it. steps: since then.
    """

    def __init__(self, session: Session, tools: SessionTools, begun: bool = True) -> None:
        self.session = session
        self._tools = tools
        self._begun = begun
        self.episode_id: str | None = None
        self.steps = 0

    async def reset(self, data: dict[str, Any]) -> dict[str, Any]:
        """A new episode; fields beside seed and episode_id are the game's options.

        Raises:
            pydantic.ValidationError, and what Session.submit raises.
        """
        told = Reset.model_validate(data)
        options = None
        if told.model_extra:
            options = told.model_extra
        seen = await submitted(self.session, ticks=0, reset=True, seed=told.seed, options=options)
        self.episode_id = told.episode_id
        self.steps = 0
        self._begun = True
        return await self._answer(seen, reward=None)

    async def step(self, data: dict[str, Any]) -> dict[str, Any]:
        """An action, or a tool.

        Raises:
            pydantic.ValidationError, ToolError, and what Session.submit raises.
        """
        action = Action.model_validate(data)
        if action.tool_name is not None and action.type != "call_tool":
            expected = 'beside it type "call_tool"'
            raise ConfigurationError("nothing would be called", field="tool_name", expected=expected)
        self.steps += 1
        if action.type == "list_tools":
            return {"observation": {"tools": self.tools()}, "reward": None, "done": False}
        if action.type == "call_tool":
            name = action.tool_name or ""
            return await self._called(name, action.arguments)
        if (action.tool is None) == (action.action is None):
            raise ConfigurationError("an action has either numbers or a tool", field="action", expected="one of both")
        if not self._begun and (action.tool is None or action.ticks):
            # OpenEnv's client of 0.10 dials anew where its connection was lost, and would go on in another episode
            raise ConfigurationError(
                "no episode has begun in this session",
                field="type",
                expected="reset before step",
                got="step",
                cure="call reset; where the connection was lost its episode is over, and this is a new session",
            )
        if action.tool is None:
            assert action.action is not None
            ticks = 1
            if action.ticks is not None:
                ticks = action.ticks
            return await self._answer(await submitted(self.session, ticks=ticks, actions=[action.action]))
        self._tools.check(action.tool, action.arguments)
        call = ToolCall(action.tool, action.arguments)
        return await self._answer(await submitted(self.session, ticks=action.ticks or 0, actions=[call]))

    async def state(self) -> dict[str, Any]:
        """See messages.State."""
        state = await state_of(self.session)
        return {"episode_id": self.episode_id, "step_count": self.steps, **state._asdict()}

    def tools(self) -> list[dict[str, Any]]:
        """Their schemas, under the key of 0.3 and that of 0.10."""
        return [{**each.as_dict("input_schema"), "inputSchema": each.parameters} for each in self._tools.schemas()]

    async def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """See SessionTools.call."""
        return await self._tools.call(self.session, name, arguments)

    async def _called(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        error: dict[str, str] | None = None
        result: dict[str, Any] | None = None
        try:
            result = await self.call(name, arguments)
        except ToolError as failed:
            error = {"error_type": _ERROR_TYPES.get(failed.code, "execution_error"), "message": str(failed)}
        observation = {"tool_name": name, "result": result, "error": error}
        seen = result or {}
        over = bool(seen.get("terminated") or seen.get("truncated"))
        return {"observation": observation, "reward": seen.get("reward"), "done": over}

    async def _answer(self, seen: SessionObservation, **instead: Any) -> dict[str, Any]:
        every = seen.as_dict()
        shown = {key: every[key] for key in ("observation", "tick", "result", "info")}
        if self.session.tick_rate is not None:  # as in the infos of the text protocol
            shown["info"] = {**shown["info"], **seen.timing}
        shown |= {"text": await described(self.session), "mask": every["mask"] or []}
        return {"observation": shown, "reward": seen.reward, "done": seen.done, **instead}
