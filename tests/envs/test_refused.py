"""An env that refuses its transport closes it: it owned it already, and nobody else would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.scripted_agents import World, lives, spec_of
from tests.harness.several import Walk
from ue_rl.bridges import run_in_thread, run_shm_in_thread
from ue_rl.connections.base.base import BaseTransport
from ue_rl.connections.dialling import open_transport
from ue_rl.devtools.testing.memory import MemoryTransport
from ue_rl.envs.agents import GroupTransport, GroupVecEnv, SidesTransport, UnrealParallelEnv
from ue_rl.envs.agents.multi_agent_env import AgentsEnv
from ue_rl.envs.connect import connect, make_env, make_vector_env
from ue_rl.envs.gym_env import UnrealEnv
from ue_rl.envs.vec_env import UnrealVecEnv
from ue_rl.envs.vector_env import UnrealVectorEnv
from ue_rl.protocol.transport import Transport
from ue_rl.system import errors


def agents(num_envs: int = 1, **groups: int) -> BaseTransport:
    return World(spec_of(num_envs, groups or {"a": 1, "b": 1}), lives(2, 2))


def walk(num_envs: int = 1) -> BaseTransport:
    return MemoryTransport(Walk(num_envs))


REFUSALS: list[tuple[Callable[[Any], object], Callable[[], BaseTransport]]] = [
    (lambda t: UnrealVecEnv(t, max_episode_steps=0), walk),
    (lambda t: UnrealVecEnv(t, render_mode="human"), walk),
    (lambda t: UnrealVecEnv(transport=t, render_mode="human"), walk),
    (UnrealVecEnv, agents),
    (UnrealEnv, lambda: walk(2)),
    (UnrealEnv, agents),
    (lambda t: UnrealEnv(t, render_mode="human"), walk),
    (UnrealVectorEnv, agents),
    (lambda t: UnrealVectorEnv(t, autoreset_mode="never"), walk),
    (lambda t: UnrealVectorEnv(t, render_mode="human"), walk),
    (AgentsEnv, walk),
    (UnrealParallelEnv, lambda: agents(2)),
    (GroupTransport, agents),
    (GroupTransport, walk),
    (lambda t: GroupTransport(t, "c"), agents),
    (lambda t: GroupVecEnv(t, "a", {"b": 3}), agents),
    (lambda t: SidesTransport(t, ["a", "c"]), agents),
    (lambda t: SidesTransport(t, opponent=3), agents),
    (SidesTransport, lambda: agents(1, a=1)),
]


@pytest.mark.parametrize("number", range(len(REFUSALS)))
def test_the_transport_is_closed(number: int) -> None:
    refuse, make = REFUSALS[number]
    transport = make()
    with pytest.raises((errors.ConfigurationError, errors.UnsupportedByEngine)):
        refuse(transport)
    with pytest.raises(errors.ConnectionUnusable, match="closed"):
        transport.reset()


@pytest.mark.parametrize("host", [run_in_thread, run_shm_in_thread])
def test_the_engine_serves_the_next_trainer(host: Any) -> None:
    with host(Walk(2)) as engine:
        kept: list[Transport] = []

        def opened() -> Transport:
            kept.append(open_transport(engine.url, timeout=20))
            return kept[-1]

        for refused in (
            lambda: UnrealEnv(opened()),
            lambda: UnrealVecEnv(opened(), max_episode_steps=0),
            lambda: UnrealVectorEnv(opened(), render_mode="human"),
            lambda: connect(engine.url, render_mode="human"),
            lambda: make_env(engine.url),
            lambda: make_vector_env(engine.url, 3),
        ):
            with pytest.raises((errors.ConfigurationError, errors.UnsupportedByEngine)):
                refused()
        connect(engine.url).close()
