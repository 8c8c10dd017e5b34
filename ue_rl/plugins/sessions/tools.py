"""SessionTools: what a mind that calls tools can do with a session: the tools of every game, then the game's own."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import Field

from ue_rl.bridges.tools import ToolRegistry, ToolSchema
from ue_rl.plugins.sessions.realtime import Session, SessionObservation, SessionPool, ToolCall
from ue_rl.plugins.sessions.realtime.checks import MOST_TICKS
from ue_rl.plugins.sessions.waiting import queued, state_of
from ue_rl.system.errors import ConfigurationError, ToolError

# A tick at least: an action of zero ticks would wait for a tick that nobody may ask for.
Ticks = Annotated[int, Field(ge=1, le=MOST_TICKS)]


async def reset(session: Session, seed: int | None = None) -> SessionObservation:
    """Begin a new episode; what is seen at its begin.

    Args:
        seed: the same seed begins the same episode.
    """
    return await submitted(session, ticks=0, reset=True, seed=seed)


async def step(session: Session, action: list[float]) -> SessionObservation:
    """Apply one action and let the game go on by one tick.

    Args:
        action: one number for each of the game's action names; see the resource "spec".
    """
    return await submitted(session, ticks=1, actions=[action])


async def advance(session: Session, ticks: Ticks, action: list[float] | None = None) -> SessionObservation:
    """Let the game go on; it stops early at the end of the episode.

    Args:
        ticks: how many ticks, 1 to 5000.
        action: applied in the first of them.
    """
    actions = []
    if action is not None:
        actions = [action]
    return await submitted(session, ticks=ticks, actions=actions)


async def get_observation(session: Session) -> SessionObservation:
    """What is seen now, as numbers; nothing moves on."""
    return session.mailbox.newest or await submitted(session, ticks=0)


async def get_game_state(session: Session) -> dict[str, Any]:
    """Where the game stands: phase, tick, result, and a text that describes it."""
    return (await state_of(session))._asdict()


async def get_map_info(session: Session) -> dict[str, Any]:
    """What the game says of its map."""
    await get_observation(session)  # before the game is there it has no map
    return await asyncio.wrap_future(session.map_info())


_OF_EVERY_GAME = (reset, step, advance, get_observation, get_game_state, get_map_info)


async def submitted(session: Session, **request: Any) -> SessionObservation:
    """Asks a session (Session.submit), waiting for its place in the queue without holding up the event loop."""
    return await queued(functools.partial(session.submit, **request, wait=0), session.pool.queue_wait)


class SessionTools:
    """The tools of a pool's sessions.

    Args:
        without: tools of every game that are not offered.

    Raises:
        ConfigurationError: the game has a tool of a name that is taken.
    """

    def __init__(self, pool: SessionPool, without: Collection[str] = ()) -> None:
        self._own = ToolRegistry(hidden=("session",))
        for function in _OF_EVERY_GAME:
            if function.__name__ not in without:
                self._own.add(function)
        self._games = pool.tools
        taken = set(pool.tools.names) & ({*self._own.names} | {*without})
        if taken:
            raise ConfigurationError(
                "the game has a tool of a name that every game's tools have",
                fault="engine",
                field="tool",
                got=sorted(taken),
                cure='give it another one: @tool(name="..")',
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Of all tools."""
        return (*self._own.names, *self._games.names)

    def schemas(self) -> list[ToolSchema]:
        """Of all tools."""
        return [*self._own.schemas(), *self._games.schemas()]

    def check(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Raises ToolError where there is no such tool, or it does not take these arguments."""
        if name in self._own:
            owner = self._own
        else:
            owner = self._games
        owner.validate(name, arguments)

    async def call(self, session: Session, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What a tool answers: the keys of a SessionObservation, of a SessionState, or what get_map_info gives.

        One of the game's own is applied at once, without a tick; its result stands in info["tools"].

        Raises:
            ToolError: there is none of this name, the arguments are wrong, or it failed. Also what Session.submit
                raises.
        """
        if name in self._own:
            answer = await self._own.call(name, arguments, session=session)
            return answer if isinstance(answer, dict) else answer.as_dict()
        self._games.validate(name, arguments)
        seen = await submitted(session, ticks=0, actions=[ToolCall(name, arguments)])
        answer = seen.info["tools"][-1]
        if "error" in answer:
            # what ran and failed is the game's; the caller has given what it asked for
            fault = None
            if answer["code"] == "TOOL_EXECUTION_FAILED":
                fault = "engine"
            raise ToolError(answer["error"], tool=name, code=answer["code"], fault=fault)
        return seen.as_dict()
