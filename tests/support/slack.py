"""How much longer everything takes on this machine, now, than where the seconds of the tests were chosen."""

from __future__ import annotations

import functools
import os
import time


def slack() -> float:
    """UE_RL_TEST_SLACK, or how slow this machine is times how busy it is; at least 1.

    Busy: twice as many processes as each core has.
    """
    if "UE_RL_TEST_SLACK" in os.environ:
        return float(os.environ["UE_RL_TEST_SLACK"])
    load = 0.0
    if hasattr(os, "getloadavg"):
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return _slowness() * max(1.0, 2 * load)


def patient(seconds: float) -> float:
    """So many seconds for an answer, and more where other programs keep this machine busy.

    Less than `slack` times as many: where the answer never comes, a test waits for all of them. The four processes of
    the tests themselves make two cores busy, but not busier than a quarter of `slack` allows for.
    """
    return seconds * max(1.0, slack() / 4)


@functools.cache
def _slowness() -> float:
    """How much longer this processor takes for a loop than the one for which seconds were chosen (2 ms); at least 1."""
    tries = []
    for _ in range(5):
        began = time.thread_time()
        for _ in range(100_000):
            pass
        tries.append(time.thread_time() - began)
    return max(1.0, min(tries) / 0.002)
