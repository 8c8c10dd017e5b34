"""Streams. Play: a session in real time, both ways: two tasks, which end together. Keep: sessions that are in use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from grpc import aio

from ue_rl.plugins.sessions import sessions_pb2 as messages
from ue_rl.plugins.sessions.grpc import packing
from ue_rl.plugins.sessions.limits import ASKED, OBSERVATIONS
from ue_rl.plugins.sessions.realtime import Session
from ue_rl.system.errors import ActionError

_log = logging.getLogger("ue_rl.plugins.sessions.grpc")
LOST_WITHIN = 0.2  # seconds


async def play(
    session: Session,
    requests: AsyncIterator[messages.Action],
    context: aio.ServicerContext[Any, Any],
    stalled_after: float,
    asked: bool = False,
    lost_within: float = LOST_WITHIN,
    pack: Callable[[Any], Any] = packing.observation,
) -> None:
    """Until the client has said all (then the session goes on), or the stream is lost (then it ends), or it has ended.

    Args:
        stalled_after: seconds in which a client must have read an observation that is there.
        asked: an observation is sent when the client asks for one. False: each as it comes; HTTP/2 takes several before
            the first of them has been read, so that a client that reads late reads old ones.
        lost_within: seconds in which a lost connection shows after the client's last word. pack: an observation as the
            message that is sent.

    Raises:
        ActionError, ToolError: of an action. SessionEnded: with the reason. TimeoutError: the client does not read.
    """
    size = session.pool.spec.act_size
    new = asyncio.Event()  # there may be something to send, or the session has ended
    asks = 0
    loop = asyncio.get_running_loop()

    async def hear() -> None:
        nonlocal asks
        async for message in requests:
            if message.ask and not asked:
                raise ActionError(
                    "this stream sends each observation without being asked",
                    fault="caller",
                    field="ask",
                    got=True,
                    cure=f"open it with the metadata {OBSERVATIONS}: {ASKED}",
                )
            if message.action or message.tool or not message.ask:
                session.act(packing.read_action(message, size))
            if message.ask:
                session.touch()
                asks += 1
                new.set()

    async def tell() -> None:
        nonlocal asks
        while not ended:  # before Python 3.12 `wait_for` forgets that it is cancelled where its write has just ended
            new.clear()
            seen = None
            if asks or not asked:
                seen = session.observe(timeout=0)
            elif not session.life.live:
                raise session.ended()
            if seen is None:
                await new.wait()
                continue
            if asked:
                asks -= 1
            await asyncio.wait_for(context.write(pack(seen)), stalled_after)

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
        await asyncio.sleep(LOST_WITHIN)
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


async def keep(sessions: Sequence[Session], context: aio.ServicerContext[Any, Any]) -> None:
    """Until all have ended: none of them is idle meanwhile. Cancelled, because their trainer is lost, it ends them."""
    for session in sessions:
        session.kept = True
    ends = [asyncio.wrap_future(session.gone) for session in sessions]
    try:
        await context.write(messages.KeepResponse())
        await asyncio.wait(ends)
    finally:
        for end in ends:
            end.cancel()
        for session in sessions:
            session.kept = False
            session.detach("the connection of its trainer was lost")  # which changes nothing where it has ended
