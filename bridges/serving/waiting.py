"""What an event loop waits for without being held up: a place in a pool's queue, the end of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from ue_rl.bridges.realtime.session import DESTROYED_WITHIN, Session
from ue_rl.errors import ResourceExhausted

_T = TypeVar("_T")
_TRY_AGAIN = 0.01  # seconds


async def queued(submit: Callable[[], Future[_T]], seconds: float) -> _T:
    """What the future of `submit()` brings.

    Args:
        submit: asks with wait=0, so that it raises ResourceExhausted at once where the queue is full.
        seconds: how long to try to get a place.

    Raises:
        ResourceExhausted: none was free within `seconds`. Also what `submit` and the request raise.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        try:
            future = submit()
        except ResourceExhausted:
            if loop.time() >= deadline:
                raise
            await asyncio.sleep(_TRY_AGAIN)
        else:
            return await asyncio.wrap_future(future)


async def destroyed(session: Session) -> None:
    """Ends a session, and waits until it has left its world; one that is cancelled has ended it all the same."""
    session.destroy(wait=0)
    await asyncio.to_thread(session.wait_gone, DESTROYED_WITHIN)
