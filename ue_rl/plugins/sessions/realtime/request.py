"""Request: what was asked of one session; TickBatch: ticks of several in one go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.plugins.sessions.realtime.observation import Action, ObservationColumns, SessionObservation

if TYPE_CHECKING:
    from ue_rl.plugins.sessions.realtime.session import Session


class Request:
    """First the reset, then the actions, then the ticks.

    Attributes:
        wanted: bits of the interrupts that end it early.
        actions: checked. options: of the reset.
        leave: gives its place in the queue free; called once, when it begins or fails.
    """

    def __init__(
        self,
        answer: Future[SessionObservation],
        ticks: int = 1,
        actions: Sequence[Action] = (),
        wanted: int = 0,
        reset: bool = False,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        leave: Callable[[], None] | None = None,
    ) -> None:
        self.answer = answer
        self.ticks = ticks
        self.actions = actions
        self.wanted = wanted
        self.reset = reset
        self.seed = seed
        self.options = options
        self.leave = leave
        self._lock = threading.Lock()
        self._begun = self._over = False

    def of(self, session: Session) -> Sequence[Action]:
        """The actions of one session."""
        return self.actions

    def begin(self, session: Session) -> bool:
        """It is taken up; False: nobody wants it any more."""
        with self._lock:
            self._leave()
            self._begun = not self._over and self.answer.set_running_or_notify_cancel()
            return self._begun

    def answered(self, seen: ObservationColumns, numbers: Sequence[int]) -> None:
        """It has been done; `numbers`: of what is seen, that is its own."""
        if self._ends():
            self.answer.set_result(seen[numbers[0]])

    def fail(self, session: Session, error: BaseException) -> None:
        """It cannot be done, or not any more; from any thread."""
        if self._ends():
            self.answer.set_exception(error)

    def _ends(self) -> bool:
        with self._lock:
            self._leave()
            over = self._over
            self._over = True
            return not over and (self._begun or self.answer.set_running_or_notify_cancel())

    def _leave(self) -> None:
        leave = self.leave
        self.leave = None
        if leave is not None:
            leave()


class TickBatch(Request):
    """Ticks of several sessions, and their answers as one; requests with another answer of it may be among them.

    Args:
        sessions: each once. rows: float32 [K, act_size], the action of each; None: none. leave: see Request.

    Attributes:
        future: the observations in order; the first error, once all have been answered.
        places: of the sessions, by id.
    """

    def __init__(
        self,
        sessions: Sequence[Session],
        ticks: int,
        rows: NDArray[np.float32] | None,
        wanted: int,
        leave: Callable[[], None],
    ) -> None:
        self.future: Future[Sequence[SessionObservation]] = Future()
        self.future.set_running_or_notify_cancel()
        super().__init__(Future(), ticks, (), wanted, leave=leave)
        self.places = {session.id: place for place, session in enumerate(sessions)}
        self.rows = rows
        self._answers: list[Any] = [None] * len(sessions)
        self._open = len(sessions)

    def part(self, place: int) -> Future[SessionObservation]:
        """Where the answer of a request to one session goes."""
        part: Future[SessionObservation] = Future()
        part.add_done_callback(lambda done: self.put(place, done.exception() or done.result()))
        return part

    def of(self, session: Session) -> Sequence[Action]:
        """See Request."""
        if self.rows is None:
            return ()
        return (self.rows[self.places[session.id]],)

    def begin(self, session: Session) -> bool:
        """See Request."""
        self.taken_up()
        return self._answers[self.places[session.id]] is None

    def taken_up(self) -> None:
        """Its place in the queue is free."""
        with self._lock:
            self._leave()

    def answered(self, seen: ObservationColumns, numbers: Sequence[int]) -> None:
        """See Request."""
        ids = [*seen.columns.session_id]
        with self._lock:
            whole = self._open == len(self.places) and ids == [*self.places]
            self._open -= whole * len(ids)
        if whole:  # the usual case: nothing is taken apart
            self.future.set_result(seen)
            return
        for number in numbers:
            self.put(self.places[ids[number]], seen[number])

    def fail(self, session: Session, error: BaseException) -> None:
        """See Request."""
        self.put(self.places[session.id], error)

    def put(self, place: int, answer: SessionObservation | BaseException | None) -> None:
        """The answer of one of them; the first counts."""
        with self._lock:
            if self.leave is not None:
                self._leave()
            if self._answers[place] is not None:
                return
            self._answers[place] = answer
            self._open -= 1
            if self._open:
                return
        for each in self._answers:
            if isinstance(each, BaseException):
                self.future.set_exception(each)
                return
        self.future.set_result(self._answers)
