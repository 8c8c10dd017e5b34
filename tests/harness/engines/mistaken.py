"""MistakenEngine: an engine that is right, or makes exactly one mistake of those that engines' authors make.

    with MistakenEngine("missing-separator") as engine:
        report = ue_rl.devtools.check.check(engine.url)

    python -m tests.harness.engines.mistaken --mistake decimal-comma:reward --port 7801

Each mistake is made in several ways (mistakes_*.py beside this file), because authors do: "NAME" is the first one of
them, "NAME:WAY" another. A way is a function that replaces hooks of a RightEngine.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from tests.harness.engines.mistakes import WAYS, find
from tests.harness.engines.right import RightEngine

__all__ = ["MistakenEngine"]


class MistakenEngine(RightEngine):
    """The engine, in a thread. Use as a context manager, or `start()` and `close()`.

    Args:
        mistake: "NAME" or "NAME:WAY"; None: it makes none.
        options: as RightEngine; those that the mistake needs win.

    Attributes:
        way: the Way that it goes; None without a mistake.

    Raises:
        KeyError: no such mistake.
    """

    def __init__(self, mistake: str | None = None, **options: Any) -> None:
        self.way = None if mistake is None else find(mistake)
        super().__init__(**{**options, **(self.way.needs if self.way is not None else {})})
        if self.way is not None:
            self.way.change(self)


def main(words: Sequence[str] | None = None) -> int:
    """Runs an engine until SIGTERM or SIGINT; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.harness.engines.mistaken", description=__doc__)
    parser.add_argument("--mistake", help="NAME or NAME:WAY; left out: a right engine")
    parser.add_argument("--list", action="store_true", help="show all mistakes, and end")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--num-envs", type=int, default=3)
    parser.add_argument("--channel", choices=["ANY", "SHARED", "PER_ENV"], default="ANY")
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args(words)
    if a.list:
        print("\n".join(f"{way.name:40} {way.says}" for way in WAYS))
        return 0
    over = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: over.set())
    try:
        engine = MistakenEngine(a.mistake, num_envs=a.num_envs, channel=a.channel, seed=a.seed, port=a.port)
    except KeyError as error:
        parser.error(str(error.args[0]))
    with engine:
        print(f"listening on {engine.url}", flush=True)
        while not over.wait(0.2) and engine.alive:
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
