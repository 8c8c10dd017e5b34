"""What every test may rely on."""

from __future__ import annotations

import os
import signal
import threading

import pytest

# Before torch is imported: with as many workers as cores, torch's threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure() -> None:
    """Signals reach the tests' processes even where the suite was started in the background or by nohup."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests first, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def slack() -> float:
    """The unit of every assert on time, for machines slower or busier than most: UE_RL_TEST_SLACK, 1 by default."""
    return float(os.environ.get("UE_RL_TEST_SLACK", "1"))
