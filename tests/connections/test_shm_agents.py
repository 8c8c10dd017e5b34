"""Agents over shared memory: rows of agents that come, end and leave, and what is named where one is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.steps import advance, begin
from ue_rl.bridges import BaseBridge, run_shm_in_thread
from ue_rl.connections import SharedMemoryConnection
from ue_rl.connections.base.checks import live_agents
from ue_rl.devtools.testing.memory import MemoryTransport
from ue_rl.protocol.buffers import ActionBatch
from ue_rl.protocol.spec import ActionSpec, AgentGroup, EnvSpec
from ue_rl.system import errors

N = 4
STRIKER, GOALIE = EnvSpec(2, 1), EnvSpec(1, 1, action=ActionSpec.discrete(3))
TEAM = EnvSpec(
    2,
    1,
    num_envs=N,
    features=frozenset({"MASK", "SEED", "OPTIONS", "INFO"}),
    groups=(AgentGroup("striker", 2, STRIKER), AgentGroup("goalie", 1, GOALIE)),
)


class Team(BaseBridge):
    """Two strikers and a goalie in each env; `plan(env, time) -> {agent: done}` says who is in each answer."""

    def __init__(self, plan: Any = None, spec: EnvSpec = TEAM) -> None:
        super().__init__(spec)
        self.lockstep.tick_training = self.tick_training  # type: ignore[method-assign]
        self.plan = plan or (lambda env, time: {0: 0, 1: 0, 2: 0})
        self.time = [0] * spec.num_envs
        self.told: list[Any] = []
        self.asked: list[list[int]] = []
        self.keeps_absent = False

    def tick_training(self, delta: float) -> None:
        inbox, out, per_env = self.inbox, self.outbox, self.spec.agents_per_env
        self.asked.append(inbox.command.tolist())
        for env in range(self.spec.num_envs):
            first = env * per_env
            rows = slice(first, first + per_env)
            command = inbox.command[rows]
            if not command.any():
                continue
            reset = command[0] == ActionBatch.RESET
            if reset:
                seed, options = int(inbox.seeds[first]), inbox.options.pop(first, None)
                self.told.append((env, seed, options, inbox.parameters.pop(first, None)))
                inbox.seeds[rows] = -1
            self.time[env] = 0 if reset else self.time[env] + 1
            there = self.plan(env, self.time[env])
            for agent in range(per_env):
                row = first + agent
                out.present[row] = agent in there
                if agent in there:
                    out.obs[row, 0] = 100 * env + 10 * agent + self.time[env]
                    out.rewards[row], out.dones[row] = 1 + agent, there[agent]
                    if "INFO" in self.spec.features:
                        out.infos[row] = {"row": row}
                self.answered[row] = agent in there
        inbox.command[:] = ActionBatch.NOTHING

    def begin_in(self, envs: Any, seeds: Any, options: Any) -> None:
        raise NotImplementedError

    def act_in(self, envs: Any, actions: Any) -> None:
        raise NotImplementedError

    def read_in(self, envs: Any, begun: bool) -> None:
        raise NotImplementedError


def actions() -> np.ndarray:
    return np.full((TEAM.num_rows, TEAM.act_size), 1, np.float32)


def test_rows_are_agents(connect: Any) -> None:
    game = Team()
    connection = connect(game)
    out = connection.buffers
    assert out.obs.shape == (3 * N, 2)
    assert out.present.tolist() == [1] * (3 * N)
    assert out.obs[:, 0].tolist() == [100 * env + 10 * agent for env in range(N) for agent in range(3)]
    assert out.rewards.tolist() == [0] * (3 * N), "of a reset they mean nothing"
    out = advance(connection)
    assert out.obs[:, 0].tolist() == [100 * env + 10 * agent + 1 for env in range(N) for agent in range(3)]
    assert out.rewards.tolist() == [1, 2, 3] * N
    assert out.infos[7] == {"row": 7}
    assert game.asked[-1] == [1] * (3 * N)
    assert not np.shares_memory(out.obs, connection.memory.obs), "what was checked is what is given out"


def test_agents_end_leave_and_come_back(connect: Any) -> None:
    """Striker 1 of env 0 ends at time 1, is gone at 2, has come back at 3 and acts at 4; env 2 is over at time 2."""

    def plan(env: int, time: int) -> dict[int, int]:
        if env == 0 and 1 <= time <= 2:
            return {0: 0, 1: 1, 2: 0} if time == 1 else {0: 0, 2: 0}
        return {agent: int(env == 2 and time == 2) for agent in range(3)}

    game = Team(plan)
    connection = connect(game)
    out = advance(connection)
    assert out.dones[:3].tolist() == [0, 1, 0]
    assert live_agents(out)[:3].tolist() == [True, False, True]
    given = actions()
    given[1] = np.nan  # of an agent that does not act
    out = advance(connection, given)
    assert game.asked[-1][:3] == [1, 0, 1]
    assert out.present[:3].tolist() == [1, 0, 1]
    assert out.dones[6:9].tolist() == [1, 1, 1]
    given = actions()
    with pytest.raises(errors.ConfigurationError, match="nobody in this env can act") as caught:
        connection.send_actions(given)
    assert caught.value.env_id == 2
    out = advance(connection, given, [2])
    assert game.asked[-1] == [1, 0, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1]
    assert out.present.tolist() == [1] * (3 * N)
    assert out.rewards.tolist() == [1, 0, 3, 1, 2, 3, 0, 0, 0, 1, 2, 3], "it has just come: its reward means nothing"
    assert out.dones.tolist() == [0] * (3 * N)
    assert advance(connection).rewards[:3].tolist() == [1, 2, 3]
    assert game.asked[-1] == [1] * (3 * N)


def test_one_env_alone_is_reset(connect: Any) -> None:
    game = Team()
    connection = connect(game)
    advance(connection)
    out = begin(connection, [1, 3], seeds=[7, None], options=[None, {"map": 2}])
    assert game.asked[-1] == [0, 0, 0, 2, 2, 2, 0, 0, 0, 2, 2, 2]
    assert game.told[-2:] == [(1, 7, None, None), (3, -1, {"map": 2}, None)]
    assert out.obs[:, 0].tolist() == [1, 11, 21, 100, 110, 120, 201, 211, 221, 300, 310, 320]
    assert live_agents(out).all()


def test_parameters_of_a_reset_are_their_envs(connect: Any) -> None:
    """In the ring the row is the env's first."""
    said: list[Any] = []

    class Windy(Team):
        def list_parameters(self) -> dict[str, tuple[float, float, float]]:
            return {"wind": (0.0, -5.0, 5.0)}

        def set_parameter(self, name: str, value: float, env_id: int) -> None:
            said.append((name, value, env_id))

    connection = connect(Windy())
    connection.draw_parameters = lambda env: {"wind": float(env)}
    begin(connection, [3, 1])
    assert sorted(said) == [("wind", 1.0, 1), ("wind", 3.0, 3)]


def test_an_agent_that_was_asked_must_answer(connect: Any) -> None:
    connection = connect(Team(lambda env, time: {0: 0, 2: 0} if (env, time) == (1, 1) else {0: 0, 1: 0, 2: 0}))
    with pytest.raises(errors.MalformedMessage, match=r"agent that acted is missing.*agent striker_1") as caught:
        advance(connection)
    assert (caught.value.fault, caught.value.env_id) == ("engine", 1)


def test_somebody_must_be_there_at_the_start() -> None:
    game = Team(lambda env, time: {} if env == 2 else {0: 0})
    with run_shm_in_thread(game) as host, SharedMemoryConnection(host.name, timeout=10) as connection:
        connection.reset()
        with pytest.raises(errors.MalformedMessage, match="no agent is there") as caught:
            connection.receive()
        assert caught.value.env_id == 2


def test_masks_and_numbers_name_the_agent(connect: Any) -> None:
    game = Team()
    connection = connect(game)
    game.outbox.masks[5] = [0, 1, 0]
    assert advance(connection).masks[5].tolist() == [0, 1, 0]
    assert connection.buffers.masks.shape == (3 * N, 3)
    game.outbox.masks[3] = 0  # a striker, which has no choices
    advance(connection)
    given = actions()
    given[4] = np.nan
    with pytest.raises(errors.ActionError, match="agent striker_1") as caught:
        connection.send_actions(given)
    assert caught.value.env_id == 1
    game.outbox.masks[8] = 0
    with pytest.raises(errors.MalformedMessage, match="agent goalie") as mask:
        advance(connection)
    assert mask.value.env_id == 2


def test_numbers_of_an_agent_are_named(connect: Any) -> None:
    game = Team()
    connection = connect(game)
    game.outbox.obs[10, 1] = np.nan
    with pytest.raises(errors.NonFiniteValue, match="agent striker_1") as caught:
        advance(connection)
    assert caught.value.env_id == 3


def test_an_env_is_reset_as_a_whole() -> None:
    """A trainer that asks for less breaks the protocol."""
    with run_shm_in_thread(Team()) as host, SharedMemoryConnection(host.name, timeout=10) as connection:
        connection.reset()
        memory = connection.memory
        connection.receive()
        assert memory.ask is not None
        memory.ask[:] = [1, 1, 1, 1, 2, 2, 1, 1, 1, 1, 1, 1]
        connection._bell.ask(None)
        connection._session.on(2)  # type: ignore[arg-type]
        with pytest.raises(errors.EngineDisconnected):
            connection.receive()


def test_a_late_answer_names_envs_not_rows() -> None:
    game = Team()
    game.lockstep.tick_training = lambda delta: None  # type: ignore[method-assign]
    with run_shm_in_thread(game) as host, SharedMemoryConnection(host.name, timeout=0.3) as connection:
        connection.reset([1, 3])
        with pytest.raises(errors.EngineTimeout, match=r"0 of 2 envs.*\[1, 3\]"):
            connection.receive()


def test_at_random_the_answers_are_those_of_the_arrays() -> None:
    """Agents come, go and end at random, envs are reset at random: against a transport that copies arrays in memory."""

    def plan(env: int, time: int) -> dict[int, int]:
        rng = np.random.default_rng((env, time, draws[env]))
        there = {agent: int(rng.random() < 0.2) for agent in range(3) if live[env][agent] or rng.random() < 0.3}
        if not there and time == 0:
            there = {1: 0}
        return there

    draws, live = [0] * N, [[True] * 3 for _ in range(N)]
    games = Team(plan), Team(plan)
    games[0].outbox.present[:] = games[1].outbox.present[:] = 0
    with run_shm_in_thread(games[0]) as host, SharedMemoryConnection(host.name, timeout=10) as connection:
        other = MemoryTransport(games[1], through_codec=False)
        other.connect()
        rng, resets = np.random.default_rng(0), list(range(N))
        for _ in range(300):
            given = rng.normal(size=(3 * N, 1)).astype(np.float32)
            given[:, 0] = rng.integers(0, 2, 3 * N)
            for env in range(N):
                acted = live_agents(connection.buffers).reshape(N, 3)[env]
                live[env] = [False] * 3 if env in resets else acted.tolist()
                draws[env] += env in resets
            for transport in (connection, other):
                out = advance(transport, given, resets)
            mine, its = connection.buffers, other.buffers
            there = its.present != 0
            assert (mine.present == its.present).all()
            for name in ("obs", "rewards", "dones", "truncated", "masks"):
                assert (getattr(mine, name)[there] == getattr(its, name)[there]).all(), name
            stuck = ~live_agents(out).reshape(N, 3).any(axis=1)
            resets = np.flatnonzero(stuck | (rng.random(N) < 0.05)).tolist()
