"""Noisy: a game that prints in every way: at its import, in each reset and at the exit; its child reads its input."""

from __future__ import annotations

import atexit
import ctypes
import os
import subprocess
import sys
from typing import Any

from tests.plugins.sessions.game import Drift

_CHILD = "import sys; print('child: read', len(sys.stdin.read()))"


def make_noise() -> None:
    print("by print()")
    os.write(1, b"past Python, as C does\n")
    if os.name == "posix":
        ctypes.CDLL(None).puts(b"into C's own buffer")
    subprocess.run([sys.executable, "-c", _CHILD], check=True, timeout=60)


make_noise()
atexit.register(make_noise)


class Noisy(Drift):
    """Prints."""

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        make_noise()
        super().reset_envs(env_ids, seeds, options)
