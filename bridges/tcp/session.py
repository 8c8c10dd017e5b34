"""EngineSession: one trainer's connections on the engine's side, in either wiring. No sockets of its own.

The first connection gets the handshake. A line on it means the shared channel; a second connection means per-env
sockets, and then nothing is answered until all are there, as in the deployed plugin. The server brings the connections
as objects with `write(bytes)`, calls `answer()` after each tick, and `close()` at the end.

A call (docs/protocol.md, section 8) on the first connection is answered at once, in either wiring and before it is
known; it is no choice of a wiring. On per-env sockets everything else on the first connection is ignored.

A server may offer another carrier in the handshake (SHM=..). A trainer takes it by a first line `SHM=..` on the first
connection; from then on an Upgrade (bridges/hosting.py) carries the session, and nothing is read or ticked here.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.bridges.calls import answer_call, takes_calls
from ue_rl.bridges.hosting import Upgrade, Upgrader
from ue_rl.bridges.tcp.numbers import RequestNumbers
from ue_rl.protocol.spec import Channel, EnvType
from ue_rl.protocol.text import Codec, encode_handshake
from ue_rl.protocol.text.ahead import AHEAD, decode_ahead
from ue_rl.protocol.text.calls import CALL_LIMIT, is_call
from ue_rl.protocol.text.connection_state import ConnectionEvent, ConnectionPhase, ConnectionState, Role
from ue_rl.protocol.text.kernels_writing import end_line
from ue_rl.protocol.text.lines import LineBuffer
from ue_rl.protocol.text.notices import error_line
from ue_rl.protocol.text.refusals import nonfinite_line
from ue_rl.system.errors import LineTooLong, NonFiniteValue, UnexpectedMessage

if TYPE_CHECKING:
    from ue_rl.bridges.base import BaseBridge
    from ue_rl.bridges.tcp.connection import Connection

_LF = 0x0A
_ACT = b"Aa"  # what a request begins with
MAX_QUEUED = 65_536  # bytes of requests that an RLBASE trainer may send ahead of the answers


class EngineSession:
    """What one trainer has connected, and what it has asked.

    Its ConnectionState is NEW before the first connection, HANDSHAKE until the wiring is known, READY, ASKED while a
    request is unanswered, and CLOSED once no further request is taken: the trainer has said that training is complete,
    has gone over to another carrier, or has gone.

    Args:
        bridge: gets the requests into its inbox; must be in training mode.
        upgrader: makes the offer of another carrier; None: no offer. None is made either to RLBASE or in version 0.
        tick_rate: the server's ticks per second; None: as requests come.
        on_finish: told by an upgrade, from any thread, that its trainer has gone.

    Attributes:
        env_sockets: how many connections a trainer opens beside the first, unless it speaks on the first one.
    """

    def __init__(
        self,
        bridge: BaseBridge,
        upgrader: Upgrader | None = None,
        tick_rate: float | None = None,
        on_finish: Callable[[EngineSession], None] = lambda session: None,
    ) -> None:
        self.bridge = bridge
        self.tick_rate = tick_rate
        self._on_finish = on_finish
        spec = bridge.announce()
        self.codec = Codec(spec)
        self._numbers = RequestNumbers(self.codec)
        self._order = ConnectionState(Role.ENGINE)
        self._upgrade: Upgrade | None = None
        if spec.version and spec.env_type is not EnvType.RLBASE:
            self._offered = upgrader
        else:
            self._offered = None
        offer = None
        if self._offered is not None:
            offer = self._offered.offer(bridge)
        if offer is None:
            self._offered = None
        self._handshake = encode_handshake(replace(spec, shm=offer))
        self._writers: list[Connection] = []
        self._lines: list[LineBuffer] = []
        self._undecided = True  # no request has come, so an empty line may still choose the wiring
        self._queues = spec.env_type is EnvType.RLBASE
        self._gets_nuls = not spec.version and spec.env_type is not EnvType.MULTI  # as the deployed plugin needs them
        one_socket = self._queues or spec.channel is Channel.SHARED or bool(spec.groups)
        if one_socket:
            self.env_sockets = 0
        else:
            self.env_sockets = spec.num_envs
        self._agents = spec.agents_per_env
        self._hears_calls = spec.version > 0 and not self._queues
        self._hears_ahead = "AUTORESET" in spec.features
        self._ended: list[int] = []  # envs whose next episode begins when all that is asked has been answered

    @property
    def shared(self) -> bool:
        """Is this the shared channel?"""
        return self._order.state > ConnectionPhase.HANDSHAKE and len(self._writers) == 1

    @property
    def full(self) -> bool:
        """No further connection belongs to this session."""
        return bool(self._writers) and (self.shared or len(self._writers) > self.env_sockets)

    @property
    def speaks_notices(self) -> bool:
        """May lines be sent that version 1 does not know: BUSY to whoever waits, ERROR at the end?"""
        return "ERROR" in self.codec.spec.features

    @property
    def upgraded(self) -> bool:
        """Has it gone over to another carrier, which ticks the bridge by itself?"""
        return self._upgrade is not None

    @property
    def finished(self) -> bool:
        """No further request will be taken."""
        return self._order.state is ConnectionPhase.CLOSED

    def add(self, writer: Connection) -> int:
        """Takes a connection and greets it if it is the first; its place: 0 = first, i + 1 = env i's own."""
        self._writers.append(writer)
        longest = self.codec.max_line
        if not self._lines and takes_calls(self.bridge.spec):
            longest = max(longest, CALL_LIMIT)
        self._lines.append(LineBuffer(longest, fault="trainer"))
        if len(self._writers) > 1:
            self._withdraw()  # per-env sockets: text it is
        else:
            self._order.on(ConnectionEvent.CONNECT)
            writer.write(self._handshake)
            if self._queues:
                # The plugin sends a state that nobody asked for: a reset's, which the trainer drops.
                self._order.on(ConnectionEvent.CONFIG)
                self._ask_for_reset()
        return len(self._writers) - 1

    def feed(self, place: int, data: bytes | memoryview) -> None:
        """Takes received bytes (none: the connection was just added) and turns whole lines into requests.

        Raises:
            ProtocolError: what the trainer did wrong.
        """
        lines = self._lines[place]
        if self._gets_nuls:
            data = bytes(data).replace(b"\0", b"")
        if self._undecided and len(data):
            self._undecided = place == 0 and data[0] not in _ACT
            if self._undecided and data[0] == _LF and not len(lines):
                self._hear_empty_line()
        lines.feed(data)
        if place == 0 and len(self._writers) > 1:
            self._hear_admin(lines)
        elif self._order.state is not ConnectionPhase.HANDSHAKE:
            self._take_lines(place)
        elif place == 0 and lines.has_line():
            self._hear_first_line(lines)
        elif place and len(self._writers) > self.env_sockets:
            self._order.on(ConnectionEvent.CONFIG)
            for each in range(1, len(self._lines)):  # also what came before the last one was there
                self._take_lines(each)
        else:
            lines.check_limit()  # nothing is read yet: what waits must not grow without end

    def _hear_first_line(self, lines: LineBuffer) -> None:
        """The wiring, or the carrier, follows from the first line on the first connection that is not a call."""
        while self._hears_calls and is_call(_unread(lines).lstrip(b"\r\n").partition(b"\n")[0]):
            line = lines.next_line() or b""
            self._answer_call(line)
            if not lines.has_line():
                return
        if self._offered is not None and self._goes_over(lines):
            return
        if not lines.has_line():  # it was a refused SHM= line
            return
        if self.env_sockets and self.bridge.spec.channel is Channel.PER_ENV:
            raise UnexpectedMessage(
                "this engine serves per-env sockets only", fault="trainer", expected="a connection per env"
            )
        self._order.on(ConnectionEvent.CONFIG)
        self._take_lines(0)

    def _hear_empty_line(self) -> None:
        """It says that the shared channel is meant, before anything is asked: other connections are other trainers."""
        if self.bridge.spec.channel is not Channel.PER_ENV and len(self._writers) == 1:
            self.env_sockets = 0

    def _hear_admin(self, lines: LineBuffer) -> None:
        """Per-env sockets: the first connection carries calls alone."""
        try:
            while (line := lines.next_line()) is not None:
                if self._hears_calls and is_call(line):
                    self._answer_call(line)
        except LineTooLong:
            lines.discard()

    def _answer_call(self, line: bytes) -> None:
        if self._order.state is ConnectionPhase.ASKED or self.finished:
            what = "a call came while a request was open"
            raise UnexpectedMessage(what, fault="trainer", expected="the answer to be awaited first", got=line[:80])
        call, number = self._numbers.cut_call(line)
        self._writers[0].write(end_line(answer_call(self.bridge, call), number))

    def _goes_over(self, lines: LineBuffer) -> bool:
        """Does the first line take the offer? Otherwise all that came stays in `lines`, but for a refused SHM= line."""
        if _unread(lines).lstrip(b"\r\n")[:4].upper() != b"SHM=":
            self._withdraw()
            return False
        line = lines.next_line()
        assert self._offered is not None
        assert line is not None
        self._upgrade = self._offered.accept(line, self)
        self._offered = None
        if self._upgrade is None:
            return False
        self._order.on(ConnectionEvent.CLOSE)
        if len(lines):
            raise UnexpectedMessage(
                "the trainer spoke before its offer was answered", fault="trainer", field="SHM", got=_unread(lines)[:80]
            )
        return True

    def _withdraw(self) -> None:
        offered = self._offered
        self._offered = None
        if offered is not None:
            offered.withdraw()

    def write(self, data: bytes) -> None:
        """Sends on the first connection."""
        self._writers[0].write(data)

    def detach(self) -> socket.socket:
        """See UpgradableSession.detach."""
        return self._writers[0].detach()

    def finish(self) -> None:
        """See UpgradableSession.finish."""
        self._on_finish(self)

    def tell_why(self, why: str) -> None:
        """Says why the session ends, where the handshake announced that and the connection is still text."""
        if self.speaks_notices and self._writers and not self.upgraded:
            self._writers[0].write(error_line(why))

    def close(self) -> None:
        """The trainer has gone or was sent away; idempotent."""
        self._order.on(ConnectionEvent.CLOSE)
        upgrade = self._upgrade
        self._upgrade = None
        if upgrade is not None:
            upgrade.close()
        self._withdraw()

    def _take_lines(self, place: int) -> None:
        lines = self._lines[place]
        codec = self.codec
        inbox = self.bridge.inbox
        env = None
        if place:
            env = place - 1
        while not self.finished:
            if self._queues and inbox.command[0]:  # as the plugin does: one request at a time, the others wait
                if len(lines) > MAX_QUEUED:
                    raise UnexpectedMessage(
                        "the trainer sends without reading the answers",
                        fault="trainer",
                        expected=f"at most {MAX_QUEUED} bytes of requests ahead of the answers",
                        got=len(lines),
                    )
                return
            span = lines.next_span()
            if span is None:
                return
            if lines.data[span[0]] not in _ACT:  # the usual line costs no more than this
                if self._queues and _says_complete(lines.data, *span):
                    self._ask_for_reset()
                    self._order.on(ConnectionEvent.CLOSE)
                    return
                line = bytes(lines.data[span[0] : span[1]])
                if self._hears_calls and not place and is_call(line):
                    self._answer_call(line)
                    continue
                if self._hears_ahead and not place and AHEAD.match(line):
                    decode_ahead(codec, line, inbox.ahead)
                    continue
            before = None
            if not place and self._order.state is ConnectionPhase.ASKED:
                before = inbox.command.copy()
            self._order.on(ConnectionEvent.ASK)
            number = self._numbers.next[place]
            if not codec.decode_requests(lines.data, inbox, env, *span, number):  # it is another one
                _, number = self._numbers.cut(lines.data, *span)
                codec.decode_requests(lines.data, inbox, env, *span, number)
            self._numbers.asked(place, number, before, inbox.command)

    def _ask_for_reset(self) -> None:
        self._order.on(ConnectionEvent.ASK)
        self.bridge.inbox.command[0] = self.bridge.inbox.RESET

    def answer(self) -> None:
        """Sends the answered rows of the bridge's outbox and clears their marks.

        With agents the rows of an env wait until all that were asked have been answered: they go in one line.

        Raises:
            ProtocolError: a request that waited is wrong.
        """
        bridge = self.bridge
        answered = bridge.answered
        count = np.count_nonzero(answered)
        if not count:
            return
        if self._agents > 1 and (count < len(answered) or bridge.lockstep.busy):
            self._answer_agents()
            return
        out = bridge.outbox
        infos = None
        if out.infos:
            infos = out.infos
        if len(self._writers) == 1:
            ids = None
            if count != len(answered):
                ids = np.flatnonzero(answered).astype(np.int32)
            if bridge.inbox.ahead and 1 in out.dones.tobytes():
                self._writers[0].write(b"".join(self._answer_and_begin(ids)))
            else:
                for rows, number in self._numbers.lines(ids):
                    self._writers[0].write(self._states(rows, infos, number))
        else:
            envs = np.flatnonzero(answered).tolist()
            for env, line in [(env, self._states((env,), infos, self._numbers.of(env + 1))) for env in envs]:
                self._writers[env + 1].write(line)
        if out.infos:
            self._forget_infos(np.flatnonzero(answered).tolist())
        answered[:] = 0
        if not self.finished and not bridge.lockstep.busy:
            self._order.on(ConnectionEvent.ANSWERED)
            if self._queues:
                self._take_lines(0)

    def _answer_and_begin(self, ids: NDArray[np.int32] | None) -> list[bytes]:
        """The lines of these envs' states, and, behind the last of a request, of the episodes that were asked ahead."""
        bridge = self.bridge
        out = self.bridge.outbox
        ahead = self.bridge.inbox.ahead
        lines = [self._states(rows, out.infos or None, number) for rows, number in self._numbers.lines(ids)]
        ended = out.dones.tobytes()
        mine = None
        if ids is not None:
            mine = ids.tolist()
        self._ended += [env for env in ahead if ended[env] and (mine is None or env in mine)]
        if not bridge.lockstep.busy:
            begun = sorted(env for env in self._ended if env in ahead)
            self._ended.clear()
            if begun:
                self._forget_infos(begun)  # what the step has brought was written above
                bridge.lockstep.begin_ahead(begun, [ahead[env] for env in begun])
                envs: NDArray[np.int32] = np.array(begun, np.int32)
                lines += [self._states(rows, out.infos or None, number) for rows, number in self._numbers.lines(envs)]
                self._forget_infos(begun)
        return lines

    def _forget_infos(self, rows: list[int]) -> None:
        """These were sent. One of a row whose action still runs, or that was not asked, goes with its next answer."""
        infos = self.bridge.outbox.infos
        for row in rows:
            infos.pop(row, None)

    def _answer_agents(self) -> None:
        bridge = self.bridge
        out = self.bridge.outbox
        answered = bridge.answered.reshape(-1, self._agents)
        waiting: NDArray[np.bool_] = bridge.inbox.command.reshape(answered.shape).max(axis=1) != 0
        done = np.flatnonzero((answered != 0) & ~waiting[:, None]).astype(np.int32)
        if len(done):
            infos = None
            if out.infos:
                infos = {row: out.infos.pop(row) for row in done.tolist() if row in out.infos}
            for rows, number in self._numbers.lines(done):
                self._writers[0].write(self._states(rows, infos, number))
            answered[~waiting] = 0
        if not self.finished and not bridge.lockstep.busy:
            self._order.on(ConnectionEvent.ANSWERED)

    def _states(self, rows: Any, infos: Mapping[int, Mapping[str, Any]] | None, number: int) -> bytes:
        out = self.bridge.outbox
        state = out.obs, out.rewards, out.dones, out.truncated
        try:
            return self.codec.encode_states(*state, rows, infos, out.masks, number)
        except NonFiniteValue:
            self._show_nonfinite()
            raise

    def _show_nonfinite(self) -> None:
        """Sends the row that ends the session as it is: its trainer names the number, as over any other carrier."""
        out = self.bridge.outbox
        shared = len(self._writers) == 1
        state = out.obs, out.rewards, out.dones, out.truncated
        for row in np.flatnonzero(self.bridge.answered).tolist():
            if shared:
                number = self._numbers.of_row(row)
            else:
                number = self._numbers.of(row + 1)
            try:
                line = self.codec.encode_states(*state, (row,), None, out.masks, number)
            except NonFiniteValue:
                line = nonfinite_line(self.codec.spec, out.obs, out.rewards, out.dones, row, number)
                if shared:
                    self._writers[0].write(line)
                    return
            if not shared:  # the trainer waits for all of them
                self._writers[row + 1].write(line)


def _unread(lines: LineBuffer) -> bytes:
    return bytes(lines.data[lines.head : lines.head + len(lines)])


def _says_complete(data: bytearray, start: int, end: int) -> bool:
    return data[start:end].strip().upper() == b"TRAINING_COMPLETE"
