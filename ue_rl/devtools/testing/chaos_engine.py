"""ChaosEngine: the engine of ue_rl/devtools/testing/engines/chaos.py in a process of its own, to be killed or frozen.

with ChaosEngine(num_envs=2, fault="crash", after=500) as engine:
    ue_rl.connect(engine.url)
chaos_command(num_envs="{num_envs}", port="{port}")        the command for `ue-rl train --engine`
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

_MODULE = "ue_rl.devtools.testing.engines.chaos"
_IN_ORDER = 20.0  # seconds to end in good order: on a busy machine, with children
_DEAF = 0.5  # for one that ignores SIGTERM


def chaos_words(**options: Any) -> list[str]:
    """The command of an engine, as a list; its options are those of `python -m ue_rl.devtools.testing.engines.chaos
    --help`.

    Args:
        options: with underscores; True for a flag; False or None leaves one out.
    """
    words = [sys.executable, "-m", _MODULE]
    for name, value in options.items():
        if value is not None and value is not False:
            words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return words


def chaos_command(**options: Any) -> str:
    """The same as one line, as `ue-rl train --engine` takes it; port, num_envs and seed are its placeholders."""
    filled = {"port": "{port}", "num_envs": "{num_envs}", "seed": "{seed}", **options}
    return shlex.join(chaos_words(**filled))


class ChaosEngine:
    """A running engine. Use as a context manager, or `close()`.

    Args:
        wait: until it listens. False: `wait_until_listening` does.
        options: as `chaos_words`; port 0 takes a free one.

    Attributes:
        process: the subprocess.Popen. url, port: where it listens, once it does. said: its lines of output until then.

    Raises:
        RuntimeError: it ended before it listened; with what it said.
    """

    url: str
    port: int

    def __init__(self, *, wait: bool = True, **options: Any) -> None:
        self.said: list[str] = []
        self._ends_within = _DEAF if options.get("ignore_sigterm") else _IN_ORDER
        self.process = subprocess.Popen(
            chaos_words(**options), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        if wait:
            try:
                self.wait_until_listening()
            except BaseException:
                self.close()
                raise

    @property
    def pid(self) -> int:
        """Of the process."""
        return self.process.pid

    def wait_until_listening(self) -> str:
        """Its URL, once it can be connected to.

        Raises:
            RuntimeError: it ended before.
        """
        for line in self._output:
            self.said.append(line.rstrip("\n"))
            if found := re.fullmatch(r"listening on (tcp://\S+:(\d+))", self.said[-1]):
                self.url = found[1]
                self.port = int(found[2])
                return self.url
        raise RuntimeError(f"the engine ended with {self.process.wait()}: {self.said}")

    def kill(self) -> None:
        """As the OOM killer does."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """It hangs, with its sockets open, until `thaw`. POSIX only."""
        if sys.platform == "win32":
            raise NotImplementedError
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Goes on after `freeze`."""
        if sys.platform == "win32":
            raise NotImplementedError
        self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Ends it, however it hangs; idempotent."""
        if self.process.poll() is None:
            self.process.terminate()
            if sys.platform != "win32":
                self.thaw()  # a frozen process cannot end in good order
            try:
                self.process.wait(self._ends_within)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        self._output.close()

    @property
    def _output(self) -> IO[str]:
        assert self.process.stdout is not None
        return self.process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
