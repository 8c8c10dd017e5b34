"""The two ways a session's lines travel (docs/protocol.md, section 4): SharedWiring and PerEnvWiring.

A wiring sends requests and fills StepBuffers; the order of messages, deadlines and failures are
connections/tcp/connection.py's business. `due` counts the envs whose answer is awaited.
"""

from __future__ import annotations

import logging
import os

import numpy as np
from numpy.typing import NDArray

from ue_rl.connections.tcp.link import HINT_AFTER, Link, late_line, readable, unfinished_hint
from ue_rl.connections.tcp.numbers import AnswerNumbers
from ue_rl.protocol.buffers import Resets, StepBuffers
from ue_rl.protocol.text import Codec
from ue_rl.protocol.text.limits import MAX_LINE, nul_terminated
from ue_rl.protocol.text.row_keys import UnknownFields
from ue_rl.system.compiled import load
from ue_rl.system.errors import ConfigurationError, EngineDisconnected, LineTooLong, TransportError, UeRlError
from ue_rl.system.spin import TRAINER_SPIN_US

_log = logging.getLogger("ue_rl.connections")

_MOST = 2**31 - 1  # bytes of all lines that are being received: places in them are int32


class SharedWiring:
    """One socket for all envs. Deadlines are of its link's clock.

    Args:
        nuls: send each line `nul_terminated`.
        numbers: where the engine numbers its answers.
    """

    name = "shared channel"

    def __init__(
        self, link: Link, codec: Codec, buffers: StepBuffers, nuls: bool = False, numbers: AnswerNumbers | None = None
    ) -> None:
        self.links = [link]
        self._numbers = numbers
        self._nuls = nuls
        self._readable = readable(self.links)
        self._link, self._codec, self._buffers = link, codec, buffers
        self._fields = UnknownFields(codec.spec)
        self.before = b""  # a line that goes in one write with the next request

    def may_have_strays(self) -> bool:
        """Before a request: could a line be there that `receive` would take for an answer to it?"""
        return len(self._link.lines) > 0 or self._readable()

    @property
    def last_number(self) -> int:
        """The highest number that a request had."""
        return self._link.number

    def count_from(self, number: int) -> None:
        """The next request has the number behind this one."""
        self._link.number = number

    def send(self, actions: NDArray[np.float32] | None, resets: Resets | None, deadline: float) -> None:
        """Asks for a step, for resets, or for both, as Codec.encode_request; it raises before anything is sent.

        Raises:
            ConfigurationError: also where the options of a reset make the line too long.
        """
        number = 0 if self._numbers is None else self._link.number + 1
        line = self._codec.encode_request(actions, resets, self._buffers, number)
        if resets is not None and len(line) > self._codec.max_line:
            lengths = [len(self._codec.encode_reset_line(None, given)) for given in resets.options or ()]
            longest = lengths.index(max(lengths)) if lengths else 0
            raise _too_long(line, self._codec, longest if resets.env_ids is None else resets.env_ids[longest])
        self._link.number = number
        if self.before:
            line, self.before = self.before + line, b""
        self._link.send(nul_terminated(line) if self._nuls else line, deadline)

    def receive(self, due: int, deadline: float) -> None:
        """Receives until `due` pending envs have answered."""
        link, codec, buffers, numbers = self._link, self._codec, self._buffers, self._numbers
        while due:
            start, end = link.next_span(deadline)
            answered = codec.decode_states(link.lines.data, buffers, None, start, end, link.number)
            if not answered:
                assert numbers is not None
                numbers.end_of_rows(link.lines.data, start, end, link.number)  # raises, or the line is dropped
            due -= answered
            self.heard(link.lines.data, start, end)

    def heard(self, data: bytearray, start: int, end: int) -> None:
        """The line data[start:end] was read."""
        if self._fields.watching:
            say_unknown(self._fields, data, start, end, 1 in self._buffers.dones.tobytes())

    def unanswered(self) -> list[int]:
        """After a timeout: the envs that it was waited for."""
        return [int(env) for env in np.flatnonzero(self._buffers.pending)]


class PerEnvWiring:
    """One socket for each env, in env order.

    With the compiled kernels on POSIX all sockets are served by three calls a step; otherwise link by link.

    Args:
        nuls, numbers: see SharedWiring.
    """

    def __init__(
        self,
        links: list[Link],
        codec: Codec,
        buffers: StepBuffers,
        nuls: bool = False,
        numbers: AnswerNumbers | None = None,
    ) -> None:
        self._nuls = nuls
        self._numbers = numbers
        self._last = np.zeros(len(links), np.int64)  # number of each socket's last request; 0: they have none
        self.name = f"{len(links)} env socket{'s' if len(links) > 1 else ''}"
        self.links = links
        self._readable = readable(links)
        self._codec, self._buffers = codec, buffers
        self._fields = UnknownFields(codec.spec)
        by_descriptor = codec.kernels == "compiled" and os.name == "posix" and not any(link.layered for link in links)
        self._fast = load("kernels") if by_descriptor else None
        self._now, self._slice_ms = links[0].timing.now, links[0].timing.slice_ms
        self._fds = np.array([link.sock.fileno() for link in links], np.int32)
        self._fill = np.zeros(len(links), np.int32)
        self._stride = min(64 + 16 * (codec.spec.obs_size + 3), codec.max_env_line)
        self._data = bytearray(self._stride * len(links)) if self._fast else bytearray()

    @property
    def last_number(self) -> int:
        """See SharedWiring."""
        return int(self._last.max())

    def count_from(self, number: int) -> None:
        """See SharedWiring; of each socket."""
        self._last[:] = number

    def may_have_strays(self) -> bool:
        """See SharedWiring. An answer too many would shift this env's rollout by a step, silently."""
        return self._readable() or (self._fast is None and any(len(link.lines) for link in self.links))

    def send(self, actions: NDArray[np.float32] | None, resets: Resets | None, deadline: float) -> None:
        """See SharedWiring."""
        if actions is not None and resets is not None:
            actions = actions.copy()
            actions[np.asarray(resets.not_stepping, np.intp)] = 0  # anything may stand there
        numbers = self._last if self._numbers is None else self._last + 1
        lines = {} if actions is None else dict(enumerate(self._codec.encode_action_lines(actions, numbers)))
        if resets is not None:
            lines |= self._reset_lines(resets, numbers)  # all of them before the first is sent
            for env in resets.resting:
                del lines[env]
        if len(lines) == len(self.links):
            self._last = numbers
        else:
            asked = list(lines)
            self._last[asked] = numbers[asked]
        if self._nuls:
            lines = {env: nul_terminated(line) for env, line in lines.items()}
        done, part = 0, 0
        if self._fast is not None and len(lines) == len(self.links):
            sent = self._fast.send_lines(self._fds, [lines[env] for env in range(len(lines))])
            done, part = sent if isinstance(sent, tuple) else (sent, 0)
        for n, (env, line) in enumerate(sorted(lines.items())):
            if n >= done:
                self._send(env, line[part:] if n == done else line, deadline)

    def _reset_lines(self, resets: Resets, numbers: NDArray[np.int64]) -> dict[int, bytes]:
        lines = {}
        for n, env in enumerate(range(len(self.links)) if resets.env_ids is None else resets.env_ids):
            seed, options, parameters = (
                None if given is None else given[n] for given in (resets.seeds, resets.options, resets.parameters)
            )
            line = self._codec.encode_reset_line(
                seed, options, env, parameters, int(numbers[env])  # type: ignore[arg-type]
            )  # fmt: skip
            if len(line) > self._codec.max_line:
                raise _too_long(line, self._codec, env)
            lines[int(env)] = line
        return lines

    def _send(self, env: int, line: bytes, deadline: float) -> None:
        try:
            self.links[env].send(line, deadline)
        except UeRlError as error:
            error.env_id = env
            raise

    def receive(self, due: int, deadline: float) -> None:
        """See SharedWiring."""
        if self._fast is not None:
            self._receive_fast(due, deadline)
            return
        buffers, codec, numbers = self._buffers, self._codec, self._numbers
        for env in np.flatnonzero(buffers.pending).tolist():
            link, number = self.links[env], int(self._last[env])
            answered = start = end = 0
            while not answered:
                try:
                    start, end = link.next_span(deadline)
                except UeRlError as error:
                    if isinstance(error, EngineDisconnected):
                        self._hear_others(env)
                    error.env_id = env
                    raise
                answered = codec.decode_states(link.lines.data, buffers, env, start, end, number)
                if numbers is not None and not answered:
                    numbers.end_of_rows(link.lines.data, start, end, number, env)
            if self._fields.watching:
                say_unknown(self._fields, link.lines.data, start, end, buffers.dones[env] == 1)

    def unanswered(self) -> list[int]:
        """See SharedWiring. Not those behind the late one, whose answer is there and was not read."""
        waiting = []
        for env in np.flatnonzero(self._buffers.pending).tolist():
            link, count = self.links[env], int(self._fill[env])
            if count:
                there = self._data[env * self._stride + count - 1] == 0x0A
            else:
                there = not len(link.lines) and link.has_stray_data()
            if not there:
                waiting.append(env)
        return waiting

    def _receive_fast(self, due: int, deadline: float) -> None:
        assert self._fast is not None
        fill, pending = self._fill, self._buffers.pending
        fill[:] = 0
        seen, quiet_since = -1, 0.0
        while due:
            at = self._fast.receive_lines(
                self._fds, self._data, self._stride, fill, pending, TRAINER_SPIN_US, self._slice_ms
            )
            if isinstance(at, tuple):
                raise self._gone(at[1], OSError(-at[0], os.strerror(-at[0])))
            if at == len(fill):
                if self._numbers is not None and self._sort_out(self._numbers):
                    continue
                answered = pending.nonzero()[0].tolist() if self._fields.watching else []
                due -= self._codec.decode_state_lines(self._data, self._stride, fill, self._buffers)
                for env in answered:
                    start = env * self._stride
                    ended = self._buffers.dones[env] == 1
                    say_unknown(self._fields, self._data, start, start + int(fill[env]), ended)
                fill[:] = 0
            elif fill[at] < 0:
                raise self._gone(at, None)
            elif fill[at] == self._stride:
                self._widen(at)
            else:
                now, came = self._now(), int(fill.sum())
                if now > deadline:
                    late = late_line(self._unread(at))
                    late.env_id = at
                    raise late
                if came != seen:
                    seen, quiet_since = came, now
                elif now - quiet_since > HINT_AFTER and fill[at]:
                    self.links[at].hint(unfinished_hint(self._unread(at)))

    def _sort_out(self, numbers: AnswerNumbers) -> bool:
        """Cuts off the numbers of the lines that came; drops answers to the lost connection. Is one still to come?"""
        assert self._fast is not None
        while (env := self._fast.cut_numbers(self._data, self._stride, self._fill, self._last)) < len(self._fill):
            first, due, kept = env * self._stride, int(self._last[env]), b""
            for line in bytes(self._data[first : first + int(self._fill[env])]).split(b"\n"):
                if line.strip(b" \t\r") and numbers.end_of_rows(line, 0, len(line), due, env) >= 0:
                    kept, due = line + b"\n", due + 1  # behind the right one nothing may come
            self._data[first : first + len(kept)] = kept
            self._fill[env] = len(kept)
            if not kept:
                return True
        return False

    def _unread(self, env: int) -> bytes:
        return bytes(self._data[env * self._stride : env * self._stride + max(int(self._fill[env]), 0)])

    def _hear_others(self, gone: int) -> None:
        """An env's socket was closed: raises what another one's answer is refused for, which may be the reason."""
        now = self._now()
        for env in np.flatnonzero(self._buffers.pending).tolist():
            data: bytearray | bytes = self._unread(env)
            if env == gone or (data and not data.endswith(b"\n")):
                continue
            if not data:
                link = self.links[env]
                try:
                    start, end = link.next_span(now)
                except TransportError:
                    continue
                data = link.lines.data[start:end]
            self._codec.decode_states(data, self._buffers, env, number=int(self._last[env]))

    def _gone(self, env: int, error: OSError | None) -> UeRlError:
        self._hear_others(env)
        gone = self.links[env].gone(error)
        gone.env_id = env
        return gone

    def _widen(self, env: int) -> None:
        """A line does not fit its region: gives every env twice the room, up to the protocol's limit."""
        codec = self._codec
        limit = min(codec.max_line, max(codec.max_env_line, MAX_LINE // len(self.links)), _MOST // len(self.links))
        if self._stride >= limit:
            raise LineTooLong(
                "a line is longer than the session allows", fault="engine", env_id=env,
                expected=f"a newline within {limit} bytes", got=self._data[env * self._stride :][:80],
                cure="every message must end in a newline",
            )  # fmt: skip
        wider = min(2 * self._stride, limit)
        data = bytearray(wider * len(self.links))
        for i, count in enumerate(self._fill.tolist()):
            data[i * wider : i * wider + count] = self._data[i * self._stride : i * self._stride + count]
        self._data, self._stride = data, wider


def say_unknown(fields: UnknownFields, data: bytearray, start: int, end: int, ended: bool) -> None:
    """Has the log say which fields of the line data[start:end] nobody reads."""
    for sentence in fields.look(data, start, end, ended):
        _log.warning("%s", sentence)


def _too_long(line: bytes, codec: Codec, env: int) -> ConfigurationError:
    """The engine would take a longer line for a broken one, and end the session."""
    return ConfigurationError(
        "the reset options make the message longer than the engine reads", env_id=int(env), field="OPTIONS",
        expected=f"at most {codec.max_line} bytes in one line", got=f"{len(line)} bytes", cure="send less with a reset",
    )  # fmt: skip


Wiring = SharedWiring | PerEnvWiring
