"""What stands in for a connection to an engine; trainers in processes of their own import it, without pytest."""

from __future__ import annotations

import socket
import sys
from typing import ClassVar

from ue_rl.connections.engines.lifecycle import Change, Life, LifeState
from ue_rl.system.errors import EngineUnreachable


def python(code: str, *words: str) -> list[str]:
    return [sys.executable, "-S", "-E", "-c", code, *words]


class Dialled:
    """A connected socket in the place of a transport."""

    num_envs = 2
    kept: ClassVar[list[Dialled]] = []  # else a test that drops one would hang up

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("tcp://").rpartition(":")
        self.url = url
        try:
            self.sock = socket.create_connection((host.strip("[]"), int(port)), timeout=10)
        except OSError as error:
            raise EngineUnreachable("nothing listens") from error
        self.kept.append(self)

    def connect(self) -> Dialled:
        return self

    def close(self) -> None:
        self.sock.close()


class Listened(Life):
    """A life that writes down its states."""

    def __init__(self) -> None:
        self.states: list[LifeState] = []
        self.changes: list[Change] = []
        super().__init__(0, self._take)

    def _take(self, change: Change) -> None:
        self.states.append(change.after)
        self.changes.append(change)
