"""Request: what was asked of one session; Batch: of several in one go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from ue_rl.bridges.realtime.observation import Action, Observation


class Answer(Protocol):
    """Where the answer goes; a Future is one."""

    def set_running_or_notify_cancel(self) -> bool:
        """It is being done; False: nobody wants it any more."""
        ...

    def set_result(self, result: Observation, /) -> None:
        """Done."""
        ...

    def set_exception(self, exception: BaseException | None, /) -> None:
        """It cannot be done."""
        ...


@dataclass(eq=False)
class Request:
    """First the reset, then the actions, then the ticks.

    Attributes:
        wanted: bits of the interrupts that end it early.
        actions: checked. options: of the reset.
        leave: gives its place in the queue free; called once, when it begins or fails.
    """

    answer: Answer
    ticks: int = 1
    actions: Sequence[Action] = ()
    wanted: int = 0
    reset: bool = False
    seed: int | None = None
    options: Mapping[str, Any] | None = None
    leave: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = self._over = False

    def begin(self) -> bool:
        """It is taken up; False: nobody wants it any more."""
        with self._lock:
            self._leave()
            self._begun = not self._over and self.answer.set_running_or_notify_cancel()
            return self._begun

    def answered(self, observation: Observation) -> None:
        """It has been done."""
        if self._ends():
            self.answer.set_result(observation)

    def fail(self, error: Exception) -> None:
        """It cannot be done, or not any more; from any thread."""
        if self._ends():
            self.answer.set_exception(error)

    def _ends(self) -> bool:
        with self._lock:
            self._leave()
            over, self._over = self._over, True
            return not over and (self._begun or self.answer.set_running_or_notify_cancel())

    def _leave(self) -> None:
        leave, self.leave = self.leave, None
        if leave is not None:
            leave()


class Batch:
    """The answers of several sessions as one.

    Args:
        count: of the sessions.

    Attributes:
        future: the observations in order; the first error, once all have been answered.
    """

    def __init__(self, count: int) -> None:
        self.future: Future[list[Observation]] = Future()
        self.future.set_running_or_notify_cancel()
        self._lock = threading.Lock()
        self._answers: list[Any] = [None] * count
        self._open = count
        self._error: BaseException | None = None

    def part(self, place: int) -> Answer:
        """Where the answer of one session goes."""
        return _Part(self, place)

    def answered(self, place: int, observation: Observation | None, error: BaseException | None) -> None:
        """One of them was answered."""
        with self._lock:
            self._answers[place] = observation
            self._error = self._error or error
            self._open -= 1
            if self._open:
                return
        if self._error is None:
            self.future.set_result(self._answers)
        else:
            self.future.set_exception(self._error)


class _Part:
    __slots__ = ("_batch", "_place")

    def __init__(self, batch: Batch, place: int) -> None:
        self._batch, self._place = batch, place

    def set_running_or_notify_cancel(self) -> bool:
        return True

    def set_result(self, result: Observation, /) -> None:
        self._batch.answered(self._place, result, None)

    def set_exception(self, exception: BaseException | None, /) -> None:
        self._batch.answered(self._place, None, exception)
