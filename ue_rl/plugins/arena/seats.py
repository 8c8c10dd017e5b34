"""AgentSlot: one agent's behaviour, its thread and its place in the episode; Decision: what it decided, or why not."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any

from ue_rl.bridges.tools import ToolRegistry
from ue_rl.plugins.arena.backends.base import BackendRefused
from ue_rl.plugins.arena.behaviors import AgentBehavior, SimpleAgentBehavior
from ue_rl.plugins.arena.types import AgentDecision, AgentObservation
from ue_rl.system.errors import ResourceExhausted, ToolError, UeRlError, shorten
from ue_rl.system.json_values import json_value

MAX_PARAMS = 65_536  # bytes of a decision's parameters as JSON
MAX_TRACE = 1_000_000
MAX_WAITING = 10  # jobs of one agent
LLM_TIMEOUT = "LLM_TIMEOUT"
PARSING_ERROR = "PARSING_ERROR"
INVALID_PARAMETERS = "INVALID_PARAMETERS"
DECISION_FAILED = "DECISION_FAILED"
AGENT_NOT_FOUND = "AGENT_NOT_FOUND"


class Worker:
    """A daemon thread that does one job after another, from the first one on. It never keeps the process from ending.
    A job that does not return holds nobody else.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._lock = threading.Lock()

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        """Does `job` after those before it; whatever it raises is the future's exception: ResourceExhausted where too
        many wait, or it is closed.
        """
        future: Future[Any] = Future()
        with self._lock:
            if self._closed or self._jobs.qsize() >= MAX_WAITING:
                if self._closed:
                    why = "has ended"
                else:
                    why = f"has {MAX_WAITING} jobs to do already"
                future.set_exception(ResourceExhausted(f"the thread {self._name} {why}"))
                return future
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._jobs.put((future, job))
        return future

    def close(self) -> None:
        """The thread ends after the jobs that it has."""
        with self._lock:
            self._closed = True
            self._jobs.put(None)

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            future, job = item
            try:
                result = job()
            except BaseException as error:  # noqa: BLE001 - whoever waits is told
                future.set_exception(error)
            else:
                future.set_result(result)
            del item, future, job


class DecisionFailed(Exception):
    """A behaviour's way to say why there is no decision.

    Args:
        code: LLM_TIMEOUT or PARSING_ERROR.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


@dataclass(frozen=True)
class Decision:
    """What an agent does in a tick.

    Attributes:
        decision: idle where there is none. code, message: why there is none; None where there is one.
        seconds: that it took. trace: what led to it, as the behaviour says; of JSON's types.
        refusal: why no later decision can succeed either: the model refuses for good; None where that is not so.
    """

    observation: AgentObservation
    decision: AgentDecision
    code: str | None = None
    message: str | None = None
    seconds: float = 0.0
    trace: Mapping[str, Any] = field(default_factory=dict)
    refusal: BackendRefused | None = None

    @property
    def agent_id(self) -> str:
        """Whose."""
        return self.observation.agent_id

    @classmethod
    def failed(cls, seen: AgentObservation, code: str, message: str, **more: Any) -> Decision:
        """Idle, and why."""
        return cls(seen, AgentDecision(reasoning=f"Error: {message}"), code, message, **more)


class AgentSlot:
    """One registered agent. What its behaviour does wrong is told by `outcome`; nothing here raises it."""

    def __init__(self, agent_id: str, behavior: AgentBehavior) -> None:
        self.behavior = behavior
        self.deadline: float | None = None
        self.worker = Worker(f"ue_rl-agent-{agent_id}")
        # A subclass of ready rules may wait for whatever it likes: only what its own class says counts.
        self._inline = bool(vars(type(behavior)).get("inline"))
        self._lock = threading.RLock()  # a behaviour may end its episode within decide()
        self._last_tick: int | None = None
        self._begins = False
        self._pending: Future[Decision] | None = None
        self._waited: tuple[Future[Decision], asyncio.Future[Decision]] | None = None

    def ask(self, observation: AgentObservation, tools: ToolRegistry, inline: bool) -> Future[Decision]:
        """Starts decide(), unless the last one still runs: then that one is waited for again."""
        with self._lock:
            tick = observation.tick
            last = self._last_tick
            self._last_tick = observation.tick
            self._begins |= last is None or (tick <= last and tick <= 1)
            if self._pending is None:
                begins = self._begins
                self._begins = False
                self._pending = self.do(lambda: _think(self.behavior, observation, tools, begins), inline)
            return self._pending

    def end(self, success: bool, metrics: Mapping[str, Any], inline: bool = False) -> Future[str]:
        """The episode is over; the next observation begins another one. The future has what its memory says of it."""

        def told() -> str:
            self.behavior.on_episode_end(success, metrics)
            if self.behavior.memory is None:
                return ""
            return self.behavior.memory.summarize()

        with self._lock:
            self._last_tick = None
            return self.do(told, inline)

    def do(self, job: Callable[[], Any], inline: bool = False) -> Future[Any]:
        """A job of the behaviour's own thread, after those before it; at once where that need not be."""
        if not (inline or self._inline):
            return self.worker.submit(job)
        future: Future[Any] = Future()
        try:
            future.set_result(job())
        except Exception as error:  # noqa: BLE001 - a behaviour's mistake ends its decision alone
            future.set_exception(error)
        return future

    def awaited(self, future: Future[Decision]) -> asyncio.Future[Decision]:
        """`future` for this event loop; the same one in each tick that waits for it, or they would pile up."""
        loop = asyncio.get_running_loop()
        if self._waited is None or self._waited[0] is not future or self._waited[1].get_loop() is not loop:
            self._waited = future, asyncio.wrap_future(future)
        return self._waited[1]

    def outcome(self, seen: AgentObservation, future: Future[Decision], seconds: float) -> Decision:
        """What came of `ask`, after so many seconds, whether it has decided or not."""
        if not future.done():
            return Decision.failed(seen, LLM_TIMEOUT, f"no decision within {self.deadline} s", seconds=seconds)
        with self._lock:
            if self._pending is future:
                self._pending = None
        error = future.exception()
        if error is not None:  # what no behaviour should raise, such as KeyboardInterrupt
            return Decision.failed(seen, DECISION_FAILED, *_why(error)[1:], seconds=seconds)
        return replace(future.result(), observation=seen, seconds=seconds)


def _think(behavior: AgentBehavior, seen: AgentObservation, tools: ToolRegistry, begins: bool) -> Decision:
    """All that a behaviour has a hand in, in its own thread; of what it answers only plain JSON goes on."""
    decision = AgentDecision()
    try:
        behavior.trace = {}
        if begins:
            behavior.on_episode_start()
        if seen.tool_result is not None:
            behavior.on_tool_result(seen.tool_result)
        decide: Any
        if isinstance(behavior, SimpleAgentBehavior):
            decide = behavior.decide_whole
        else:
            decide = behavior.decide
        said = decide(seen, tools.schemas())
        try:
            decision = AgentDecision.of(said)
        except ValueError as error:
            raise DecisionFailed(PARSING_ERROR, str(error)) from error
        decision = _sendable(decision)
        tools.validate(decision.tool, decision.params)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a behaviour's mistake ends its decision alone
        refused = {"tool": decision.tool, "params": shorten(decision.params, 500)}
        refusal = None
        if isinstance(error, BackendRefused):
            refusal = error
        return Decision.failed(seen, *_why(error), trace={**_told(behavior), "refused": refused}, refusal=refusal)
    return Decision(seen, decision, trace=_told(behavior))


def _why(error: BaseException) -> tuple[str, str]:
    """(code, message)."""
    if isinstance(error, (DecisionFailed, ToolError)):
        code = str(getattr(error, "code", ""))
    else:
        code = DECISION_FAILED
    try:
        if isinstance(error, UeRlError):
            said = error.plain()
        else:
            said = str(error)
    except Exception:  # noqa: BLE001 - its own __str__ raises
        said = ""
    if isinstance(error, TimeoutError):
        reason = LLM_TIMEOUT
    else:
        reason = code
    message = said
    if not message:
        message = type(error).__name__
    return reason, shorten(message, 500)


def _sendable(decision: AgentDecision) -> AgentDecision:
    """With parameters in JSON's types alone, which every client can read: of NumPy's arrays lists, and so on."""
    try:
        text = json.dumps(json_value(decision.params, "params"))
        if len(text) > MAX_PARAMS:
            raise ValueError(f"{len(text)} bytes are more than {MAX_PARAMS}")
        return replace(decision, params=json.loads(text, parse_int=_int64))
    except ValueError as error:  # NotJson is one
        raise ToolError(
            f"the parameters cannot be sent: {error}", tool=decision.tool, code=INVALID_PARAMETERS
        ) from error


def _int64(digits: str) -> int:
    number = int(digits)
    if not -(2**63) <= number < 2**63:
        raise ValueError("an integer of more than 64 bits")
    return number


def _told(behavior: AgentBehavior) -> dict[str, Any]:
    """The behaviour's trace as JSON has it."""
    try:
        text = json.dumps(dict(behavior.trace), default=str)
        if len(text) > MAX_TRACE:
            return {"unreadable": f"{len(text)} characters"}
        told: dict[str, Any] = json.loads(text, parse_constant=str)
    except Exception as error:  # noqa: BLE001 - whatever a behaviour puts there
        return {"unreadable": shorten(type(error).__name__)}
    return told
