"""Jobs of tests that mostly wait, in processes of their own: a few at a time, begun while earlier tests still run."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice, takewhile
from typing import Any

import pytest

_AT_ONCE = 4
# Not many: a job that is begun here for a test that another worker takes over is done by both.
_AHEAD = 6


class Ahead:
    """The processes, and what they were given. Close it in the end.

    A test takes part by its marker, `@pytest.mark.ahead(job=job)`, and its fixture `result`. The job is a function of a
    module, with the test's parameters as its arguments; arguments and result are pickled.
    """

    def __init__(self, tests: Sequence[pytest.Item]) -> None:
        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        context = multiprocessing.get_context(method)
        # Imported once, not by each process. The package `check` itself imports its modules when they are asked for.
        jobs = {getattr(job, "func", job).__module__ for job in map(_job, tests) if job is not None}
        context.set_forkserver_preload(["ue_rl.devtools.check.running", *sorted(jobs)])
        self._pool = ProcessPoolExecutor(_AT_ONCE, mp_context=context)
        self._begun: dict[str, Future[Any]] = {}

    def result(self, test: pytest.Function) -> Any:
        """What this test's job returned; begins those of the tests behind it in this file."""
        tests = test.session.items
        near = takewhile(lambda one: one.path == test.path, islice(tests, tests.index(test), None))
        for each in islice((one for one in near if _job(one)), _AHEAD):
            if each.nodeid not in self._begun:
                call = getattr(each, "callspec", None)
                self._begun[each.nodeid] = self._pool.submit(_job(each), **(call.params if call else {}))
        return self._begun[test.nodeid].result()

    def close(self) -> None:
        """Waits for what runs, and begins nothing more."""
        self._pool.shutdown(cancel_futures=True)


def _job(test: pytest.Item) -> Any:
    marker = test.get_closest_marker("ahead")
    return None if marker is None else marker.kwargs["job"]
