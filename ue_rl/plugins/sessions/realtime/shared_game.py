"""SharedGame: one bridge, whose rows are sessions. One worker at a time runs it; nobody else touches it.

What others want of it they post: a function that is called between two ticks. All rows that are to move in a tick go
into one call of the game. No I/O.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.base import BaseBridge
from ue_rl.bridges.tools import ToolRegistry
from ue_rl.plugins.sessions.realtime.lifecycle import Phase, SessionEvent
from ue_rl.plugins.sessions.realtime.observation import ObservationColumns
from ue_rl.plugins.sessions.realtime.orders import Orders
from ue_rl.plugins.sessions.realtime.paces import Paces
from ue_rl.plugins.sessions.realtime.source import close_bridge
from ue_rl.plugins.sessions.realtime.stage import Rows, Stage
from ue_rl.plugins.sessions.realtime.workers import RAISED, Turn, Workers
from ue_rl.system.errors import ConfigurationError, ProtocolError, SessionEnded, UeRlError

if TYPE_CHECKING:
    from ue_rl.plugins.sessions.realtime.counters import Counters
    from ue_rl.plugins.sessions.realtime.request import Request, TickBatch
    from ue_rl.plugins.sessions.realtime.session import Session

_log = logging.getLogger("ue_rl.plugins.sessions.realtime")


class SharedGame:
    """See the module's docstring.

    Args:
        make: makes the bridge, in a worker, when the first session begins.
        rows: sessions that it has room for. own: the bridge ends with its session.
        workers: run it. counters: of the pool. hold, max_ticks, catch_up: see SessionPool.

    Attributes:
        orders: the actions that wait. paces: by which rows move. turn: set by Workers alone.
    """

    turn = Turn.IDLE

    def __init__(
        self,
        make: Callable[[], BaseBridge],
        rows: int,
        workers: Workers,
        counters: Counters,
        *,
        own: bool,
        hold: bool,
        max_ticks: int,
        catch_up: bool,
    ) -> None:
        self._make = make
        self._workers = workers
        self._counters = counters
        self._own = own
        self._hold = hold
        self._max_ticks = max_ticks
        self._inbox: deque[Callable[[], None]] = deque()
        self.orders = Orders(counters)
        self._sessions: list[Session | None] = [None] * rows
        self._newcomers: deque[Session] = deque()
        self._resets: list[tuple[Session, Request | None]] = []
        self.paces = Paces(
            rows, catch_up, workers.at, partial(workers.schedule, self, first=True), late=self._count_late
        )
        self._stage: Stage | None = None
        self._told = np.zeros(rows, np.bool_)  # rows that move for a request
        self._told_rows: Rows | None = None

    # -- from any thread

    def post(self, what: Callable[[], None]) -> None:
        """Calls `what`, which must not raise, between two ticks."""
        self._inbox.append(what)
        if not self._workers.schedule(self):
            self.drain()

    def drain(self) -> None:
        """What was posted; once nothing runs any more, it finds that all has ended."""
        while self._inbox:
            self._inbox.popleft()()

    def ask(self, session: Session, what: Callable[[BaseBridge, int], Any]) -> Future[Any]:
        """What `what(bridge, row)` gives, called between two ticks."""
        answer: Future[Any] = Future()

        def call() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                if self._stage is None or session.row < 0:
                    raise SessionEnded("the game is not there")
                answer.set_result(what(self._stage.bridge, session.row))
            except RAISED as error:
                answer.set_exception(error if isinstance(error, SessionEnded) else session.game_failed(error))

        self.post(call)
        return answer

    def tick_of(self, session: Session) -> int:
        """Ticks of its episode."""
        stage = self._stage
        row = session.row
        if stage is not None and row >= 0:
            return int(stage.ticks[row])
        return 0

    def run(self, until: float) -> bool:
        """Works, until `until` (time.perf_counter()) where there is that much to do; whether something is left."""
        ticks = 0
        try:
            while True:
                if self._inbox:
                    self.drain()
                if self._resets:
                    resets = self._resets
                    self._resets = []
                    self._reset([each for each in resets if each[0].row >= 0])
                rows = self._due()
                if not len(rows):
                    return bool(self._inbox or self._resets)
                self._tick(rows)
                ticks += len(rows)
                if time.perf_counter() > until:
                    return True
        finally:
            self._counters.add("ticks", ticks)

    # -- sessions come and go

    def begin(self, session: Session) -> None:
        """A session takes a row; where none is free yet, once one is."""
        if not session.life.live:
            return
        if None not in self._sessions:
            self._newcomers.append(session)
            return
        session.row = row = self._sessions.index(None)
        self._sessions[row] = session
        try:
            if self._stage is None:
                bridge = self._make()
                try:
                    self.orders.tools = ToolRegistry.of(bridge)
                    self._stage = Stage(bridge, self._hold, self._max_ticks)
                except BaseException:
                    close_bridge(bridge)
                    raise
        except RAISED as error:
            self._end_failed(session, error)
            return
        self._stage.late[row] = 0
        session.life.on(SessionEvent.LAUNCHED)
        self._resets.append((session, None))

    def end(self, session: Session) -> None:
        """The session leaves; its row is free. Once more would do nothing."""
        if session.gone.done():
            return
        session.fail_all()
        session.current = None
        row = session.row
        if row >= 0:
            self._stop(row)
            self._sessions[row], session.row = None, -1
            self.orders.waiting.discard(session)
            if self._own and self._stage is not None:
                stage = self._stage
                self._stage = None
                close_bridge(stage.bridge)
        session.cleaned()
        if self._newcomers and None in self._sessions:
            self.begin(self._newcomers.popleft())

    # -- requests

    def next(self, session: Session) -> None:
        """Begins what waits, once what was asked before it has been answered."""
        if not session.life.live:
            session.fail_all()
        while session.waiting and session.current is None and not session.resetting:
            request = session.next_request()
            if request is None or not request.begin(session):
                continue
            session.current = request
            if request.reset and not (session.untouched and request.seed is None and request.options is None):
                session.life.may(SessionEvent.RESET)
                self._stop(session.row)
                session.resetting = True
                self._resets.append((session, request))
            else:
                self._proceed(session, request)

    def next_all(self, batch: TickBatch, sessions: Sequence[Session]) -> None:
        """As `next` of each; those that have nothing else to do begin in one go."""
        stage = self._stage
        ready = []
        ordered = self.orders.waiting
        batch_alone = deque([batch])
        for session in sessions:
            idle = session.life.phase is Phase.PLAYING and session.current is None and session.plain
            if idle and session.waiting == batch_alone and session not in ordered and session.next_request():
                session.current = batch
                ready.append(session)
            else:
                self.next(session)
        if not ready or stage is None:
            return
        batch.taken_up()
        rows = [session.row for session in ready]
        stage.left[rows], stage.wanted[rows] = batch.ticks, batch.wanted
        self._told[rows] = True
        self._told_rows = None
        if batch.rows is not None:
            every = len(ready) == len(batch.places)
            if every:
                acting = batch.rows
            else:
                acting = batch.rows[[batch.places[each.id] for each in ready]]
            stage.act_all(rows, acting)

    def _proceed(self, session: Session, request: Request) -> None:
        """The episode is there: the actions, and the ticks."""
        stage = self._stage
        row = session.row
        assert stage is not None
        over = session.life.phase in (Phase.GAME_OVER, Phase.LOADING)
        if request.ticks and over:
            session.current = None
            what = "the episode is over"
            cure = "reset the session first"
            request.fail(session, ConfigurationError(what, field="session_id", got=session.id, cure=cure))
            return
        actions = request.of(session)
        session.untouched &= not (request.ticks or actions or request.reset)
        for action in actions:
            session.queue.put(action)
        if request.ticks:
            if actions:
                self.orders.waiting.add(session)
            stage.left[row], stage.wanted[row] = request.ticks, request.wanted
            if session.life.phase is not Phase.PLAYING:
                self.start(session)
            if session.tick_rate is None:
                self._told[row] = True
                self._told_rows = None
            return
        self.orders.call_tools(session, stage)
        session.current = None
        if request.reset:
            session.mailbox.forget()  # its first observation is the answer
        request.answered(stage.observe([row], self._sessions, over), [0])

    def start(self, session: Session) -> None:
        """The world of this session moves from now on, by its clock where it has one."""
        row = session.row
        rate = session.tick_rate
        if row < 0 or not session.life.may(SessionEvent.START) or rate is None:
            return
        self.paces.start(row, rate)

    def _stop(self, row: int) -> None:
        self._told[row] = False
        self._told_rows = None
        self.paces.stop(row)

    # -- episodes

    def _reset(self, resets: Sequence[tuple[Session, Request | None]]) -> None:
        stage = self._stage
        if stage is None or not resets:
            return
        told = [
            (session.seed, session.options) if asked is None else (asked.seed, asked.options)
            for session, asked in resets
        ]
        try:
            stage.reset([session.row for session, _ in resets], told)
        except RAISED as error:
            asked_wrong = isinstance(error, ProtocolError) and error.fault == "trainer"
            if not asked_wrong:
                self._failed([session.row for session, _ in resets], error)
            elif len(resets) > 1:  # each alone, to see whose it is
                stage.forget()
                for each in resets:
                    self._reset([each])
            else:
                self._refuse(*resets[0], error)
            return
        for session, asked in resets:
            self._begun(stage, session, asked)

    def _refuse(self, session: Session, asked: Request | None, error: BaseException) -> None:
        """The game cannot use the options of a reset."""
        assert self._stage is not None
        self._stage.forget()
        if asked is None:
            self._end_failed(session, error)
            return
        session.life.may(SessionEvent.OVER)
        session.resetting = False
        session.current = None
        asked.fail(session, error)
        self.next(session)

    def _begun(self, stage: Stage, session: Session, asked: Request | None) -> None:
        session.untouched = asked is None and session.tick_rate is None
        session.resetting = False
        session.life.on(SessionEvent.LOADED)
        session.mailbox.forget()
        try:
            first = stage.observe([session.row], self._sessions, False)[0]
        except RAISED as error:
            self._end_failed(session, error)
            return
        session.mailbox.put(first)
        if session.recorder is not None:
            told = session if asked is None else asked
            session.recorder.began(told.seed, told.options, first)
        session.tell()
        if session.attached:
            session.life.may(SessionEvent.ATTACH)
        if session.tick_rate is not None:
            if session.planning and not (asked is not None and asked.ticks):
                self._workers.at(time.perf_counter() + session.planning, session.plan_ends())
            else:
                self.start(session)
        if asked is not None:
            if not asked.ticks and first.info:  # the answer is a look of its own, behind the tools that are called
                stage.tell_again(session.row, first.info)
            self._proceed(session, asked)
        self.next(session)

    # -- ticks

    def _due(self) -> Rows:
        """The rows that move in the next tick."""
        if self.paces.moving and (moving := self.paces.due()) is not None:
            return np.flatnonzero(moving | self._told)
        if self._told_rows is None:
            self._told_rows = self._told.nonzero()[0]
        return self._told_rows

    def _count_late(self, rows: NDArray[np.bool_]) -> None:
        if self._stage is not None:
            self._stage.late += rows
            self._counters.add("late_ticks", int(rows.sum()))

    def _tick(self, rows: Rows) -> None:
        stage = self._stage
        assert stage is not None
        try:
            if self.orders.waiting:
                self.orders.apply(stage, rows)
            stops = stage.tick(rows)
        except RAISED as error:
            self._failed(rows.tolist(), error)
            return
        if self.paces.moving:
            shown = stops | ~self._told[rows]
        else:
            shown = stops
        if count := np.count_nonzero(shown):
            if count < len(rows):
                rows = rows[shown]
                stops = stops[shown]
            self._told[rows] &= ~stops
            self._told_rows = None
            self._publish(stage, rows.tolist(), stops.tolist())

    def _publish(self, stage: Stage, rows: list[int], stops: list[bool]) -> None:
        """After a tick that somebody waits for, or that has ended the episode."""
        try:
            seen = stage.observe(rows, self._sessions, True)
        except RAISED as error:
            self._failed(rows, error)
            left = [number for number, row in enumerate(rows) if self._sessions[row] is not None]
            if left:
                self._publish(stage, [rows[number] for number in left], [stops[number] for number in left])
            return
        answered: dict[Request, list[int]] = {}
        sessions: list[Any] = [self._sessions[row] for row in rows]
        every = zip(sessions, stops, seen.columns.terminated, seen.columns.truncated, strict=True)
        for number, (session, stop, terminated, truncated) in enumerate(every):
            request = session.current
            over = terminated or truncated
            if session.recorder is not None:
                session.recorder.reached(seen[number])
            if session.tick_rate is None:
                session.mailbox.give(seen, number)
            else:
                session.mailbox.put(seen[number], wanted=request is None)
            if over:  # only now: who sees that it is over finds what was seen last
                session.life.may(SessionEvent.OVER)
                self._stop(session.row)
            if request is not None and (over or stop):
                session.current = None
                if session.tick_rate is None:
                    answered.setdefault(request, []).append(number)
                else:
                    seen_now = session.mailbox.take()
                    if not seen_now:
                        seen_now = seen[number]
                    request.answered(ObservationColumns.of([seen_now]), [0])
        for request, numbers in answered.items():
            request.answered(seen, numbers)
        for session in sessions:
            session.tell()
            if session.waiting:
                self.next(session)

    def _failed(self, rows: list[int], error: BaseException) -> None:
        """The game raised: ends the session that the error names by its env id, else all that were in the call."""
        assert self._stage is not None
        self._stage.forget()
        named = None
        if isinstance(error, UeRlError):
            named = error.env_id
        if named in rows:
            chosen = [named]
        else:
            chosen = rows
        for row in chosen:
            session = None
            if row is not None:
                session = self._sessions[row]
            if session is not None:
                self._end_failed(session, error)

    def _end_failed(self, session: Session, error: BaseException) -> None:
        failed = session.game_failed(error)
        self._counters.add("sessions_failed")
        session.leave(SessionEvent.LOSE, failed.message, failed)
        self.end(session)
