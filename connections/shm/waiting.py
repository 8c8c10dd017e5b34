"""EngineWatch: waits for the engine, slice by slice. Also the named errors for answers that are late or wrong."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.connections.shm import attach
from ue_rl.connections.tcp.link import engine_gone, engine_late
from ue_rl.protocol.memory.bell import Bell, set_slice
from ue_rl.protocol.memory.header import CLOSED, HEARTBEAT, SERVER_STATE
from ue_rl.protocol.memory.memory import StepMemory
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.text.refusals import agent_text
from ue_rl.system.errors import (
    EngineTimeout,
    MalformedMessage,
    NonFiniteValue,
    ProtocolError,
    UeRlError,
    UnexpectedMessage,
)
from ue_rl.system.spin import TRAINER_SLICE_MS

_SEQ = 2**64
_FIELDS = ("OBS", "REW", "DONE", "TRUNC")  # by kind, from 1 on


class EngineWatch:
    """For one session.

    Args:
        memory: the segment. spec: of the session. bell: the trainer's, bound. sock: the session's; None: there is none.
        timeout: seconds for an answer. now: the clock by which it is kept.

    Attributes:
        timeout: as set last. slice_ms: how long one wait may take.
    """

    def __init__(
        self,
        memory: StepMemory,
        spec: EnvSpec,
        bell: Bell,
        sock: socket.socket | None,
        timeout: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec, self._memory, self._bell, self._sock = spec, memory, bell, sock
        self._now = now
        self.set_timeout(timeout)
        self._ring = memory.s2c if memory.header.extended else None
        # over TCP the engine may be in another container, where pids mean something else; then the socket alone tells
        self._watched = sock is None or attach.engine_alive(memory)

    def set_timeout(self, timeout: float) -> None:
        """From now on an answer may take so many seconds, kept to within a slice, or a tenth where that is less."""
        self.timeout, self.slice_ms = timeout, max(1, min(TRAINER_SLICE_MS, int(timeout * 100)))
        if self._sock is not None:
            set_slice(self._sock, self.slice_ms)

    def wait(self, seq: int | None = None, slice_ms: int | None = None) -> None:
        """One slice, or until the counter is no longer `seq` (None: what it is now), or a message has come.

        Raises:
            EngineDisconnected: the engine has died, has closed, or has ended this session.
        """
        memory, bell, ring = self._memory, self._bell, self._ring
        seen = bell.peek() if seq is None else seq
        try:
            now = bell.wait(
                seen, 0 if ring is None else ring.write_pos, self.slice_ms if slice_ms is None else slice_ms
            )
        except ConnectionResetError as error:
            raise attach.gone(memory, "its socket was closed") from error
        if now != seen or (ring is not None and ring.has_news()):
            return
        if memory.header.extended and memory.load_u32(SERVER_STATE) == CLOSED:
            raise attach.gone(memory, "it has closed the segment")
        if attach.evicted(memory) and bell.peek() == seen:
            raise attach.gone(memory, "it has ended this session")
        if self._watched and not attach.engine_alive(memory) and bell.peek() == seen:
            raise engine_gone(f"its process {memory.header.server_pid} has died")

    def wait_for_answer(self, drain: Callable[[], object]) -> None:
        """Until the frame of the last `ask` is there.

        Args:
            drain: takes in the messages that have come.

        Raises:
            EngineTimeout: not within the deadline. UnexpectedMessage: frame_seq was counted wrongly, or answered_seq
                is another request's. EngineDisconnected, and what `drain` raises.
        """
        bell, memory = self._bell, self._memory
        expected, deadline = bell.expected, self._now() + self.timeout
        beat = memory.load_u64(HEARTBEAT) if memory.header.extended else None
        while True:
            seq = bell.peek()
            if self._ring is not None:  # after the counter was read: what was sent before the frame is there
                drain()
            if seq == expected:
                break
            if seq != (expected - 1) % _SEQ:
                raise UnexpectedMessage(
                    "the engine answered more than once, or counted wrongly",
                    fault="engine",
                    field="frame_seq",
                    expected=expected,
                    got=seq,
                    cure="it must count frame_seq up by one for each action_seq",
                )
            left = deadline - self._now()
            if left < 0 and bell.peek() == seq:  # draining may have taken long
                beating = None if beat is None else memory.load_u64(HEARTBEAT) != beat
                raise late(memory, self._spec, self.timeout, bell.asked, beating)
            self.wait(seq, max(1, min(self.slice_ms, int(left * 1000) + 1)))
        if memory.answered_seq is not None and memory.answered_seq[0] != bell.asked:
            raise unasked("answered_seq", bell.asked, memory.answered_seq[0])


def unasked(field: str, expected: int, got: int) -> UeRlError:
    """The error for a frame that answers no request."""
    return UnexpectedMessage(
        "the engine published a frame that nobody asked for",
        fault="engine",
        field=field,
        expected=expected,
        got=got,
        cure="it must answer each action_seq exactly once, and say in answered_seq which one",
    )


def bad_state(spec: EnvSpec, answer: tuple[NDArray[Any], ...], bad: tuple[int, int]) -> ProtocolError:
    """For what check_step found, (kind, index), in the arrays obs, rewards, dones and truncated."""
    kind, index = bad
    field, array = _FIELDS[kind - 1], answer[kind - 1]
    row, number = divmod(index, array[0].size)
    env, agent = row // spec.agents_per_env, agent_text(spec, row)
    value = array.reshape(-1)[index]
    if field in ("OBS", "REW"):
        return NonFiniteValue(
            f"a value is NaN or infinite{agent}",
            fault="engine",
            env_id=env,
            field=field,
            expected="finite float32",
            got=f"{value} at index {number}" if field == "OBS" else str(value),
            cure="the game's state or reward is not a finite number: look for a division by zero",
        )
    limit = field == "TRUNC" and value == 1
    return MalformedMessage(
        ("TRUNC=1 came with DONE=0" if limit else "a flag is neither 0 nor 1") + agent,
        fault="engine",
        env_id=env,
        field=field,
        expected="DONE=1" if limit else "0 or 1",
        got=f"{field}={value}",
    )


def late(memory: StepMemory, spec: EnvSpec, timeout: float, asked_seq: int, beating: bool | None) -> EngineTimeout:
    """For an answer that did not come in time.

    Args:
        asked_seq: the action_seq that was not answered. beating: does the engine's loop run on; None: unknown.
    """
    asked = np.ones(spec.num_rows, np.bool_) if memory.ask is None else memory.ask != 0
    answered = np.zeros(spec.num_rows, np.bool_)
    if memory.answered is not None and memory.answered_seq is not None and memory.answered_seq[0] == asked_seq:
        answered = memory.answered != 0
    waiting = np.flatnonzero((asked & ~answered).reshape(spec.num_envs, -1).any(axis=1)).tolist()
    total = int(np.count_nonzero(asked.reshape(spec.num_envs, -1).any(axis=1)))
    why = {
        None: "is the game paused, or does an action still run?",
        True: "its loop runs on: does an action still run?",
        False: "its loop has stopped: is the game paused, or stopped in a debugger?",
    }[beating]
    return engine_late(waiting, total, timeout, "nothing", why)
