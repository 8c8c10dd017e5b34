"""What an event loop waits for without being held up: a place in a pool's queue, a game's words, a session's end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from ue_rl.plugins.sessions.realtime.lifecycle import SessionEvent
from ue_rl.plugins.sessions.realtime.observation import SessionState
from ue_rl.plugins.sessions.realtime.session import Session
from ue_rl.system.errors import ResourceExhausted, SessionError

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
            break
    done = asyncio.Event()

    def wake(_: Future[_T]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(done.set)

    future.add_done_callback(wake)
    try:  # as asyncio.wrap_future, with half as much to do in the loop
        await done.wait()
    except asyncio.CancelledError:
        future.cancel()
        raise
    return future.result()


async def described(session: Session) -> str:
    """See Session.describe."""
    text = session.text()
    try:
        if text is None:
            return ""
        return await asyncio.wait_for(asyncio.wrap_future(text), session.pool.patience)
    except (SessionError, asyncio.TimeoutError):
        return ""


async def state_of(session: Session) -> SessionState:
    """See Session.state."""
    return session.state(await described(session))


async def destroyed(session: Session, reason: str = "it was destroyed") -> None:
    """Ends a session, and waits until it has left its world, 10 s at most; one that is cancelled has ended it, too."""
    session.leave(SessionEvent.DESTROY, reason)
    await asyncio.wait([asyncio.wrap_future(session.gone)], timeout=session.pool.patience)
