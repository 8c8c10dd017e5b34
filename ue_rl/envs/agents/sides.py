"""SidesTransport: a two-sided game as an env of the learner's side; an opponent plays the other one.

In every env the learner has one side; in every other env it is the other side. `swap_sides` changes them round, a new
opponent takes over, each with the next episode of an env: an episode has the same players from its start to its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.envs.agents.agent_rows import AgentRows, agents_of, group_of
from ue_rl.envs.agents.group import GroupTransport
from ue_rl.envs.agents.players import OtherPolicy, as_player
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.transport import Transport, owns_transport
from ue_rl.system.errors import ConfigurationError

_OPPONENT = "the other side"


@dataclass(frozen=True)
class Match:
    """An episode that was played to its end: in which env, on which side the learner was, and against whom.

    Attributes:
        reward: the sum of the last rewards of the learner's agents.
    """

    env: int
    side: int
    opponent: str
    reward: float = field(default=0.0, compare=False)


class SidesTransport(GroupTransport):
    """See the module's docstring. Row env * k + i is the i-th agent of the learner's side, k agents a side.

    Args:
        transport: an engine's with agents, two sides of them; connected here if it is not yet; owned from now on.
        sides: the names of two groups with the same spaces and as many agents. None: the engine's two groups, or the
            halves of its only one.
        opponent: who plays the other side, see ue_rl.envs.agents.players.as_player.
        others: for groups that are on neither side.

    Attributes:
        sides: of one env: the agents' numbers on each side.
        side_of: int [num_envs], the learner's side in each env. opponent_of: who plays against it there.

    Raises:
        ConfigurationError: there are no two equal sides.
    """

    @owns_transport
    def __init__(
        self,
        transport: Transport,
        sides: Sequence[str] | None = None,
        opponent: Any = "random",
        others: Mapping[str, Any] | None = None,
    ) -> None:
        self._adopt(transport)
        self.group = None
        engine = self.engine_spec
        self.sides = two_sides(engine, sides)
        self._learns(self.sides[0])
        self.side_of: NDArray[np.intp] = np.arange(engine.num_envs) % 2
        self._planned = self.side_of.copy()
        other = AgentRows(engine, self.sides[1])
        for env in range(engine.num_envs):
            self.part.seat(env, self.sides[self.side_of[env]])
            other.seat(env, self.sides[1 - self.side_of[env]])
        self.opponent_of = [""] * engine.num_envs
        self._opponents: dict[str, OtherPolicy] = {}
        self._playing = np.zeros(engine.num_envs, np.bool_)
        self._last_rewards = np.zeros((engine.num_envs, self.part.size), np.float64)  # of agents that have ended
        self._finished: list[Match] = []
        self._players[_OPPONENT] = other, self
        self.play_against("", opponent)
        for name, policy in (others or {}).items():
            self.set_player(name, policy)

    def play_against(self, name: str, policy: Any, now: bool = False) -> None:
        """From each env's next episode on `policy` plays the other side.

        Args:
            name: what `Match.opponent` says. policy: see ue_rl.envs.agents.players.as_player.
            now: in the episodes under way, too.
        """
        self._next = name
        self._opponents[name] = as_player(policy, self._players[_OPPONENT][0].spec)
        if now:
            self.opponent_of = [name] * len(self.opponent_of)
        for unused in set(self._opponents) - {name, *self.opponent_of}:
            del self._opponents[unused]

    def swap_sides(self) -> None:
        """From each env's next episode on the learner has the other side there."""
        self._planned = 1 - self._planned

    def finished_games(self) -> list[Match]:
        """Those that ended since the last call."""
        finished = self._finished
        self._finished = []
        return finished

    def receive(self) -> StepBuffers:
        """See GroupTransport.receive."""
        buffers = super().receive()
        if np.count_nonzero(buffers.dones):
            ended = buffers.dones != 0
            np.copyto(self._last_rewards.reshape(-1), buffers.rewards, where=ended)
        return buffers

    # -- an OtherPolicy: the other side

    def act(self, buffers: StepBuffers) -> NDArray[np.float32]:
        """See ue_rl.envs.agents.players.OtherPolicy."""
        names = list(dict.fromkeys(self.opponent_of))
        actions = self._opponents[names[0]].act(buffers)
        if len(names) > 1:
            actions = actions.copy()
            playing = np.repeat(np.array(self.opponent_of, object), self.part.size)
            for name in names[1:]:
                rows = playing == name
                actions[rows] = self._opponents[name].act(buffers)[rows]
        return actions

    def begin(self, rows: Sequence[int]) -> None:
        """See ue_rl.envs.agents.players.OtherPolicy."""
        for player in self._opponents.values():
            player.begin(rows)

    def _begin(self, envs: list[int]) -> None:
        over = set(self._over())
        for env in envs:
            if env in over and self._playing[env] and env not in self._lost:  # with its engine it was not played out
                reward = float(self._last_rewards[env].sum())
                self._finished.append(Match(env, int(self.side_of[env]), self.opponent_of[env], reward))
            self._playing[env] = True
            self._last_rewards[env] = 0
            self.opponent_of[env] = self._next
            if self.side_of[env] != self._planned[env]:
                self.side_of[env] = side = self._planned[env]
                self.part.seat(env, self.sides[side])
                self._players[_OPPONENT][0].seat(env, self.sides[1 - side])
        super()._begin(envs)


def two_sides(engine: EnvSpec, names: Sequence[str] | None = None) -> tuple[list[int], list[int]]:
    """The agents of one env on each of two sides.

    Raises:
        ConfigurationError: there are no two sides with as many agents each.
    """
    groups = [group.name for group in engine.groups] if names is None else list(names)
    if len(groups) == 1 and names is None:
        agents = agents_of(engine, groups[0])
        sides = agents[: len(agents) // 2], agents[len(agents) // 2 :]
    elif len(groups) == 2:
        sides = agents_of(engine, groups[0]), agents_of(engine, groups[1])
    else:
        sides = [], []
    if not sides[0] or len(sides[0]) != len(sides[1]):
        raise ConfigurationError(
            "self-play needs two equal sides",
            field="sides",
            got=", ".join(engine.agent_names) or "no agents",
            expected="two groups with as many agents, or one group with an even number of them",
            cure="name the two groups: sides: [red, blue]",
        )
    AgentRows(engine, [*sides[0], *sides[1]])  # the same spaces
    return sides


def names_of(engine: EnvSpec, agents: Sequence[int]) -> str:
    """A side's name for people."""
    groups = list(dict.fromkeys(group_of(engine, k) for k in agents))
    return groups[0] if len(agents_of(engine, groups[0])) == len(agents) else engine.agent_names[agents[0]]
