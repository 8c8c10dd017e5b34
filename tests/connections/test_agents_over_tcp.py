"""Agents over TCP: the shared channel alone, and never half an env in a line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.steps import advance, begin
from ue_rl.bridges import BaseBridge, run_in_thread
from ue_rl.connections import MultiTcpConnection
from ue_rl.devtools.testing import RawClient
from ue_rl.protocol.spec import AgentGroup, Channel, EnvSpec
from ue_rl.system import errors


class Uneven(BaseBridge):
    """Two envs of two strikers and a goalie; an agent answers `wait` ticks after it was asked, each at its own time.

    Observation: env, agent, how often it was asked. The goalie has one number more, its env's resets.
    """

    def __init__(self, wait: Any = (0, 1, 3)) -> None:
        groups = (AgentGroup("striker", 2, EnvSpec(3, 1)), AgentGroup("goalie", 1, EnvSpec(4, 2)))
        self.wait, self.left = wait, np.zeros(6, int)
        self.asked, self.resets = np.zeros(6, int), np.zeros(2, int)
        super().__init__(EnvSpec(4, 2, num_envs=2, groups=groups, features=frozenset({"INFO"})))
        self.lockstep.tick_training = self.tick_training  # type: ignore[method-assign]

    def tick_training(self, delta: float) -> None:
        """Answers those whose time has come."""
        for row in np.flatnonzero(self.inbox.command).tolist():
            env, agent = divmod(row, 3)
            if self.inbox.command[row] == self.inbox.RESET:
                self.resets[env] += agent == 0
                self.asked[row] = 0
            else:
                if not self.left[row]:
                    self.left[row] = 1 + self.wait[agent]
                self.left[row] -= 1
                if self.left[row]:
                    continue
                self.asked[row] += 1
            self.outbox.obs[row] = env, agent, self.asked[row], self.resets[env]
            self.outbox.rewards[row] = self.inbox.actions[row].sum()
            self.write_info(row, {"row": row})
            self.inbox.command[row] = self.inbox.NOTHING
            self.answered[row] = 1

    def begin_in(self, envs: Any, seeds: Any, options: Any) -> None:
        """Not used."""

    def act_in(self, envs: Any, actions: Any) -> None:
        """Not used."""

    def read_in(self, envs: Any, begun: bool) -> None:
        """Not used."""


@pytest.mark.parametrize("compiled", [None, False], ids=["compiled", "pure"])
def test_steps_and_resets(compiled: Any) -> None:
    with run_in_thread(Uneven(), port=0) as server:
        with MultiTcpConnection("127.0.0.1", server.port, compiled=compiled, timeout=20.0) as connection:
            assert connection.spec.channel is Channel.SHARED
            states = begin(connection)
            assert states.obs[:, :2].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
            for n in range(1, 4):
                states = advance(connection, np.arange(12, dtype=np.float32).reshape(6, 2))
                assert states.obs[:, 2].tolist() == [n] * 6
                assert states.rewards.tolist() == [0, 2, 9, 6, 8, 21]  # a striker has one number of an action
                assert states.infos == {row: {"row": row} for row in range(6)}
            assert advance(connection, 1, resets=[1]).obs[:, 2].tolist() == [4, 4, 4, 0, 0, 0]
            assert states.obs[5, 3] == 2


def test_the_rows_of_an_env_wait_for_each_other() -> None:
    with run_in_thread(Uneven((2, 0, 1)), port=0) as server, RawClient(("127.0.0.1", server.port)) as client:
        assert "CHANNEL=SHARED" in client.line()
        assert client.ask("ACT=RESET;ENV=0").count("ENV=0") == 3
        answer = client.ask("ACT=1;ENV=0;AGENT=0||ACT=1;ENV=0;AGENT=1||ACT=1,1;ENV=0;AGENT=2||ACT=RESET;ENV=1")
        assert answer.count("ENV=1") == 3  # it need not wait for the other env
        assert answer.count("ENV=0") == 0
        assert client.line().count("ENV=0") == 3


def test_env_sockets_are_refused_by_name() -> None:
    with run_in_thread(Uneven(), port=0) as server:
        with pytest.raises(errors.UnsupportedByEngine, match="an engine with agents speaks on one socket"):
            MultiTcpConnection("127.0.0.1", server.port, channel="per_env").connect()


def test_a_second_connection_is_another_trainer() -> None:
    with run_in_thread(Uneven(), port=0) as server, RawClient(("127.0.0.1", server.port)) as client:
        client.line()
        with RawClient(("127.0.0.1", server.port)) as other:
            assert other.line().startswith("BUSY")
        assert client.ask("ACT=RESET;ENV=0").count("ENV=0") == 3
