"""SystemHandles: what a connection holds of the system, apart from it, so that it can be let go of without it.

A connection that is collected instead of closed (a notebook's cell that raised is enough) leaves its segment through
this: a finalizer may not refer to the object that it finalizes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from ue_rl.connections.shm import attach
from ue_rl.connections.tcp.link import Link
from ue_rl.protocol.memory.bell import Bell
from ue_rl.protocol.memory.memory import StepMemory
from ue_rl.protocol.memory.segment import Segment, reclaim
from ue_rl.system.errors import EngineDisconnected

# By Segment.identity: what in this process holds it. A pid alone does not tell two connections of a process apart, and
# the token may be zero in every segment.
_holders: weakref.WeakValueDictionary[tuple[int, int] | str, SystemHandles] = weakref.WeakValueDictionary()


class SystemHandles:
    """Of one connection.

    Args:
        fail: the connection's.

    Attributes:
        segment, memory, bell, link: None where there is none, or not any more.
        claimed: the segment is taken for this connection.
    """

    def __init__(self, fail: weakref.WeakMethod[Callable[[EngineDisconnected], None]]) -> None:
        self._fail = fail
        self.segment: Segment | None = None
        self.memory: StepMemory | None = None
        self.bell: Bell | None = None
        self.link: Link | None = None
        self.claimed = False

    def claim(self, seconds: float, wait_until: float) -> None:
        """Takes the segment for this process, see attach.claim.

        Whatever in this process held it before, in a session that the engine has ended since, is told so.
        """
        segment = self.segment
        memory = self.memory
        assert segment is not None
        assert memory is not None
        error = attach.gone(memory, "it has ended this session")
        earlier = None

        def disown() -> None:
            """The segment is free: an earlier holder that has not noticed must not leave it in this one's name."""
            nonlocal earlier
            found = _holders.get(segment.identity)
            if found is not None and found.claimed:
                earlier = found
                found.claimed = False

        attach.claim(memory, seconds, disown, wait_until)
        self.claimed = True
        if memory.header.extended:
            _holders[segment.identity] = self
        fail = None
        if earlier is not None:
            fail = earlier._fail()
        if fail is not None:
            fail(error)

    def let_go(self) -> None:
        """Leaves the segment and closes everything; idempotent, never raises. Arrays over the memory stay readable.

        The segment of an engine that was killed is deleted: nobody else would, until another engine starts here.
        """
        memory = self.memory
        self.memory = None
        bell = self.bell
        self.bell = None
        link = self.link
        self.link = None
        segment = self.segment
        self.segment = None
        dead = memory is not None and self.claimed and attach.engine_died(memory, link)
        if memory is not None:
            if self.claimed:
                attach.leave(memory, asked=bell is not None)
            if bell is not None:
                bell.nudge()
            memory.release()
        if bell is not None:
            bell.release()
        if link is not None:
            link.close()
        if segment is not None:
            segment.close()
            if dead:
                reclaim(segment.name)
