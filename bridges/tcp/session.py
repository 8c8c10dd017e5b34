"""EngineSession: one trainer's sockets on the engine's side, whichever way it wires itself. No sockets of its own.

The first connection gets the handshake. A line on it means the shared channel; a second connection means per-env
sockets, and then nothing is answered until all are there, as in the deployed plugin. A host (bridges/tcp/server.py)
brings the connections as objects with `write(bytes)`, calls `answer()` after each tick, and `close()` at the end.

A server may offer another carrier in the handshake (SHM=..). A trainer takes it by a first line `SHM=..` on the first
connection; from then on an Upgrade moves requests and states, and this file only passes bytes and ticks on.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Protocol

import numpy as np

from ue_rl.bridges.core import BridgeCore
from ue_rl.bridges.hosting import Upgrade, Upgrader
from ue_rl.errors import ProtocolError, UeRlError, UnexpectedMessage
from ue_rl.spec import Channel, EnvType
from ue_rl.wire import Codec, encode_handshake
from ue_rl.wire.lines import LineBuffer


class Host(Protocol):
    """Who runs the session: a server. `tick_rate`: ticks per second, None: as requests come."""

    tick_rate: float | None

    def wake(self) -> None:
        """A tick is wanted soon; from any thread."""
        ...

    def finished(self, session: EngineSession) -> None:
        """`session` is over, says its upgrade; from any thread."""
        ...


class Writer(Protocol):
    """One connection, as the session sees it."""

    def detach(self) -> socket.socket:
        """Gives the socket away; nothing more is read or written here."""
        ...

    def write(self, data: bytes) -> None:
        """Sends."""
        ...


class EngineSession:
    """What one trainer has connected, and what it has asked.

    Args:
        bridge: gets the requests into its inbox; must be in training mode.
        upgrader: makes the offer of another carrier; None: no offer. None is made either to RLBASE or in version 0.
        host: who runs it; None: nobody who could be woken.

    Attributes:
        detached: an upgrade has taken the socket; the ticks are its own.
    """

    def __init__(self, bridge: BridgeCore, upgrader: Upgrader | None = None, host: Host | None = None) -> None:
        self.bridge = bridge
        spec = bridge.spec
        self.codec = Codec(spec)
        self._host = host
        self.detached = False
        self._upgrade: Upgrade | None = None
        self._offered = upgrader if spec.version and spec.env_type is not EnvType.RLBASE else None
        offer = None if self._offered is None else self._offered.offer(bridge)
        if offer is None:
            self._offered = None
        self._handshake = encode_handshake(replace(spec, shm=offer))
        self._writers: list[Writer] = []
        self._lines: list[LineBuffer] = []
        self.shared = spec.env_type is EnvType.RLBASE
        self.finished = False
        self._caught_up = False
        self._env_sockets = 0 if self.shared or spec.channel is Channel.SHARED else spec.num_envs

    @property
    def tick_rate(self) -> float | None:
        """The server's."""
        return None if self._host is None else self._host.tick_rate

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
        if self._writers:
            self._withdraw()  # per-env sockets: text it is
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
        if self._upgrade is not None:
            self._upgrade.feed(data)
            return
        lines = self._lines[place]
        lines.feed(data)
        if place == 0 and not self.shared:
            if len(self._writers) > 1:
                lines.discard()  # per-env wiring: the admin socket is never read
                return
            if self._offered is not None and lines.has_line() and self._takes_offer(lines):
                return
            if lines.has_line() and self._env_sockets and self.bridge.spec.channel is Channel.PER_ENV:
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

    def _takes_offer(self, lines: LineBuffer) -> bool:
        """Hands over where the trainer's first line takes the offer; what came behind it is the upgrade's."""
        span = lines.next_span()
        assert span is not None
        line = bytes(lines.data[span[0] : span[1]])
        rest = bytes(lines.data[lines.head : lines.head + len(lines)])
        if line[:4].upper() == b"SHM=":
            assert self._offered is not None
            self._upgrade = self._offered.accept(line, self)
            self._offered = None
            lines.discard()
            if self._upgrade is None:
                lines.feed(rest)
                return False
            self.shared = True
            if rest:
                self._upgrade.feed(rest)
            return True
        self._withdraw()
        lines.discard()
        lines.feed(line + b"\n" + rest)
        return False

    def _withdraw(self) -> None:
        offered, self._offered = self._offered, None
        if offered is not None:
            offered.withdraw()

    def write(self, data: bytes) -> None:
        """Sends on the first connection."""
        self._writers[0].write(data)

    def wake(self) -> None:
        """Asks the server for a tick soon; from any thread."""
        if self._host is not None:
            self._host.wake()

    def detach(self) -> socket.socket:
        """Takes the first connection from the server: a blocking socket that the caller closes.

        Raises:
            ConfigurationError: the server's event loop reads ahead (Windows' proactor) and cannot give it away.
        """
        sock = self._writers[0].detach()
        self.detached = True
        return sock

    def finish(self) -> None:
        """Tells the server that the session is over; from any thread."""
        if self._host is not None:
            self._host.finished(self)

    def close(self) -> None:
        """The trainer has gone or was sent away; idempotent."""
        upgrade, self._upgrade = self._upgrade, None
        if upgrade is not None:
            upgrade.close()
        self._withdraw()

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
        if self._upgrade is not None:
            self._upgrade.answer()
        elif self.shared:
            ids = None if count == len(answered) else np.flatnonzero(answered).astype(np.int32)
            self._writers[0].write(self.codec.encode_states(out.obs, out.rewards, out.dones, out.truncated, ids, infos))
        else:
            for env in np.flatnonzero(answered).tolist():
                line = self.codec.encode_states(out.obs, out.rewards, out.dones, out.truncated, (env,), infos)
                self._writers[env + 1].write(line)
        answered[:] = 0
        if infos:
            out.infos.clear()


def who_failed(error: Exception) -> str:
    """Why a session ends, for the log: the trainer, or the game that the bridge belongs to."""
    if not isinstance(error, UeRlError):
        return f"the game's code failed: {error!r}"
    trainers = isinstance(error, ProtocolError) and error.fault == "trainer"
    return f"{'the trainer broke the protocol' if trainers else 'the game cannot go on'}: {error}"


def _says_complete(data: bytearray, start: int, end: int) -> bool:
    return data[start:end].strip().upper() == b"TRAINING_COMPLETE"
