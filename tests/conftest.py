"""What every test may rely on."""

from __future__ import annotations

import signal
import threading


def pytest_configure() -> None:
    """Ctrl-C works in the tests' processes even where the suite was started in the background, which ignores it."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
