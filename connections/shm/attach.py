"""Attaching to a segment and leaving it: who may attach, when the engine is ready, how it learns of the end.

With our extension the words client_pid and client_state belong to both sides in turn: a trainer takes a free segment
(pid 0 -> its own, state 0 -> 1) and says that it leaves (state 2); only the engine marks it as free again, so that an
answer to a trainer that has left never reaches the next one.
"""

from __future__ import annotations

import os
import time

from ue_rl import processes
from ue_rl.errors import ConfigurationError, EngineDisconnected, EngineTimeout, EngineUnreachable, SegmentInvalid
from ue_rl.shm.header import (
    ATTACHED,
    CLIENT_PID,
    CLIENT_STATE,
    CLOSED,
    HEADER_SIZE,
    LEAVING,
    MAGIC,
    SERVER_STATE,
    SERVING,
    Header,
)
from ue_rl.shm.memory import StepMemory
from ue_rl.shm.segment import Segment

_POLL_SECONDS = 0.002


def open_segment(name: str | None, wait: float) -> Segment:
    """Opens the segment of a running engine; keeps trying for `wait` seconds while there is none.

    Raises:
        ConfigurationError, EngineUnreachable, SegmentInvalid.
    """
    give_up = time.monotonic() + wait
    while True:
        try:
            segment = Segment.open(name)
            try:
                check_maker(Header.unpack(segment.memory[:HEADER_SIZE]), segment.name)
            except BaseException:
                segment.close()
                raise
            return segment
        except (EngineUnreachable, SegmentInvalid) as error:
            if time.monotonic() >= give_up or error.field == "owner":
                raise
        time.sleep(0.02)


def engine_alive(memory: StepMemory) -> bool:
    """Is the process that made the segment alive? True where that is unknown."""
    return processes.engine_alive(memory.header) is not False


def gone(got: str) -> EngineDisconnected:
    """The error for an engine that has gone."""
    return EngineDisconnected(
        "the engine went away", fault="engine", got=got,
        cure="look into the game's log: it crashed, was stopped, or closed its bridge",
    )  # fmt: skip


def check_maker(header: Header, name: str) -> None:
    """Refuses a segment that a dead engine has left, or that its engine has not written yet: the magic comes last.

    Raises:
        EngineUnreachable.
    """
    if header.magic == 0:
        raise EngineUnreachable(
            f"{name!r} is all zeros: its engine has not written it yet", fault="engine", field="magic",
            cure="pass wait= seconds to connect(); if that does not help, it died while it started: see its log",
        )  # fmt: skip
    if header.magic == MAGIC and processes.engine_alive(header) is False:
        raise EngineUnreachable(
            f"the engine that made {name!r} has died", fault="engine", got=f"pid {header.server_pid}",
            cure="start it again; what it left is deleted then",
        )  # fmt: skip


def check_token(memory: StepMemory, token: bytes) -> None:
    """Is this the segment that was offered?

    Raises:
        SegmentInvalid.
    """
    if not (memory.header.extended and memory.header.token == token):
        raise SegmentInvalid(
            "another segment has the offered name", fault="engine", field="token",
            cure="is the engine on another machine, or in another container?",
        )  # fmt: skip


def claim(memory: StepMemory, seconds: float) -> None:
    """Takes the segment for this process.

    Args:
        seconds: how long the engine may take to get ready, and to notice that an earlier trainer has gone.

    Raises:
        ConfigurationError: another trainer is attached. EngineDisconnected, EngineTimeout.
    """
    deadline, extended = time.monotonic() + seconds, memory.header.extended
    while True:
        state = memory.load_u32(SERVER_STATE) if extended else SERVING
        if state == CLOSED:
            raise gone("it has closed the segment")
        holder = memory.load_u32(CLIENT_PID)
        there = holder != 0 and processes.alive(holder)
        if there and (not extended or memory.load_u32(CLIENT_STATE) == ATTACHED):  # 0: just being freed, or taken
            raise ConfigurationError(
                "another trainer is attached to this segment", fault="caller", field="client_pid", expected="nobody",
                got=f"process {holder}", cure="close it, or start another engine",
            )  # fmt: skip
        free = state == SERVING and (holder == 0 or not extended)
        if free and memory.words.compare_exchange_u32(memory.buffer, CLIENT_PID, holder, os.getpid()):
            if extended:
                memory.store_u32(CLIENT_STATE, ATTACHED)
            return
        if not engine_alive(memory):
            raise gone(f"its process {memory.header.server_pid} has died")
        if time.monotonic() > deadline:
            raise EngineTimeout(
                "the engine does not serve its shared memory", fault="engine",
                expected=f"an engine that waits for a trainer within {seconds:g} s",
                got="an earlier trainer is still noted" if holder else "it is not ready",
                cure="does its loop run?",
            )  # fmt: skip
        time.sleep(_POLL_SECONDS)


def evicted(memory: StepMemory) -> bool:
    """Has the engine ended this trainer's session?"""
    return memory.header.extended and memory.load_u32(CLIENT_PID) != os.getpid()


def leave(memory: StepMemory, asked: bool) -> None:
    """Leaves the segment.

    Args:
        asked: a request may be under way, so the engine has to free the segment; otherwise it is freed here.
    """
    if evicted(memory) or memory.load_u32(CLIENT_PID) != os.getpid():
        return
    if memory.header.extended and asked:
        memory.store_u32(CLIENT_STATE, LEAVING)
        return
    if memory.header.extended:
        memory.store_u32(CLIENT_STATE, 0)
    memory.store_u32(CLIENT_PID, 0)
