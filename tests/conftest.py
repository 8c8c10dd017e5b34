"""What every test may rely on."""

from __future__ import annotations

import os
import signal
import threading

# Before torch is imported: with as many workers as cores, torch's threads would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure() -> None:
    """Ctrl-C works in the tests' processes even where the suite was started in the background, which ignores it."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
