"""AgentArena: behaviours by agent id, and a tick in which all of them decide side by side."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from ue_rl.bridges.tools import ToolRegistry
from ue_rl.plugins.arena.behaviors import AgentBehavior, rule_of_thumb
from ue_rl.plugins.arena.log import RunLog
from ue_rl.plugins.arena.memory.base import Entry
from ue_rl.plugins.arena.seats import AGENT_NOT_FOUND, DECISION_FAILED, INVALID_PARAMETERS, AgentSlot, Decision
from ue_rl.plugins.arena.standard import standard_tools
from ue_rl.plugins.arena.types import IDLE, AgentObservation, ToolResult
from ue_rl.system.errors import ConfigurationError, ToolError, shorten
from ue_rl.system.lazy import named_if_missing

if TYPE_CHECKING:
    from ue_rl.bridges.base import BaseBridge
    from ue_rl.bridges.serving.thread import LoopServer
    from ue_rl.plugins.arena.player import ArenaEpisode, Playable
    from ue_rl.protocol.access.server_access import ServerAccess

MAX_STRANGERS = 100  # agents that nobody registered, whose last observation is kept
MAX_CONNECTIONS = 2000
MAX_SAID = 1000  # warnings
_log = logging.getLogger("ue_rl.plugins.arena")


class AgentArena:
    """Where agents are registered and asked.

        arena = AgentArena.connect(port=5000)
        arena.register("scout", MyBehavior())
        arena.run()                        # the game posts to http://127.0.0.1:5000 until Ctrl-C or stop()

    An agent that nobody registered gets the rule of thumb (behaviors.py). Ids match exactly.

    Args:
        behaviors: by agent id; the same object is used, so one that is filled later is fine.
        deadline: seconds that each agent has for a decision; then it is idle for that tick, and what it decides later
            is its decision of the next one. None: no limit.
        tools: what agents may call; None: those of Agent Arena's clients (standard.py).
        log: where decisions go.
        host, port: where it listens, once it is started; port 0 takes a free one.
        access: asks games for a token (Authorization: Bearer), and speaks TLS; None: neither.
        allow_hosts: names of pages and proxies that may ask, beside those of this machine (docs/security.md).

    Attributes:
        seen: the last observation of each agent that is registered, and of some others.
        max_strangers: how many those others are at most; may be changed.
        counts: ticks, decisions, and what went wrong by its code.
    """

    def __init__(
        self,
        behaviors: dict[str, AgentBehavior] | None = None,
        *,
        deadline: float | None = 10.0,
        tools: ToolRegistry | None = None,
        log: RunLog | None = None,
        host: str = "127.0.0.1",
        port: int = 5000,
        access: ServerAccess | None = None,
        allow_hosts: Collection[str] = (),
    ) -> None:
        if behaviors is not None:
            self.behaviors = behaviors
        else:
            self.behaviors = {}
        self.deadline = deadline
        self.host = host
        self.port = port
        self.access = access
        self.allow_hosts = allow_hosts
        self.seen: dict[str, AgentObservation] = {}
        if tools is not None:
            self.tools = tools
        else:
            self.tools = standard_tools(self.seen)
        if log is not None:
            self.log = log
        else:
            self.log = RunLog()
        self.counts: Counter[str] = Counter()
        self._seats: dict[str, AgentSlot] = {}
        self._deadlines: dict[str, float] = {}
        self._results: dict[str, ToolResult] = {}
        self._lock = threading.Lock()
        self._strangers: dict[str, None] = {}
        self.max_strangers = MAX_STRANGERS
        self._said: set[tuple[str, str]] = set()
        self._server: LoopServer | None = None
        self._stopped = threading.Event()

    @classmethod
    def connect(cls, host: str = "127.0.0.1", port: int = 5000, **options: Any) -> AgentArena:
        """An arena that will listen there, once `run`, `run_async` or `start` is called: the game is the client.

        Args:
            host, port, options: as of AgentArena.
        """
        return cls(host=host, port=port, **options)

    # -- who plays

    def register(self, agent_id: str, behavior: AgentBehavior, *, deadline: float | None = None) -> None:
        """`behavior` plays `agent_id` from its next observation on; an instance plays one agent.

        Args:
            deadline: seconds for a decision, where they differ from the arena's.

        Raises:
            ConfigurationError: it is no behaviour, or plays another agent already.
        """
        if not isinstance(behavior, AgentBehavior):
            raise ConfigurationError("not a behaviour", field="behavior", expected="an AgentBehavior", got=behavior)
        plays = [name for name, other in list(self.behaviors.items()) if other is behavior and name != agent_id]
        if plays:
            raise ConfigurationError(
                f"this behaviour plays agent {plays[0]!r} already",
                field="behavior",
                got=agent_id,
                cure="make another one",
            )
        self.behaviors[agent_id] = behavior
        if deadline is not None:
            self._deadlines[agent_id] = deadline

    def unregister(self, agent_id: str) -> None:
        """The agent gets the rule of thumb from now on. No error where nobody was registered."""
        self.behaviors.pop(agent_id, None)
        self._deadlines.pop(agent_id, None)
        self._results.pop(agent_id, None)
        self.seen.pop(agent_id, None)
        with self._lock:
            seat = self._seats.pop(agent_id, None)
        if seat is not None:
            seat.worker.close()

    def _seat(self, agent_id: str) -> AgentSlot | None:
        behavior = self.behaviors.get(agent_id)
        if behavior is None:
            return None
        with self._lock:
            seat = self._seats.get(agent_id)
            if seat is None or seat.behavior is not behavior:
                if seat is not None:
                    seat.worker.close()
                seat = self._seats[agent_id] = AgentSlot(agent_id, behavior)
            seat.deadline = self._deadlines.get(agent_id, self.deadline)
            return seat

    # -- a tick

    def tick(self, observations: Sequence[AgentObservation]) -> list[Decision]:
        """All these agents decide, side by side; in the order of `observations`. From any thread."""
        asked = [self._ask(seen, len(observations) == 1) for seen in observations]
        for each in asked:
            if each.future is not None:
                wait([each.future], each.left())
        return self._conclude(asked)

    async def tick_async(self, observations: Sequence[AgentObservation]) -> list[Decision]:
        """As `tick`, for an event loop: it waits, but holds nobody."""
        asked = [self._ask(seen, alone=False) for seen in observations]
        for each in asked:  # while it waits for one, the others decide
            if each.seat is not None and each.future is not None and not each.future.done():
                await asyncio.wait([each.seat.awaited(each.future)], timeout=each.left())
        return self._conclude(asked)

    def _ask(self, seen: AgentObservation, alone: bool) -> _Asked:
        result = self._results.pop(seen.agent_id, None)
        if result is not None and (seen.tool_result is None or seen.tool_result.tool == IDLE):
            seen = seen.model_copy(update={"tool_result": result})
        seat = self._seat(seen.agent_id)
        began = time.perf_counter()
        self._see(seen, stranger=seat is None)
        if seat is None:
            return _Asked(seen, None, None, began)
        return _Asked(seen, seat, seat.ask(seen, self.tools, inline=alone and seat.deadline is None), began)

    def _see(self, seen: AgentObservation, stranger: bool) -> None:
        """Keeps it: of agents that nobody registered only of the last ones."""
        self.seen[seen.agent_id] = seen
        if not stranger:
            return
        with self._lock:
            self._strangers[seen.agent_id] = None
            oldest = next(iter(self._strangers))
            if len(self._strangers) > self.max_strangers:
                del self._strangers[oldest]
                if oldest not in self.behaviors:
                    self.seen.pop(oldest, None)

    def _conclude(self, asked: Sequence[_Asked]) -> list[Decision]:
        outcomes = []
        for seen, seat, future, began in asked:
            if seat is None or future is None:
                outcome = Decision(seen, rule_of_thumb(seen))
            else:
                outcome = seat.outcome(seen, future, time.perf_counter() - began)
            self.counts["decisions"] += 1
            if outcome.code is not None:
                self.counts[outcome.code] += 1
                self._say(outcome.agent_id, outcome.code, outcome.refusal or outcome.message)
            if outcome.code in ("TOOL_NOT_FOUND", INVALID_PARAMETERS):  # what it called, in place of the idle that is
                refused = outcome.trace["refused"]["tool"]
                self._keep(outcome.agent_id, ToolResult(tool=refused, success=False, error=outcome.message))
            self.log.add(outcome)
            outcomes.append(outcome)
        self.counts["ticks"] += 1
        return outcomes

    def _say(self, agent_id: str, code: str, why: object) -> None:
        """In the log, of each kind once for each agent: else an agent could be idle for ever without a word."""
        if (agent_id, code) in self._said or len(self._said) >= MAX_SAID:
            return
        self._said.add((agent_id, code))
        _log.warning("agent %s: %s: %s (said once)", shorten(agent_id, 80), code, why)

    def end_episode(self, agent_id: str, success: bool, metrics: Mapping[str, Any], inline: bool = False) -> None:
        """Tells the agent's behaviour that its episode is over; what that raises is in the counts."""
        seat = self._seats.get(agent_id)
        if seat is not None:
            ended = seat.end(success, metrics, inline)
            ended.add_done_callback(lambda future: self._ended(agent_id, success, metrics, future))

    def _ended(self, agent_id: str, success: bool, metrics: Mapping[str, Any], future: Future[str]) -> None:
        error = future.exception()
        if error is not None:
            self.counts[DECISION_FAILED] += 1
            self._say(agent_id, DECISION_FAILED, f"the end of an episode: {shorten(error, 500)}")
        text = ""
        if error is None:
            text = future.result()
        self.log.add_episode(agent_id, success, metrics, text)

    def remember(self, agent_id: str, entry: Entry) -> Future[bool]:
        """Stores something in the memory of an agent's behaviour; the future says whether it has one.

        Raises:
            KeyError: nobody is registered by this id.
        """
        seat = self._seat(agent_id)
        if seat is None:
            raise KeyError(agent_id)
        memory = seat.behavior.memory

        def stored() -> bool:
            if memory is not None:
                memory.store(entry)
            return memory is not None

        return seat.do(stored)

    def execute(self, tool: str, params: Mapping[str, Any], agent_id: str = "") -> Any:
        """Calls a tool for an agent; what it returns, in JSON's types. It is also in the agent's next observation.

        Args:
            agent_id: registered, or seen; "": of none: the parameters of what the game carries out are checked.

        Raises:
            ToolError: TOOL_NOT_FOUND, INVALID_PARAMETERS, AGENT_NOT_FOUND, TOOL_EXECUTION_FAILED.
        """
        try:
            if agent_id and agent_id not in self.behaviors and agent_id not in self.seen:
                raise ToolError(
                    f"there is no agent {shorten(agent_id)!r}",
                    tool=tool,
                    code=AGENT_NOT_FOUND,
                    field="agent_id",
                    cure="register it, or post its observation to /observe or /tick first",
                )
            said = self.tools.answer(tool, params, agent=agent_id)
        except ToolError as error:
            self.counts[error.code] += 1
            self._keep(agent_id, ToolResult(tool=tool[:200], success=False, error=error.message))
            raise
        self._keep(agent_id, ToolResult(tool=tool, success=True, result=said))
        return said

    def _keep(self, agent_id: str, result: ToolResult) -> None:
        if agent_id in self.behaviors:
            self._results[agent_id] = result

    # -- over HTTP

    def start(self) -> LoopServer:
        """Listens in a thread of its own; returns when it does. `.url` says where; `port` is the real one from then on.

        Raises:
            OSError: the address cannot be listened on. MissingPackage: starlette or uvicorn is not installed.
        """
        with named_if_missing("the arena's server"):
            from ue_rl.bridges.serving.http import serve_app
            from ue_rl.plugins.arena.http.app import make_app

        self._stopped.clear()
        self._server = serve_app(
            make_app(self),
            self.host,
            self.port,
            "arena",
            connections=MAX_CONNECTIONS,
            access=self.access,
            allow_hosts=self.allow_hosts,
        )
        self.port = urlsplit(self._server.url).port or self.port
        return self._server

    def run(self, ready: Callable[[str], None] | None = None) -> None:
        """Listens until Ctrl-C or `stop()`; `ready` gets the URL once it does. Raises as `start`."""
        asyncio.run(self.run_async(ready))

    async def run_async(self, ready: Callable[[str], None] | None = None) -> None:
        """As `run`, within an event loop; it ends with its task."""
        server = self.start()
        try:
            if ready is not None:
                ready(server.url)
            await asyncio.to_thread(self._stopped.wait)
        finally:
            self.stop()

    def stop(self) -> None:
        """Stops listening, and ends the agents' threads; from any thread, idempotent."""
        self._stopped.set()
        server = self._server
        self._server = None
        if server is not None:
            server.close()
        self.close()

    def close(self) -> None:
        """Ends the agents' threads. One that is within decide() ends with it."""
        with self._lock:
            seats = self._seats
            self._seats = {}
        for seat in seats.values():
            seat.worker.close()

    # -- without HTTP

    @classmethod
    def play(
        cls,
        game: Playable | BaseBridge,
        behaviors: Mapping[str, AgentBehavior] | AgentBehavior | None = None,
        **options: Any,
    ) -> list[ArenaEpisode]:
        """Plays episodes of a scene, or of a bridge, in this process; see `ue_rl.plugins.arena.player.play`."""
        from ue_rl.plugins.arena.player import play

        return play(cls, game, behaviors, **options)


class _Asked(NamedTuple):
    """One agent in a tick; without a seat nobody was registered."""

    seen: AgentObservation
    seat: AgentSlot | None
    future: Future[Any] | None
    began: float

    def left(self) -> float | None:
        """Seconds of its deadline; None without one."""
        if self.seat is None or self.seat.deadline is None:
            return None
        return max(0.0, self.began + self.seat.deadline - time.perf_counter())
