"""EngineSession: one trainer's sockets on the engine's side, whichever way it wires itself. No sockets of its own.

The first connection gets the handshake. A line on it means the shared channel; a second connection means per-env
sockets, and then nothing is answered until all are there, as in the deployed plugin. A host (bridges/server.py) brings
the connections as objects with `write(bytes)`, and calls `answer()` after each tick.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ue_rl.bridges.base import BaseBridge
from ue_rl.errors import UnexpectedMessage
from ue_rl.session import LineBuffer
from ue_rl.spec import Channel, EnvType
from ue_rl.wire import Codec, encode_handshake


class Writer(Protocol):
    """One connection, as the session sees it."""

    def write(self, data: bytes) -> None:
        """Sends."""
        ...


class EngineSession:
    """What one trainer has connected, and what it has asked.

    Args:
        bridge: gets the requests into its inbox; must be in training mode.
        handshake: sent instead of the bridge's own, for offers that a server adds.
    """

    def __init__(self, bridge: BaseBridge, handshake: bytes | None = None) -> None:
        self.bridge = bridge
        spec = bridge.spec
        self.codec = Codec(spec)
        self._handshake = encode_handshake(spec) if handshake is None else handshake
        self._writers: list[Writer] = []
        self._lines: list[LineBuffer] = []
        self.shared = spec.env_type is EnvType.RLBASE
        self.finished = False
        self._caught_up = False
        self._env_sockets = 0 if self.shared or spec.channel is Channel.SHARED else spec.num_envs

    @property
    def full(self) -> bool:
        """No further connection belongs to this session."""
        return bool(self._writers) and (self.shared or len(self._writers) > self._env_sockets)

    @property
    def complete(self) -> bool:
        """All that is needed to answer is there."""
        return self.shared or (len(self._writers) > self._env_sockets > 0)

    def add(self, writer: Writer) -> int:
        """Takes a connection and greets it if it is the first; its place: 0 = first, i + 1 = env i's own."""
        self._writers.append(writer)
        self._lines.append(LineBuffer(self.codec.max_line, fault="trainer"))
        place = len(self._writers) - 1
        if place == 0:
            writer.write(self._handshake)
            if self.bridge.spec.env_type is EnvType.RLBASE:
                # The plugin sends a state that nobody asked for: a reset's, which the trainer drops.
                self.bridge.inbox.command[0] = self.bridge.inbox.RESET
        return place

    def feed(self, place: int, data: bytes) -> None:
        """Takes received bytes (none: looks again after `add`) and turns whole lines into requests.

        Raises:
            ProtocolError: what the trainer did wrong.
        """
        lines = self._lines[place]
        lines.feed(data)
        if place == 0 and not self.shared:
            if len(self._writers) > 1:
                lines.discard()  # per-env wiring: the admin socket is never read
                return
            if self._env_sockets and self.bridge.spec.channel is Channel.PER_ENV:
                raise UnexpectedMessage(
                    "this engine serves per-env sockets only", fault="trainer", expected="a connection per env"
                )
            self.shared = lines.has_line()
        if not self.complete:
            lines.check_limit()  # nothing is read yet: what waits must not grow without end
            return
        if self.shared or self._caught_up:
            self._take_lines(place)
            return
        self._caught_up = True  # the last env socket has come: what the others sent before is taken now
        for each in range(1, len(self._lines)):
            self._take_lines(each)

    def _take_lines(self, place: int) -> None:
        lines, codec, inbox = self._lines[place], self.codec, self.bridge.inbox
        env = place - 1 if place else None
        while True:
            span = lines.next_span()
            if span is None:
                return
            if codec.spec.env_type is EnvType.RLBASE and _says_complete(lines.data, *span):
                self.finished = True
                inbox.command[0] = inbox.RESET
                return
            codec.decode_requests(lines.data, inbox, env, *span)

    def answer(self) -> None:
        """Sends the answered rows of the bridge's outbox and clears their marks."""
        bridge = self.bridge
        answered = bridge.answered
        count = np.count_nonzero(answered)
        if not count:
            return
        out = bridge.outbox
        infos = out.infos or None
        if self.shared:
            ids = None if count == len(answered) else np.flatnonzero(answered).astype(np.int32)
            self._writers[0].write(self.codec.encode_states(out.obs, out.rewards, out.dones, out.truncated, ids, infos))
        else:
            for env in np.flatnonzero(answered).tolist():
                line = self.codec.encode_states(out.obs, out.rewards, out.dones, out.truncated, (env,), infos)
                self._writers[env + 1].write(line)
        answered[:] = 0
        if infos:
            out.infos.clear()


def _says_complete(data: bytearray, start: int, end: int) -> bool:
    return data[start:end].strip().upper() == b"TRAINING_COMPLETE"
