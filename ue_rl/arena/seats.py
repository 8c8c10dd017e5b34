"""Seat: one agent's behaviour, its thread and its place in the episode; Outcome: what it decided, or why not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from ue_rl.arena.behaviors import AgentBehavior, SimpleAgentBehavior
from ue_rl.arena.types import AgentDecision, Observation
from ue_rl.arena.worker import Worker
from ue_rl.errors import ToolError, UeRlError, shorten
from ue_rl.tools import ToolRegistry, ToolSchema

MAX_PARAMS = 65_536  # bytes of a decision's parameters as JSON
LLM_TIMEOUT, PARSING_ERROR, INVALID_PARAMETERS = "LLM_TIMEOUT", "PARSING_ERROR", "INVALID_PARAMETERS"
DECISION_FAILED, AGENT_NOT_FOUND = "DECISION_FAILED", "AGENT_NOT_FOUND"


class DecisionFailed(Exception):
    """A behaviour's way to say why there is no decision.

    Args:
        code: LLM_TIMEOUT or PARSING_ERROR.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


@dataclass(frozen=True)
class Outcome:
    """What an agent does in a tick.

    Attributes:
        decision: idle where there is none. code, message: why there is none; None where there is one.
        seconds: that it took. trace: what led to it, as the behaviour says.
    """

    observation: Observation
    decision: AgentDecision
    code: str | None = None
    message: str | None = None
    seconds: float = 0.0
    trace: Mapping[str, Any] = field(default_factory=dict)

    @property
    def agent_id(self) -> str:
        """Whose."""
        return self.observation.agent_id


@dataclass
class Seat:
    """One registered agent."""

    agent_id: str
    behavior: AgentBehavior
    deadline: float | None = None
    last_tick: int | None = None
    pending: Future[tuple[AgentDecision, Mapping[str, Any]]] | None = None

    def __post_init__(self) -> None:
        self.worker = Worker(f"ue_rl-agent-{self.agent_id}")
        self.behavior.prepare(self.agent_id)

    def ask(self, observation: Observation, tools: list[ToolSchema], inline: bool) -> Future[Any]:
        """Starts decide(), unless the last one still runs: then that one is waited for again."""
        if self.pending is not None:
            return self.pending
        tick, last, self.last_tick = observation.tick, self.last_tick, observation.tick
        begins = last is None or (tick <= last and tick <= 1)
        self.pending = future = self._do(lambda: _think(self.behavior, observation, tools, begins), inline)
        return future

    def end(self, success: bool, metrics: Mapping[str, Any], inline: bool = False) -> Future[Any]:
        """The episode is over; the next observation begins another one."""
        self.last_tick = None
        return self._do(lambda: self.behavior.on_episode_end(success, metrics), inline)

    def _do(self, job: Callable[[], Any], inline: bool) -> Future[Any]:
        if not (inline or self.behavior.inline):
            return self.worker.submit(job)
        future: Future[Any] = Future()
        try:
            future.set_result(job())
        except Exception as error:  # noqa: BLE001 - a behaviour's mistake ends its decision alone
            future.set_exception(error)
        return future

    def outcome(self, observation: Observation, future: Future[Any], seconds: float, tools: ToolRegistry) -> Outcome:
        """What came of `ask`, after so many seconds, whether it has decided or not."""
        if not future.done():
            why = f"no decision within {self.deadline} s"
            return Outcome(observation, AgentDecision(reasoning=f"Error: {why}"), LLM_TIMEOUT, why, seconds)
        if self.pending is future:
            self.pending = None
        decision, code, message, trace = AgentDecision(), None, None, dict(self.behavior.trace)
        error = future.exception()
        if error is None:
            decision, trace = future.result()
            try:
                _require_plain(decision)
                tools.validate(decision.tool, decision.params)
            except ToolError as refused:
                code, message = refused.code, refused.plain()
        elif isinstance(error, DecisionFailed):
            code, message = error.code, str(error)
        elif isinstance(error, TimeoutError):
            code, message = LLM_TIMEOUT, str(error)
        else:
            said = error.plain() if isinstance(error, UeRlError) else str(error)
            code, message = DECISION_FAILED, shorten(said or type(error).__name__, 500)
        if code is not None:
            trace = {**trace, "refused": {"tool": decision.tool, "params": shorten(decision.params, 500)}}
            decision = AgentDecision(reasoning=f"Error: {message}")
        return Outcome(observation, decision, code, message, seconds, trace)


def _think(
    behavior: AgentBehavior, observation: Observation, tools: list[ToolSchema], begins: bool
) -> tuple[AgentDecision, Mapping[str, Any]]:
    behavior.trace = {}
    if begins:
        behavior.on_episode_start()
    if observation.tool_result is not None:
        behavior.on_tool_result(observation.tool_result)
    if isinstance(behavior, SimpleAgentBehavior):
        said: Any = behavior.decide_whole(observation, tools)
    else:
        said = behavior.decide(observation, tools)
    try:
        return AgentDecision.of(said), dict(behavior.trace)
    except ValueError as error:
        raise DecisionFailed(PARSING_ERROR, str(error)) from error


def _require_plain(decision: AgentDecision) -> None:
    """The parameters can be sent."""
    try:
        size = len(json.dumps(decision.params, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(f"the parameters are not JSON: {error}", tool=decision.tool, code=INVALID_PARAMETERS) from error
    if size > MAX_PARAMS:
        raise ToolError(
            "the parameters are too large",
            tool=decision.tool,
            code=INVALID_PARAMETERS,
            expected=f"{MAX_PARAMS} bytes",
            got=size,
        )
