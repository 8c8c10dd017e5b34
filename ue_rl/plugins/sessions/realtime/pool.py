"""SessionPool: many sessions of one game in one process."""

from __future__ import annotations

import itertools
import logging
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent import futures
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.tools import ToolRegistry
from ue_rl.plugins.sessions.realtime.checks import Checks
from ue_rl.plugins.sessions.realtime.counters import Counters
from ue_rl.plugins.sessions.realtime.lifecycle import Phase, SessionEvent
from ue_rl.plugins.sessions.realtime.observation import SessionObservation
from ue_rl.plugins.sessions.realtime.request import Request, TickBatch
from ue_rl.plugins.sessions.realtime.session import Session
from ue_rl.plugins.sessions.realtime.shared_game import SharedGame
from ue_rl.plugins.sessions.realtime.source import Game, GameSource
from ue_rl.plugins.sessions.realtime.workers import Workers
from ue_rl.protocol.text.handshake import encode_handshake
from ue_rl.system.closing import Closing
from ue_rl.system.errors import ActionError, ConfigurationError, ResourceExhausted, SessionEnded, SessionNotFound
from ue_rl.system.json_text import whole_text

if TYPE_CHECKING:
    from ue_rl.plugins.sessions.realtime.replay import ReplayRecorder

PATIENCE = 10.0  # seconds
_log = logging.getLogger("ue_rl.plugins.sessions.realtime")
_AS_THE_POOL: Any = object()
_REMEMBERED = 1024  # sessions that have ended, to say why
_STARTS_WITHIN = 120.0  # seconds that a session may load


class SessionPool(Closing):
    """Sessions of one game; see docs/realtime.md. Every method may be called from any thread.

    Args:
        game: "module:Class", a Gymnasium id, or what makes a bridge when it is called with num_envs.
        max_sessions: how many may live at once.
        workers: threads that tick; None: as many as there are cores, 8 at most.
        tick_rate: of sessions that are created without one. None: they advance when told. 0: as fast as they can.
        planning: seconds that the world stands still at the beginning of an episode of a session with a tick rate.
        together: one bridge whose rows are the sessions; None: where the game is a VectorBridge.
        hold: a tick without an action repeats the last one, instead of doing nothing.
        idle_timeout: seconds after which a session that nobody uses is ended.
        queue_wait: seconds that a request waits for a place in the queue, which has four for each worker.
        max_ticks: an episode is truncated there; 0: never.
        record: the folder for a replay of each session (ue_rl/plugins/sessions/realtime/replay.py); None: nothing is
        recorded. catch_up: see GameClock.
        kwargs: for the game.

    Attributes:
        name: of the game. spec: of one session. handshake: the same as a CONFIG line, of one env, without newline.
        tools: the game's. rules: in words. example: a bridge of the game.
        patience: seconds that closing, destroying a session and asking for its state in words wait at most for a game
            that hangs; may be changed.
        counters: what was counted. max_sessions, workers, tick_rate, planning, idle_timeout, queue_wait: as above.

    Raises:
        ConfigurationError: a wrong argument, or the game cannot be loaded or has agents or images.
    """

    def __init__(
        self,
        game: Game,
        *,
        max_sessions: int = 64,
        workers: int | None = None,
        tick_rate: float | None = None,
        planning: float = 0.0,
        together: bool | None = None,
        hold: bool = False,
        idle_timeout: float = 300.0,
        queue_wait: float = 5.0,
        max_ticks: int = 0,
        record: Path | None = None,
        catch_up: bool = False,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        if workers is None:
            cores = os.cpu_count()
            if not cores:
                cores = 1
            count = min(cores, 8)
        else:
            count = workers
        if min(max_sessions, count) < 1 or min(max_ticks, planning, queue_wait) < 0 or not idle_timeout > 0:
            raise ConfigurationError(
                "a pool of sessions cannot be so",
                got={"max_sessions": max_sessions, "workers": count},
                expected="one session and one worker at least, and no negative numbers",
            )
        self.max_sessions = max_sessions
        self.patience = PATIENCE
        self.workers = count
        self.planning = planning
        game_kwargs = kwargs or {}
        self._source = source = GameSource(game, max_sessions, game_kwargs, together)
        self.name = source.name
        self.spec = source.spec
        self.example = source.example
        self.handshake = encode_handshake(self.spec).decode().rstrip("\n")
        self.tools = ToolRegistry.of(self.example)
        rules = getattr(self.example, "rules", "") or type(self.example).__doc__
        if not rules:
            rules = ""
        self.rules = whole_text(rules)
        self.counters = Counters()
        self.checks = Checks(self.spec, self.tools, self.example)
        self.tick_rate = self.checks.tick_rate(tick_rate)
        self.idle_timeout = idle_timeout
        self.queue_wait = queue_wait
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self._ended: OrderedDict[str, str] = OrderedDict()
        self._ids = itertools.count(1)
        self._name = secrets.token_hex(4)
        self._closed = False
        extra = 0
        if source.shared is not None:
            extra = max_sessions
        self._places = threading.Semaphore(count * 4 + extra)
        self._threads = Workers(count)
        self._record = record
        self._kwargs = dict(kwargs or {})
        self._world_options = {"hold": hold, "max_ticks": max_ticks, "catch_up": catch_up}
        if source.shared is None:
            self._shared = None
        else:
            self._shared = self._world(lambda: self.example, max_sessions, own=False)
        self._reap()

    # -- sessions

    def create(
        self,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        tick_rate: float | None = _AS_THE_POOL,
        planning: float = _AS_THE_POOL,
        session_id: str | None = None,
    ) -> Session:
        """A session, at once: a worker makes its world. What is asked of it before that waits.

        Args:
            seed: of its first episode; None: drawn, where the game takes seeds. options: of that episode.
            tick_rate, planning: None and left out are different: left out is as the pool.
            session_id: None: made up.

        Raises:
            ResourceExhausted: `max_sessions` are there. ConfigurationError, UnsupportedByEngine: a wrong argument.
            SessionEnded: the pool is closed.
        """
        seed = self.checks.seed(seed)
        options = self.checks.options(options)
        if tick_rate is _AS_THE_POOL:
            rate = self.tick_rate
        else:
            rate = self.checks.tick_rate(tick_rate)
        if seed is None and "SEED" in self.spec.features:
            seed = secrets.randbits(31)
        with self._lock:
            if self._closed:
                raise SessionEnded("the pool of sessions is closed")
            if len(self._sessions) >= self.max_sessions:
                raise ResourceExhausted(
                    f"all {self.max_sessions} sessions are taken",
                    field="session_id",
                    cure="destroy one, try again later, or serve more: --max-sessions",
                )
            name = session_id
            if not name:
                name = f"{self._name}-{next(self._ids)}"
            if name in self._sessions:
                raise ConfigurationError("there is a session of this id", field="session_id", got=name)
            world = self._shared or self._world(self._source.own, 1, own=True)
            if planning is _AS_THE_POOL:
                planned = self.planning
            else:
                planned = planning
            recorder = None
            if self._record is not None:
                recorder = self._recorder(self._record, name, rate)
            session = Session(self, world, name, seed, options, rate, planned, recorder)
            self._sessions[name] = session
        self.counters.add("sessions_created")
        world.post(partial(world.begin, session))
        return session

    def _recorder(self, folder: Path, name: str, rate: float | None) -> ReplayRecorder:
        from ue_rl.plugins.sessions.realtime.replay import ReplayRecorder

        header = {"game": self.name, "kwargs": self._kwargs, "session_id": name}
        options = {key: self._world_options[key] for key in ("hold", "max_ticks")}
        return ReplayRecorder(folder, name, self.spec, {**header, **options, "tick_rate": rate})

    def _world(self, make: Callable[[], Any], rows: int, own: bool) -> SharedGame:
        return SharedGame(make, rows, self._threads, self.counters, own=own, **self._world_options)  # type: ignore[arg-type]

    def get(self, session_id: str) -> Session:
        """A session that lives.

        Raises:
            SessionNotFound. SessionEnded: it says why.
        """
        with self._lock:
            session = self._sessions.get(session_id)
            if session is not None:
                return session
            if session_id in self._ended:
                raise SessionEnded(
                    f"the session has ended: {self._ended[session_id]}",
                    field="session_id",
                    got=session_id,
                    cure="create another session",
                )
        raise SessionNotFound("there is no such session", field="session_id", got=session_id, cure="create it first")

    def get_all(self, session_ids: Iterable[str]) -> list[Session]:
        """As `get`, of several."""
        with self._lock:
            found = [*map(self._sessions.get, session_ids)]
        return [self.get(name) if each is None else each for name, each in zip(session_ids, found, strict=True)]

    def sessions(self) -> list[Session]:
        """All that live."""
        with self._lock:
            return [*self._sessions.values()]

    def destroy(self, session_id: str) -> bool:
        """Ends a session, within 10 s; False: it was not there. Never raises."""
        with self._lock:
            session = self._sessions.get(session_id)
        if session is not None:
            session.destroy()
        return session is not None

    def forget(self, session: Session) -> None:
        """For a session that ends: its id is free, and is remembered with the reason."""
        with self._lock:
            if self._sessions.pop(session.id, None) is not None:
                self._ended[session.id] = session.reason
                while len(self._ended) > _REMEMBERED:
                    self._ended.popitem(last=False)
        for name, dropped in (("observations", session.mailbox.dropped), ("actions", session.queue.dropped)):
            self.counters.add(f"dropped_{name}", dropped)

    # -- several at once

    def submit_all(
        self,
        sessions: Sequence[Session],
        ticks: int = 1,
        actions: NDArray[np.float32] | None = None,
        interrupts: Sequence[str] = (),
        resets: Sequence[int] = (),
        seeds: Sequence[int | None] | None = None,
        options: Sequence[Mapping[str, Any] | None] | None = None,
        wait: float | None = None,
    ) -> Future[Sequence[SessionObservation]]:
        """One request to several sessions; they need one place in the queue.

        Args:
            actions: float32 [K, act_size], a row for each session; None: none.
            resets: places in `sessions` of those that begin an episode, and do nothing else.
            seeds, options: aligned with `resets`. Otherwise as Session.submit.

        Raises:
            as Session.submit. The future raises the first error, once all have answered.
        """
        count = len(sessions)
        which = {place: number for number, place in enumerate(resets)}
        if not count or len(set(sessions)) < count:
            raise ConfigurationError("one session or more, each once", field="sessions", got=count)
        rows: Any = None
        if actions is not None and len(which) < count:
            rows = np.asarray(actions)
            if rows.shape != (count, self.spec.act_size):
                raise ActionError(
                    "there is one action for each session",
                    fault="caller",
                    field="ACT",
                    expected=(count, self.spec.act_size),
                    got=rows.shape,
                )
            acting = [place for place in range(count) if place not in which]
            self.checks.rows(rows[acting], [sessions[place] for place in acting])
            rows = np.ascontiguousarray(rows, np.float32)
        if any(values is not None and len(values) != len(which) for values in (seeds, options)):
            raise ConfigurationError("seeds and options align with resets", field="resets", expected=len(which))
        ticks = self.checks.ticks(ticks)
        wanted = self.checks.interrupts(interrupts)
        all_seeds = seeds or ()
        all_options = options or ()
        for seed, option in itertools.zip_longest(all_seeds, all_options):
            self.checks.seed(seed)
            self.checks.options(option)
        batch = TickBatch(sessions, ticks, rows, wanted, self.take_place(wait))
        for place, session in enumerate(sessions):
            request: Request = batch
            if (number := which.get(place)) is not None:
                seed = None
                if seeds is not None:
                    seed = seeds[number]
                option = None
                if options is not None:
                    option = options[number]
                request = Request(batch.part(place), 0, (), 0, True, seed, option)
            session.wait_with(request)
        asked = [(each.world, (each,)) for each in sessions] if self._shared is None else [(self._shared, sessions)]
        for world, those in asked:
            world.post(partial(world.next_all, batch, those))
        return batch.future

    def advance_all(self, *args: Any, timeout: float | None = None, **options: Any) -> Sequence[SessionObservation]:
        """As `submit_all`, and waits."""
        return self.submit_all(*args, **options).result(timeout)

    # -- the queue

    def take_place(self, wait: float | None) -> Callable[[], None]:
        """A place in the queue of requests that wait; what gives it free.

        Raises:
            ResourceExhausted: none was free within `wait` seconds; None: `queue_wait`.
        """
        if wait is None:
            timeout = self.queue_wait
        else:
            timeout = wait
        if not self._places.acquire(timeout=timeout):
            self.counters.add("requests_refused")
            raise ResourceExhausted(
                "too many requests wait for a worker", cure="try again later, or serve with more --workers"
            )
        self.counters.add("requests")
        return self._places.release

    def is_worker(self) -> bool:
        """Is this one of the threads that tick?"""
        return threading.current_thread() in self._threads.threads

    # -- the end

    def _reap(self) -> None:
        """Ends sessions that nobody uses, and those that never load; and comes again."""
        now = time.monotonic()
        for session in self.sessions():
            if session.phase in (Phase.LAUNCHING, Phase.LOADING) and now - session.life.since > _STARTS_WITHIN:
                reason = f"the game was not there within {_STARTS_WITHIN:g} s"
            elif session.idle_seconds > self.idle_timeout:
                reason = f"nobody used it for {self.idle_timeout:g} s"
            else:
                continue
            _log.warning("session %s ended: %s", session.id, reason)
            if session.leave(SessionEvent.EXPIRE, reason):
                self.counters.add("sessions_reaped")
        if not self._closed:
            self._threads.at(time.perf_counter() + min(30.0, self.idle_timeout / 4), self._reap)

    def close(self) -> None:
        """Ends all sessions and threads, within 10 s; idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        deadline = time.monotonic() + self.patience
        sessions = self.sessions()
        for session in sessions:
            session.leave(SessionEvent.DESTROY, "the pool of sessions was closed")
        futures.wait([session.gone for session in sessions], self.patience)
        self._threads.close(max(0.1, deadline - time.monotonic()))
        self._source.close()
