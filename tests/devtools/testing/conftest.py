"""What the tests of the engines share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ue_rl.devtools.testing import PluginStandIn, RawClient, TinyTask
from ue_rl.devtools.testing.engines.loop import EngineLoop

Dial = Callable[[EngineLoop], RawClient]
Make = Callable[..., PluginStandIn]
Connected = Callable[..., tuple[PluginStandIn, RawClient, list[RawClient]]]
Ticked = Callable[..., tuple[PluginStandIn, list[RawClient]]]
Begun = Callable[..., tuple[RawClient, TinyTask]]


@pytest.fixture
def dial() -> Iterator[Dial]:
    """A factory of bare clients of an engine, closed when the test ends."""
    with ExitStack() as stack:
        yield lambda engine: stack.enter_context(RawClient(engine.address))


@pytest.fixture
def connected(ue_rl_plugin_stand_in: Make, dial: Dial) -> Connected:
    """A factory: a game that ticks by itself, its admin socket, which has the handshake, and its env sockets."""

    def make(**options: Any) -> tuple[PluginStandIn, RawClient, list[RawClient]]:
        game = ue_rl_plugin_stand_in(**options)
        admin = dial(game)
        assert admin.line() == game.handshake
        return game, admin, [dial(game) for _ in range(game.num_envs)]

    return make


@pytest.fixture
def begun(connected: Connected) -> Begun:
    """A factory: the env socket of a game with one env, and its task in this process, both reset."""

    def make(**options: Any) -> tuple[RawClient, TinyTask]:
        _, _, (env,) = connected(num_envs=1, **options)
        task = TinyTask(decimals=options.get("decimals", 2))
        task.reset()
        env.ask("ACT=RESET")
        return env, task

    return make


@pytest.fixture
def manual(ue_rl_plugin_stand_in: Make) -> Make:
    """A factory of games that the test ticks."""
    return lambda **options: ue_rl_plugin_stand_in(manual=True, **options)


@pytest.fixture
def ticked(manual: Make, dial: Dial) -> Ticked:
    """A factory: a game that the test ticks, and its admin and env sockets, all accepted."""

    def make(**options: Any) -> tuple[PluginStandIn, list[RawClient]]:
        game = manual(**options)
        clients = [dial(game) for _ in range(1 + game.num_envs)]
        game.run_until(lambda: game.all_connected)
        return game, clients

    return make


def answer_after(game: PluginStandIn, client: RawClient) -> tuple[int, str]:
    """(ticks it took, the answer) in a game that the test ticks."""
    return game.run_until(client.has_data), client.line()
