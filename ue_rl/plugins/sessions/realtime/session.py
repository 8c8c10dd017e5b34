"""Session: one agent's part of a game that does not wait: a handle. Its SharedGame moves in a worker."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.hosting import Describes, Renders, TellsMap
from ue_rl.plugins.sessions.realtime.lifecycle import LifeCycle, Phase, SessionEvent
from ue_rl.plugins.sessions.realtime.observation import Action, SessionObservation, SessionState
from ue_rl.plugins.sessions.realtime.queues import ActionQueue, Mailbox
from ue_rl.plugins.sessions.realtime.request import Request
from ue_rl.system.errors import (
    ConfigurationError,
    GameFailed,
    SessionEnded,
    SessionError,
    UeRlError,
    UnsupportedByEngine,
)
from ue_rl.system.json_text import whole_text
from ue_rl.system.json_values import NotJson, json_value

if TYPE_CHECKING:
    from ue_rl.plugins.sessions.realtime.pool import SessionPool
    from ue_rl.plugins.sessions.realtime.replay import ReplayRecorder
    from ue_rl.plugins.sessions.realtime.shared_game import SharedGame


_log = logging.getLogger("ue_rl.plugins.sessions.realtime")


class Session:
    """Made by a SessionPool. Every method may be called from any thread.

    Attributes:
        id: its name. pool: made it. tick_rate: ticks a second; 0: as fast as it can; None: it advances when told.
        planning: seconds that the world stands still at the beginning of an episode.
        world: it is a row of. life: where it stands. queue, mailbox: between the agent and the world.
        gone: done once it has left its world.
        attached: an agent has said that it is there. kept: it may be idle for as long as it likes.
        recorder: writes its replay; None: nobody wants one.
        For its world alone: row, current (the request that is being done), waiting (those behind it), resetting,
        untouched (as it was created), seed and options (of its first episode), tool_answers, plain (no clock moves it,
        and nobody records it).
    """

    def __init__(
        self,
        pool: SessionPool,
        world: SharedGame,
        session_id: str,
        seed: int | None,
        options: Mapping[str, Any] | None,
        tick_rate: float | None,
        planning: float,
        recorder: ReplayRecorder | None = None,
    ) -> None:
        self.id = session_id
        self.pool = pool
        self.tick_rate = tick_rate
        self.planning = planning
        self.seed = seed
        self.options = options
        self.recorder = recorder
        self.life = LifeCycle()
        self.queue: ActionQueue[Action] = ActionQueue()
        self.mailbox = Mailbox()
        self.attached = self.kept = False
        self.plain = tick_rate is None and recorder is None
        self.row = -1
        self.current: Request | None = None
        self.waiting: deque[Request] = deque()
        self.resetting = True
        self.untouched = False
        self.tool_answers: list[dict[str, Any]] = []
        self._used = time.monotonic()
        self.world = world
        self.gone: Future[None] = Future()
        self.gone.set_running_or_notify_cancel()  # nobody who waits for it can cancel it
        self._planned: object = None
        self._listeners: list[Callable[[], None]] = []
        self.life.on(SessionEvent.LAUNCH)

    # -- where it stands

    @property
    def phase(self) -> Phase:
        """Where it stands."""
        return self.life.phase

    @property
    def reason(self) -> str:
        """Why it has ended; "" while it lives."""
        return self.life.reason

    @property
    def idle_seconds(self) -> float:
        """Since an agent last did anything with it; 0 while a request is being done, and where it is kept."""
        if self.kept or self.current is not None or self.waiting:
            return 0.0
        return time.monotonic() - self._used

    def touch(self) -> None:
        """An agent is there: the session is not idle."""
        self._used = time.monotonic()

    def ended(self) -> SessionEnded:
        """The error for whoever still wants something of it."""
        return SessionEnded(
            f"the session has ended: {self.reason or 'it was destroyed'}",
            field="session_id",
            got=self.id,
            cure="create another session",
        )

    def _use(self) -> None:
        if not self.life.live:
            raise self.ended()
        self.touch()

    # -- advancing

    def submit(
        self,
        ticks: int = 1,
        actions: Sequence[Action] = (),
        interrupts: Sequence[str] = (),
        reset: bool = False,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        wait: float | None = None,
    ) -> Future[SessionObservation]:
        """First a reset, where asked for, then the actions, then the ticks; what is seen then.

        A session's requests are done one after the other. One ends early with its episode, or at an interrupt. Where
        the session has a tick rate, it waits until its clock has made that many ticks.

        Args:
            ticks: 0 to 5000. With 0 only the reset and tool calls are done, now; numbers wait for the next tick.
            actions: the last 16 are applied in the first tick, in their order.
            interrupts: names of the game's events that end it early; "*": all.
            seed, options: of the reset.
            wait: seconds to wait here for a place in the queue; None: the pool's `queue_wait`.

        Raises:
            ResourceExhausted: no place. SessionEnded. ActionError, ToolError, ConfigurationError, UnsupportedByEngine:
                what was asked is wrong; nothing was done. The future also raises GameFailed, SessionEnded, and
                ConfigurationError where the episode is over and no reset was asked for.
        """
        if not self.life.live:
            raise self.ended()
        checks = self.pool.checks
        answer: Future[SessionObservation] = Future()
        wanted_seed = None
        if reset:
            wanted_seed = seed
        wanted_options = None
        if reset:
            wanted_options = options
        request = Request(
            answer,
            checks.ticks(ticks),
            checks.actions(actions),
            checks.interrupts(interrupts),
            reset,
            checks.seed(wanted_seed),
            checks.options(wanted_options),
        )
        request.leave = self.pool.take_place(wait)
        answer.add_done_callback(lambda _: self.touch())
        self.wait_with(request)
        self.world.post(partial(self.world.next, self))
        return answer

    def wait_with(self, request: Request) -> None:
        """Behind what was asked before; whoever calls this posts `next` to the world."""
        self._used = time.monotonic()
        self.waiting.append(request)
        if not self.life.live:
            self.fail_all()

    def advance(
        self,
        ticks: int = 1,
        actions: Sequence[Action] = (),
        interrupts: Sequence[str] = (),
        reset: bool = False,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> SessionObservation:
        """As `submit`, and waits.

        Raises:
            TimeoutError: it was not done within `timeout` seconds, and is done later. Otherwise as `submit`.
        """
        return self.submit(ticks, actions, interrupts, reset, seed, options).result(timeout)

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> SessionObservation:
        """Begins an episode. The first one of a session that nobody has used begins no second time.

        Raises:
            as `advance`.
        """
        return self.advance(0, reset=True, seed=seed, options=options)

    # -- in real time

    def act(self, *actions: Action) -> None:
        """Actions for the next tick; of more than 16 that wait the oldest are dropped and counted.

        Raises:
            SessionEnded. ActionError, ToolError: wrong; none of them waits then.
        """
        self._use()
        for action in self.pool.checks.actions(actions):
            self.queue.put(action)
        self.world.orders.waiting.add(self)

    def observe(self, timeout: float | None = None) -> SessionObservation | None:
        """The newest observation that nobody has taken; waits for it. None: there was none within `timeout` seconds.

        Raises:
            SessionEnded: and all has been taken.
        """
        self.touch()
        observation = self.mailbox.take(timeout)
        if observation is None and not self.life.live:
            raise self.ended()
        return observation

    @property
    def latest(self) -> SessionObservation:
        """The newest observation, taken or not; waits for the first one.

        Raises:
            SessionEnded: before there was any.
        """
        self.touch()
        if self.mailbox.newest is None:
            self.mailbox.wait()
        if self.mailbox.newest is None:
            raise self.ended()
        return self.mailbox.newest

    def subscribe(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Calls `notify`, which must be quick and not raise, in another thread: for each observation, and at the end.

        Returns:
            what ends that.
        """
        self._listeners = [*self._listeners, notify]
        if not self.life.live:
            notify()

        def unsubscribe() -> None:
            self._listeners = [each for each in self._listeners if each is not notify]

        return unsubscribe

    def tell(self) -> None:
        """Calls who has subscribed."""
        for notify in self._listeners:
            notify()

    def attach(self) -> None:
        """An agent's stream is there."""
        self._use()
        self.attached = True
        self.life.may(SessionEvent.ATTACH)

    def detach(self, reason: str) -> None:
        """It is lost: the session ends because of `reason`."""
        self.leave(SessionEvent.LOSE, reason)

    def start(self) -> None:
        """The agent has planned enough: the world moves from now on."""
        self._use()
        self.world.post(partial(self.world.start, self))

    def plan_ends(self) -> Callable[[], None]:
        """What ends the planning of an episode that begins now."""
        self._planned = planned = object()

        def over() -> None:
            if self._planned is planned:
                self.world.post(partial(self.world.start, self))

        return over

    # -- in words

    def state(self, text: str | None = None) -> SessionState:
        """Where it stands, also once it has ended. `text`: what `describe` says; None: it is asked."""
        newest = self.mailbox.newest
        if self.row >= 0:
            tick = self.world.tick_of(self)
        elif newest is not None:
            tick = newest.tick
        else:
            tick = 0
        result = ""
        if newest is not None:
            result = newest.result
        if text is None:
            shown = self.describe()
        else:
            shown = text
        return SessionState(
            self.id,
            self.phase.value,
            tick,
            result,
            shown,
            self.idle_seconds,
        )

    def describe(self) -> str:
        """What the game says of it in words; "" where it says nothing within 10 s, or no more."""
        text = self.text()
        try:
            if text is not None:
                return str(text.result(self.pool.patience))
            return ""
        except (SessionError, TimeoutError):
            return ""

    def text(self) -> Future[str] | None:
        """The same, asked between two ticks; None where nothing is said. The future raises as `render`."""
        if not isinstance(self.pool.example, Describes) or self.row < 0:
            return None
        return self.world.ask(
            self, lambda game, row: whole_text(game.describe(row) if isinstance(game, Describes) else "")
        )

    def map_info(self) -> Future[dict[str, Any]]:
        """The game's map, in JSON's types, asked between two ticks. The future raises as `render`; GameFailed
        also where JSON cannot hold the map: it names the place and the type.

        Raises:
            UnsupportedByEngine: it has none. SessionEnded.
        """
        self._use()
        if not isinstance(self.pool.example, TellsMap):
            raise UnsupportedByEngine("this game has no map", cure="the bridge may define map_info(env_id)")
        return self.world.ask(self, lambda game, row: _map_of(game.map_info(row)) if isinstance(game, TellsMap) else {})

    def render(self) -> Future[NDArray[np.uint8] | None]:
        """The game's picture, uint8 [height, width, 3]; None where it has none now. Asked between two ticks.

        The future raises SessionEnded, and GameFailed where the game raised; the session goes on.
        """
        return self.world.ask(self, lambda game, row: game.render(row) if isinstance(game, Renders) else None)

    # -- the end

    def destroy(self, wait: float | None = None) -> None:
        """Ends it; what was asked of it is answered by SessionEnded.

        Args:
            wait: seconds to wait at most until it has left its world, whatever the game does; None: 10.
        """
        if self.leave(SessionEvent.DESTROY, "it was destroyed") and not self.pool.is_worker():
            if wait is None:
                patience = self.pool.patience
            else:
                patience = wait
            futures.wait([self.gone], patience)

    def leave(self, event: SessionEvent, reason: str, why: SessionError | None = None) -> bool:
        """Begins the end; False: it has begun before. `why`: for the request that is being done."""
        if not self.life.may(event, reason):
            return False
        self.life.may(SessionEvent.DESTROY)
        self.pool.forget(self)
        self.fail_all(why)
        self.world.post(partial(self.world.end, self))
        return True

    def game_failed(self, error: BaseException) -> GameFailed:
        """For who waits; the traceback is logged, with the row of the game, which nobody else knows."""
        said = repr(error)
        if isinstance(error, UeRlError):
            said = UeRlError(error.message, **error.facts(env_id=None)).plain()
        reason = f"the game failed: {said}"
        _log.error("session %s: %s", self.id, reason, exc_info=error)
        return GameFailed(reason, field="session_id", got=self.id)

    def fail_all(self, why: SessionError | None = None) -> None:
        """Whoever waits for an answer is told that the session has ended; who is being answered, `why`."""
        error = self.ended()
        if (current := self.current) is not None:
            reason = why
            if not reason:
                reason = error
            current.fail(self, reason)
        while (request := self.next_request()) is not None:
            request.fail(self, error)

    def next_request(self) -> Request | None:
        """The first of those that wait, which waits no longer; its world, or who ends it, may be quicker."""
        try:
            return self.waiting.popleft()
        except IndexError:
            return None

    def cleaned(self) -> None:
        """For its world: it has left."""
        self.life.may(SessionEvent.CLEANED)
        self.mailbox.close()
        if self.recorder is not None:
            self.recorder.close()
        self.gone.set_result(None)
        self.tell()


def _map_of(said: Any) -> dict[str, Any]:
    """What a game said of its map, in JSON's types.

    Raises:
        ConfigurationError: JSON cannot hold it, or it is no object.
    """
    try:
        found = json_value(said, "map_info")
    except NotJson as error:
        raise ConfigurationError(
            "JSON cannot hold what the game says of its map", fault="engine", field="map_info", got=str(error)
        ) from error
    if not isinstance(found, dict):
        raise ConfigurationError(
            "what the game says of its map is no object", fault="engine", field="map_info", expected="a dict", got=said
        )
    return found
