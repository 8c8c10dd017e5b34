"""Bell: how one side of a segment tells the other that something is there, and waits for it. Written in _sync.c.

Each side has a counter in the header (the engine frame_seq, the trainer action_seq), which it alone increments, and a
flag word, in which it says how it sleeps. Whoever is about to sleep writes its flag and then reads the counter once
more; whoever publishes increments its counter and then reads the other side's flag. Between the two steps stands a full
fence on either side, so at least one of the two sees the other's write, and no wake-up is lost.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Any, Protocol

# results of Bell.ask
ASKED = -1
UNASKED = -2
NOT_OURS = -3


class Bell(Protocol):
    """One side's end; made by StepMemory.bell. Every method raises ValueError once `release` was called.

    Attributes:
        waits: calls of `wait` and `answer`. sleeps: those of them that blocked.
        expected: the other side's counter once it has answered the last `ask`.
        asked: this side's counter of that `ask`.
    """

    waits: int
    sleeps: int
    expected: int
    asked: int

    def publish(self) -> int:
        """Increments this side's counter, which releases everything written before, and wakes the other side.

        Returns:
            The new value.
        """
        ...

    def nudge(self) -> None:
        """Wakes the other side if it sleeps; for what does not count: a message in the ring, the end of the session."""

    def peek(self) -> int:
        """The other side's counter. What it wrote before it counted is visible afterwards (acquire)."""
        ...

    def wait(self, seq: int, pos: int = 0, slice_ms: int = 100, /) -> int:
        """Waits until the other side's counter differs from `seq`; spins without the GIL, then blocks. The counter.

        Returns early when the incoming ring's write position differs from `pos`, after `slice_ms` milliseconds (with a
        socket: after its own timeout, see `set_slice`), and on any doorbell: compare the result with `seq`.

        Raises:
            ConnectionResetError: the other side closed its socket. KeyboardInterrupt: signals are handled here.
        """
        ...

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
        taken: tuple[Any, Any, Any, Any] | None = None,
        /,
    ) -> None:
        """Trainer only, before `ask` and `answer`: the arrays that they use.

        Args:
            actions: float32, where `ask` copies to. obs, rewards: float32. dones, truncated: uint8, one a reward.
            answered_seq: offset of the engine's answered_seq in the segment.
            holder: offset of a uint32 that must be `holder_is` whenever something is asked (client_pid); 0: no check.
            taken: obs, rewards, dones and truncated once more, of this process alone: `answer` and `take` copy there,
                and check the copy. None: what stands in the first ones is checked, and stays there.

        Raises:
            TypeError, ValueError, BufferError: an array of another kind, or an offset outside the segment.
        """

    def ask(self, actions: Any, /) -> int:
        """Copies `actions` into the segment and publishes. None: they are in the segment already, only publish.

        Returns:
            ASKED, or why nothing was published: the index (0 or more) of the first number that is not finite; UNASKED,
            the engine has counted although nothing was asked; NOT_OURS, the segment belongs to another trainer by now.

        Raises:
            TypeError: not the shape and dtype of the bound array.
        """
        ...

    def answer(self, pos: int, slice_ms: int, /) -> bool:
        """Waits for the answer to the last `ask`, as `wait` does, and checks it.

        True: it is there, says that it answers this request, no message came with it, numbers are finite and flags are
        0 or 1. False: anything else; the caller finds out what.
        """
        ...

    def take(self) -> int | tuple[int, int]:
        """Copies and checks what is there now; 0, or (kind, index) of the first bad number as `check_step` says it."""
        ...

    def take_into(self, obs: Any, /) -> None:
        """From now on `answer` and `take` copy observations into this array, in place of the first one of `taken`.

        Raises:
            ValueError: another shape, or the Bell was bound without `taken`. TypeError, BufferError: another kind.
        """

    def release(self) -> None:
        """Lets go of buffer, arrays and socket, or, while another thread waits here, as soon as that wait has ended."""


class Bells(Protocol):
    """Several engines' Bells, each bound with `taken`: all asked in one call, and all answers taken in one.

    Made of a tuple of Bells and the arrays obs, rewards, dones and truncated of all of them, one engine's rows behind
    the other's. Whatever is not as usual is for the caller to find out, one Bell after the other.
    """

    def ask(self, actions: Any, /) -> bool:
        """As Bell.ask of each with its own rows; False: one of them may not be asked, or not with these: nobody was."""
        ...

    def answer(self, positions: list[int], slice_ms: int, /) -> tuple[float, ...] | None:
        """As Bell.answer of each, with its `pos`; then all are copied into the arrays of all.

        Returns:
            seconds from `ask` to each answer, in order; None: not each is there and right, and nothing was copied.

        Raises:
            ConnectionResetError, ValueError, KeyboardInterrupt: see Bell.wait.
        """


def set_slice(sock: socket.socket, slice_ms: int) -> None:
    """Makes every wait on a Bell's socket end after `slice_ms` milliseconds, 1 to 999; a Bell does not do it itself."""
    sock.setblocking(True)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if os.name == "nt":
        sock.settimeout(slice_ms / 1000)
    else:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, slice_ms * 1000))
