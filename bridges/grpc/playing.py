"""Play: a session in real time over one stream both ways. Two tasks, one for each direction; both end together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from grpc import aio

from ue_rl.bridges.grpc import packing
from ue_rl.bridges.realtime import Session
from ue_rl.sessions import sessions_pb2 as messages

_log = logging.getLogger("ue_rl.bridges.grpc")
_LOST_WITHIN = 0.2  # seconds


async def play(
    session: Session,
    requests: AsyncIterator[messages.Action],
    context: aio.ServicerContext[Any, Any],
    stalled_after: float,
) -> None:
    """Until the client has said all (then the session goes on), or the stream is lost (then it ends), or it has ended.

    Args:
        stalled_after: seconds in which a client must have read an observation that is there.

    Raises:
        ActionError, ToolError: of an action. SessionEnded: with the reason. TimeoutError: the client does not read.
    """
    size = session.pool.spec.act_size
    new = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def hear() -> None:
        async for message in requests:
            session.act(packing.read_action(message, size))

    async def tell() -> None:
        while not ended:  # before Python 3.12 `wait_for` forgets that it is cancelled where its write has just ended
            new.clear()
            seen = session.observe(timeout=0)
            if seen is None:
                await new.wait()
            else:
                await asyncio.wait_for(context.write(packing.observation(seen)), stalled_after)

    def notify() -> None:
        loop.call_soon_threadsafe(new.set)

    unsubscribe = session.subscribe(notify)
    session.attach()
    ended = False
    lost = "the stream of its agent was lost"
    tasks = [asyncio.ensure_future(hear()), asyncio.ensure_future(tell())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        # A connection that is lost ends the client's messages first, as if all were said, and cancels this task then.
        await asyncio.sleep(_LOST_WITHIN)
        lost = ""
        for task in done:
            task.result()
    except asyncio.TimeoutError:
        lost = f"its agent has read nothing for {stalled_after:g} s"
        raise
    finally:
        unsubscribe()
        ended = True
        if lost:
            session.detach(lost)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
