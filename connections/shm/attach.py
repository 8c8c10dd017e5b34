"""Attaching to a segment and leaving it: who may attach, when the engine is ready, how it learns of the end.

With our extension the words client_pid and client_state belong to both sides in turn: a trainer takes a free segment
(pid 0 -> its own, state 0 -> 1) and says that it leaves (state 2); only the engine marks it as free again, so that an
answer to a trainer that has left never reaches the next one.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable

from ue_rl.connections.tcp.link import Link, engine_gone
from ue_rl.protocol.memory.header import (
    ATTACHED,
    CLIENT_PID,
    CLIENT_SINCE,
    CLIENT_STATE,
    CLOSED,
    HEADER_SIZE,
    LEAVING,
    MAGIC,
    REASON_PID,
    SERVER_STATE,
    SERVING,
    Header,
)
from ue_rl.protocol.memory.memory import StepMemory
from ue_rl.protocol.memory.segment import Segment
from ue_rl.protocol.spec import EnvSpec, ImageSpec
from ue_rl.protocol.text.handshake import decode_handshake
from ue_rl.protocol.text.notices import ended
from ue_rl.system import processes
from ue_rl.system.errors import EngineBusy, EngineDisconnected, EngineTimeout, EngineUnreachable, SegmentInvalid

_POLL_SECONDS = 0.002
_TURN_SECONDS = 0.02  # between two looks whether an engine is there, or free
_DYING_SECONDS = 0.5  # from the end of a process's sockets to its own: on a busy machine


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
        time.sleep(_TURN_SECONDS)


def engine_alive(memory: StepMemory) -> bool:
    """Is the process that made the segment alive? True where that is unknown."""
    return processes.engine_alive(memory.header) is not False


def engine_died(memory: StepMemory, link: Link | None) -> bool:
    """Is it known that the process that made the segment has died? Of a plain producer nothing is known for sure.

    Args:
        link: the session's socket: a process that is being killed closes it a moment before it is dead.
    """
    header = memory.header
    if not header.extended or not header.server_start or processes.engine_alive(header) is None:
        return False
    give_up = time.monotonic() + (_DYING_SECONDS if link is not None and link.hung_up() else 0.0)
    while engine_alive(memory):
        if time.monotonic() >= give_up:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def spec_of(memory: StepMemory) -> EnvSpec:
    """The session's EnvSpec; of a plain producer, what its header says.

    Raises:
        SegmentInvalid, HandshakeError: the CONFIG line is broken, or disagrees with the header.
    """
    header = memory.header
    if not header.extended:
        image = ImageSpec.of(header)
        return EnvSpec(header.obs_size, header.act_size, num_envs=header.num_envs, version=0, image=image)
    spec = decode_handshake(memory.config)
    fields = [(name, getattr(header, name), getattr(spec, name)) for name in ("obs_size", "act_size", "mask_size")]
    fields.append(("num_envs", header.num_envs, spec.num_rows))
    fields.append(("present_offset", header.present_offset > 0, bool(spec.groups)))
    for name, expected, got in [*fields, ("IMAGE", ImageSpec.of(header), spec.image)]:
        if got != expected:
            raise SegmentInvalid("the CONFIG line and the header disagree", field=name, expected=expected, got=got)
    return spec


def check_maker(header: Header, name: str) -> None:
    """Refuses a segment that a dead engine has left, or that its engine has not written yet: the magic comes last.

    Raises:
        EngineUnreachable.
    """
    if header.magic == 0:
        raise EngineUnreachable(
            f"{name!r} is all zeros: its engine has not written it yet",
            field="magic",
            cure="pass wait= seconds to connect(); if that does not help, it died while it started: see its log",
        )
    if header.magic == MAGIC and processes.engine_alive(header) is False:
        what = f"the engine that made {name!r} has died"
        cure = "start it again; what it left is deleted then"
        raise EngineUnreachable(what, got=f"pid {header.server_pid}", cure=cure)


def claim(
    memory: StepMemory, seconds: float, disown: Callable[[], object] = lambda: None, wait_until: float = 0.0
) -> None:
    """Takes the segment for this process.

    Args:
        seconds: how long the engine may take to get ready, and to notice that an earlier trainer has gone.
        disown: called as soon as the segment is free: nothing in this process holds it then.
        wait_until: time.monotonic() until which to wait for one's turn while another trainer is attached.

    Raises:
        EngineBusy: another trainer is attached. EngineDisconnected, EngineTimeout.
    """
    deadline = time.monotonic() + seconds
    extended = memory.header.extended
    searched = False
    while True:
        if extended:
            state = memory.load_u32(SERVER_STATE)
        else:
            state = SERVING
        if state == CLOSED:
            raise gone(memory, "it has closed the segment")
        holder = memory.load_u32(CLIENT_PID)
        there = holder != 0 and processes.alive(holder)
        if there and (not extended or memory.load_u32(CLIENT_STATE) == ATTACHED):  # 0: just being freed, or taken
            if holder == os.getpid() and not searched:  # perhaps a connection that nobody can reach any more
                searched = True
                gc.collect()
                continue
            if time.monotonic() >= wait_until or not engine_alive(memory):
                raise _busy(memory, holder)
            time.sleep(_TURN_SECONDS)
            deadline = time.monotonic() + seconds
            continue
        free = state == SERVING and (holder == 0 or not extended)
        if free:
            disown()
        if free and memory.words.compare_exchange_u32(memory.buffer, CLIENT_PID, holder, os.getpid()):
            if extended:
                memory.store_u32(REASON_PID, 0)  # of an earlier session of this process
                memory.store_u64(CLIENT_SINCE, int(time.time()))
                memory.store_u32(CLIENT_STATE, ATTACHED)
            return
        if not engine_alive(memory):
            raise engine_gone(f"its process {memory.header.server_pid} has died")
        if time.monotonic() > deadline:
            got = "it is not ready"
            if holder:
                got = "an earlier trainer is still noted"
            raise EngineTimeout(
                "the engine does not serve its shared memory",
                expected=f"an engine that waits for a trainer within {seconds:g} s",
                got=got,
                cure="does its loop run?",
            )
        time.sleep(_POLL_SECONDS)


def _busy(memory: StepMemory, holder: int) -> EngineBusy:
    """The error for a segment that another trainer holds: who it is, and since when, where it says so."""
    since = 0
    if memory.header.extended:
        since = memory.load_u64(CLIENT_SINCE)
    who = f"process {holder}{', which is this one' if holder == os.getpid() else ''}"
    if 0 < since <= time.time():
        who += f", for {time.time() - since:.0f} s"
    return EngineBusy(
        "another trainer is attached to this segment",
        field="client_pid",
        expected="nobody",
        got=who,
        cure="close that one first (in a notebook: env.close() on the one of the cell's last run), start a second "
        "engine, or wait for your turn: shm://NAME?wait=60s, or wait=SECONDS",
    )


def gone(memory: StepMemory, got: str) -> EngineDisconnected:
    """The error for an engine that has gone or has ended this process's session, with its reason where it gave one."""
    why = memory.end_of(os.getpid())
    if why:
        return ended(why)
    return engine_gone(got)


def evicted(memory: StepMemory) -> bool:
    """Has the engine ended this trainer's session?"""
    return memory.header.extended and memory.load_u32(CLIENT_PID) != os.getpid()


def require_ours(memory: StepMemory) -> None:
    """Before anything is written: raises EngineDisconnected where another trainer may hold the segment by now."""
    if evicted(memory):
        raise gone(memory, "it has ended this session")


def leave(memory: StepMemory, asked: bool) -> None:
    """Leaves the segment.

    Args:
        asked: a request may be under way, so the engine has to free the segment; otherwise it is freed here.
    """
    if memory.load_u32(CLIENT_PID) != os.getpid():
        return
    if memory.header.extended:
        mark = 0
        if asked:
            mark = LEAVING
        memory.store_u32(CLIENT_STATE, mark)
        if asked:
            return
        memory.store_u64(CLIENT_SINCE, 0)
    memory.store_u32(CLIENT_PID, 0)
