"""Worker: one thread that does one job after another; a job that never returns holds nobody but its own worker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from ue_rl.errors import ResourceExhausted

MAX_WAITING = 10  # jobs


class Worker:
    """A daemon thread, started with the first job: it never keeps the process from ending."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, job: Callable[[], Any]) -> Future[Any]:
        """Does `job` after those before it; whatever it raises is the future's exception: ResourceExhausted where too
        many wait.
        """
        future: Future[Any] = Future()
        if self._jobs.qsize() >= MAX_WAITING:
            future.set_exception(ResourceExhausted(f"{MAX_WAITING} jobs wait for {self._name} already"))
            return future
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put((future, job))
        return future

    def close(self) -> None:
        """The thread ends after the job that it is at."""
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
