"""The twin of ue_rl/shm/_sync.c in Python: the same names and results, for installations without a C compiler.

Python has no atomics. On x86 an aligned word is written and read whole and in order, so that plain reads do; on other
processors only a system call orders memory. Therefore a Bell here always waits for and always rings the socket where
there is one, and without a socket it refuses to be made on anything but x86. It sleeps in short naps instead of on a
futex, and it never looks without the GIL.
"""

from __future__ import annotations

import contextlib
import platform
import time
from typing import Any

import numpy as np

from ue_rl.errors import ConfigurationError

HAS_FUTEX = 0
_ALWAYS_RING = 3
ASKED, UNASKED, NOT_OURS = -1, -2, -3  # what Bell.ask may give, as in _sync.c
_NAP, _LONGEST_NAP = 20e-6, 5e-3


def in_order() -> bool:
    """Does this processor keep plain reads and writes in order (x86)?"""
    return platform.machine().lower() in ("x86_64", "amd64", "i386", "i686", "x86")


def _word(buffer: Any, offset: int, size: int) -> Any:
    view = memoryview(buffer).cast("B")
    if offset < 0 or offset + size > len(view) or offset % size:
        raise ValueError(f"offset {offset} does not lie in the buffer, aligned to {size} bytes")
    return view[offset : offset + size].cast("I" if size == 4 else "Q")


def load_u32(buffer: Any, offset: int, /) -> int:
    """See _sync.c."""
    return int(_word(buffer, offset, 4)[0])


def load_u64(buffer: Any, offset: int, /) -> int:
    """See _sync.c."""
    return int(_word(buffer, offset, 8)[0])


def store_u32(buffer: Any, offset: int, value: int, /) -> None:
    """See _sync.c."""
    _word(buffer, offset, 4)[0] = value


def store_u64(buffer: Any, offset: int, value: int, /) -> None:
    """See _sync.c."""
    _word(buffer, offset, 8)[0] = value


def increment_u64(buffer: Any, offset: int, /) -> int:
    """See _sync.c. Each counter has one writer, so that reading and writing apart is enough."""
    word = _word(buffer, offset, 8)
    word[0] = (word[0] + 1) % 2**64
    return int(word[0])


def compare_exchange_u32(buffer: Any, offset: int, expected: int, new: int, /) -> bool:
    """See _sync.c. Not atomic: of two that come in the same microsecond both may win, and their pids then differ."""
    word = _word(buffer, offset, 4)
    if word[0] != expected:
        return False
    word[0] = new
    return bool(word[0] == new)


def first_nonfinite(array: Any, /) -> int:
    """See _sync.c."""
    values = np.frombuffer(array, np.float32)
    finite = np.isfinite(values)
    return -1 if finite.all() else int(finite.argmin())


def copy_finite(to: Any, from_: Any, /) -> int:
    """See _sync.c."""
    target, source = np.frombuffer(to, np.float32), np.frombuffer(from_, np.float32)
    if len(target) != len(source):
        raise ValueError(f"{source.nbytes} bytes into {target.nbytes}")
    target[:] = source
    return first_nonfinite(source)


def check_step(obs: Any, rewards: Any, dones: Any, truncated: Any, /) -> int | tuple[int, int]:
    """See _sync.c."""
    for kind, array in ((1, obs), (2, rewards)):
        bad = first_nonfinite(array)
        if bad >= 0:
            return kind, bad
    done, limit = np.frombuffer(dones, np.uint8), np.frombuffer(truncated, np.uint8)
    if not len(done) == len(limit) == memoryview(rewards).nbytes // 4:
        raise ValueError("rewards, dones and truncated disagree")
    wrong_done, wrong_limit = done > 1, (limit > 1) | (limit > done)
    either = wrong_done | wrong_limit
    if not either.any():
        return 0
    at = int(either.argmax())
    return (3 if wrong_done[at] else 4), at


class Bell:
    """See _sync.c."""

    def __init__(
        self,
        buffer: Any,
        own_seq: int,
        peer_seq: int,
        own_flag: int = 0,
        peer_flag: int = 0,
        peer_ring: int = 0,
        sock: Any = None,
        spin_us: float = 50.0,
        futex: bool = True,
    ) -> None:
        if sock is None and not in_order():
            raise ConfigurationError(
                "shared memory without a socket needs the compiled module on this processor", fault="caller",
                got=platform.machine(), cure="reinstall ue_rl where a C compiler is present, or connect over TCP",
            )  # fmt: skip
        self._buffer: Any = buffer
        self._actions: Any = None
        self._holder: Any = None
        self._answered: Any = None
        self._arrays: tuple[Any, ...] = ()
        self.expected = self.asked = 0
        self._own: Any = _word(buffer, own_seq, 8)
        self._peer: Any = _word(buffer, peer_seq, 8)
        self._own_flag: Any = _word(buffer, own_flag, 4) if own_flag else None
        self._peer_flag: Any = _word(buffer, peer_flag, 4) if peer_flag else None
        self._ring: Any = _word(buffer, peer_ring, 4) if peer_ring else None
        self._sock: Any = sock
        self._spin = spin_us / 1e6
        self.waits = self.sleeps = 0
        self._nap = _NAP
        if self._own_flag is not None:  # ring the socket in any case; without one: this side wakes nobody from a futex
            self._own_flag[0] = _ALWAYS_RING

    def publish(self) -> int:
        """See _sync.c."""
        value = (self._live(self._own)[0] + 1) % 2**64
        self._own[0] = value
        self.nudge()
        return int(value)

    def nudge(self) -> None:
        """See _sync.c. Rings the socket unasked: the system call is what orders memory."""
        self._live(self._own)
        if self._sock is not None and self._peer_flag is not None:
            with contextlib.suppress(OSError):  # a dead peer shows itself to the next wait
                self._sock.send(b"\1")

    def peek(self) -> int:
        """See _sync.c."""
        return int(self._live(self._peer)[0])

    def wait(self, seq: int, pos: int = 0, slice_ms: int = 100, /) -> int:
        """See _sync.c."""
        self._live(self._peer)
        self.waits += 1
        stop = time.monotonic() + slice_ms / 1000
        if self._sock is not None and self._own_flag is not None:
            if not self._moved(seq, pos):
                self.sleeps += 1
                self._hear(seq, pos)
            return int(self._peer[0])
        until, slept = time.perf_counter() + self._spin, False
        while not self._moved(seq, pos):
            if time.perf_counter() < until:
                continue
            if time.monotonic() >= stop:
                return int(self._peer[0])  # the next slice goes on with naps as long as these
            self.sleeps += not slept
            slept = True
            time.sleep(self._nap)
            self._nap = min(self._nap * 1.25, _LONGEST_NAP)
        self._nap = _NAP
        return int(self._peer[0])

    def bind(
        self,
        actions: Any,
        obs: Any,
        rewards: Any,
        dones: Any,
        truncated: Any,
        answered_seq: int,
        holder: int = 0,
        holder_is: int = 0,
        /,
    ) -> None:
        """See _sync.c."""
        self._holder = _word(self._buffer, holder, 4) if holder else None
        self._holder_is = holder_is
        self._actions, self._arrays = actions, (obs, rewards, dones, truncated)
        self._answered = _word(self._buffer, answered_seq, 8)
        self.expected = int(self._live(self._peer)[0])

    def ask(self, actions: Any, /) -> int:
        """See _sync.c."""
        self._live(self._peer)
        if self._holder is not None and self._holder[0] != self._holder_is:
            return NOT_OURS
        if actions is not None:
            from_, to = memoryview(actions), memoryview(self._actions)
            if (from_.format, from_.shape) != (to.format, to.shape):
                raise TypeError("actions must be float32 [num_envs, act_size]")
            bad = copy_finite(self._actions, actions)
            if bad >= 0:
                return bad
        if self.peek() != self.expected:
            return UNASKED
        self.expected = (self.expected + 1) % 2**64
        self.asked = self.publish()
        return ASKED

    def answer(self, pos: int, slice_ms: int, /) -> bool:
        """See _sync.c."""
        seq = self.wait((self.expected - 1) % 2**64, pos, slice_ms)
        if seq != self.expected or self._answered[0] != self.asked or (self._ring is not None and self._ring[0] != pos):
            return False
        return check_step(*self._arrays) == 0

    def release(self) -> None:
        """See _sync.c."""
        self._own = self._peer = self._own_flag = self._peer_flag = self._ring = self._sock = self._buffer = None
        self._actions = self._answered = self._holder = None
        self._arrays = ()

    def _moved(self, seq: int, pos: int) -> bool:
        return bool(self._peer[0] != seq or (self._ring is not None and self._ring[0] != pos))

    def _hear(self, seq: int, pos: int) -> None:
        try:
            bells = self._sock.recv(64)
        except (BlockingIOError, TimeoutError):
            return
        except OSError:
            bells = b""
        if not bells and not self._moved(seq, pos):
            raise ConnectionResetError("the peer closed its socket")

    def _live(self, word: Any) -> Any:
        if word is None:
            raise ValueError("this Bell was released")
        return word
