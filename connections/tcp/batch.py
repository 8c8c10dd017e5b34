"""TextBatch: several engines on shared channels: their requests sent in one call, their answers received in one."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.connections.tcp.link import readable
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.system.compiled import load
from ue_rl.system.errors import UeRlError
from ue_rl.system.spin import TRAINER_SPIN_US

if TYPE_CHECKING:
    from ue_rl.connections.tcp.connection import TcpConnection
    from ue_rl.connections.tcp.wirings import SharedWiring

_ARRAYS = ("obs", "rewards", "dones", "truncated")


class TextBatch:
    """See BatchedStep. The connections' arrays become parts of such that hold all engines' rows, so that one copy of
    each gives out a step.

    Args:
        connections: whose engines they are; each with the compiled codec. wirings: theirs. buffers: of all.

    Attributes:
        kernels: sends and receives for all (ue_rl/protocol/text/_kernels.pyi); may be changed.
    """

    def __init__(
        self, connections: Sequence[TcpConnection], wirings: Sequence[SharedWiring], buffers: StepBuffers
    ) -> None:
        self._connections = connections
        self._wirings = wirings
        self._links = [wiring.links[0] for wiring in wirings]
        self._slice_ms = self._links[0].timing.slice_ms
        self._codecs = [connection.codec for connection in connections]
        self._shape = len(buffers.obs), self._codecs[0].spec.act_size
        self.kernels: Any = load("kernels")
        self._fds = np.array([link.sock.fileno() for link in self._links], np.int32)
        self._unnumbered = readable(
            [link for link, codec in zip(self._links, self._codecs, strict=True) if not codec.numbered]
        )
        whole = StepBuffers(len(buffers.obs), buffers.obs.shape[1])
        at = 0
        self._rows: list[slice] = []
        for connection in connections:
            rows = slice(at, at := at + len(connection.buffers.obs))
            self._rows.append(rows)
            for name in (*_ARRAYS, "pending"):
                part = getattr(whole, name)[rows]
                part[...] = getattr(connection.buffers, name)
                setattr(connection.buffers, name, part)
        self._pending = whole.pending
        self._copies = [(getattr(buffers, name), getattr(whole, name)) for name in _ARRAYS]
        self._infos = buffers.infos
        longest = max(rows.stop - rows.start for rows in self._rows)
        stride = min(64 + longest * (64 + 16 * (buffers.obs.shape[1] + 3)), *(codec.max_line for codec in self._codecs))
        self._data = bytearray(stride * len(connections))
        self._stride = stride
        self._fill = np.zeros(len(connections), np.int32)
        self._wanted = np.ones(len(connections), np.uint8)
        self._came = np.zeros(len(connections))
        self._asked_at = 0.0

    def ask(self, actions: NDArray[np.float32], again: bool) -> list[bytes] | None:
        """See BatchedStep.ask."""
        if getattr(actions, "shape", None) != self._shape:
            return None
        numbers = [
            link.number + 1 if codec.numbered else 0 for link, codec in zip(self._links, self._codecs, strict=True)
        ]
        try:
            if not self._use():
                return None
            lines = [
                codec.encode_actions(actions[rows], None, number)
                for codec, rows, number in zip(self._codecs, self._rows, numbers, strict=True)
            ]
            if self._unnumbered() or any([len(link.lines) for link in self._links]):
                return None
            self._pending.fill(1)
            if not again:  # else `_receive` has cleared them: those of an answer that a connection took by itself
                for connection in self._connections:
                    connection.buffers.infos.clear()
            self._asked_at = perf_counter()
            sent = self.kernels.send_lines(self._fds, lines)
        except (UeRlError, TypeError, ValueError, BufferError):  # the connections say what is wrong
            return None
        finally:
            self._used()
        for link, number in zip(self._links, numbers, strict=True):
            link.number = number
        if sent == len(lines):
            return []
        if isinstance(sent, tuple):
            done, part = sent
        else:
            done = sent
            part = 0
        return [b"" if i < done else line[part if i == done else 0 :] for i, line in enumerate(lines)]

    def collect(self) -> tuple[float, ...] | None:
        """See BatchedStep.collect."""
        try:
            if self._use():
                return self._receive()
            return None
        finally:
            self._used()

    def _receive(self) -> tuple[float, ...] | None:
        fill = self._fill
        data = self._data
        stride = self._stride
        since = perf_counter() - self._asked_at
        fill.fill(0)
        at = self.kernels.receive_lines(
            self._fds, data, stride, fill, self._wanted, TRAINER_SPIN_US, self._slice_ms, self._came
        )
        if at != len(fill):
            if isinstance(at, tuple):
                self._links[at[1]].failed(-at[0])
            self._give_back()
            return None
        start = 0
        try:
            for connection, codec, wiring, link, count in zip(
                self._connections, self._codecs, self._wirings, self._links, fill.tolist(), strict=True
            ):
                mine = connection.buffers
                end = start + count
                if codec.decode_states(data, mine, None, start, end, link.number) != len(mine.pending):
                    self._give_back()
                    return None
                wiring.heard(data, start, end)
                start += stride
        except UeRlError:
            self._give_back()
            return None
        for into, source in self._copies:
            into[...] = source
        for connection, rows in zip(self._connections, self._rows, strict=True):
            if connection.buffers.infos:
                self._infos.update({row + rows.start: info for row, info in connection.buffers.infos.items()})
                connection.buffers.infos.clear()
        return tuple([since + seconds for seconds in self._came.tolist()])

    def _give_back(self) -> None:
        """What was received belongs to the connections."""
        for i, count in enumerate(self._fill.tolist()):
            if count >= 0:
                size = count
            else:
                size = -1 - count
            self._links[i].lines.feed(self._data[i * self._stride :][:size])

    def _use(self) -> bool:
        """See TcpConnection.in_use; `_used` follows. False: one has ended."""
        gone = False
        for connection in self._connections:
            connection.in_use = True
            gone = gone or connection.dropped
        return not gone

    def _used(self) -> None:
        for connection in self._connections:
            connection.in_use = False
            if connection.dropped:
                connection.used()
