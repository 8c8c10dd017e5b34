"""GroupTransport: the agents of one group as if each were an env; what a VecEnv over a group steps.

Row env * count + k is env's k-th agent of the group. Agents may end at different times. A row whose agent has ended
waits, inactive, until the agent comes back or its env begins a new episode; that happens by itself as soon as nobody
in the env can act any more. Agents of other groups are played by others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ue_rl.connections.base.checks import check_actions, check_finite, live_agents
from ue_rl.envs.agents.agent_rows import AgentRows, agents_of, group_of
from ue_rl.envs.agents.players import OtherPolicy, as_player
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spec import EnvSpec
from ue_rl.protocol.transport import Draw, Envs, Options, Params, Seeds, Transport, owns_transport
from ue_rl.system.errors import ConfigurationError


class GroupTransport(Transport):
    """A Transport (ue_rl/protocol/transport.py) whose spec has no agents any more: each is an env of its own.

    Args:
        transport: an engine's with agents; connected here if it is not yet; owned from now on.
        group: the learner's; None: the only one.
        others: group to policy, see ue_rl.envs.agents.players.as_player; for every group but the learner's. More may
            follow by `set_player`, up to the first request.

    Attributes:
        spec: group_spec(group) of the engine's spec. engine_spec: the engine's own.
        group: the learner's.
        buffers: the learner's arrays; what `receive` returns.
        part: the learner's rows. `part.acted` is False for those that were inactive in the last step.

    Raises:
        ConfigurationError: the engine has no agents or no such group, or the group is not named though there are
            several. Also what transport.connect() raises.
    """

    @owns_transport
    def __init__(self, transport: Transport, group: str | None = None, others: Mapping[str, Any] | None = None) -> None:
        self._adopt(transport)
        names = [g.name for g in self.engine_spec.groups]
        if group is None and len(names) != 1:
            what = "which group learns?"
            cure = f"name it: group={names[0]!r}, or --group {names[0]}"
            raise ConfigurationError(what, field="group", expected=", ".join(names), cure=cure)
        if group is None:
            group = names[0]
        self.group: str | None = group
        self._learns(agents_of(self.engine_spec, group))
        for name, policy in (others or {}).items():
            self.set_player(name, policy)

    def _adopt(self, transport: Transport) -> None:
        self.transport = transport
        self.engine_spec = engine = transport.connect()
        self.handshake = transport.handshake
        if not engine.groups:
            raise ConfigurationError(
                "the engine has no agents: each of its envs is one", field="AGENTS", cure="use UnrealVecEnv"
            )
        self._players: dict[str, tuple[AgentRows, OtherPolicy]] = {}
        self._everybody_plays = False
        self._actions = np.zeros((engine.num_rows, engine.act_size), np.float32)
        self._nobody: NDArray[np.bool_] = np.zeros(engine.num_rows, np.bool_)
        self._everybody: NDArray[np.bool_] = np.ones(engine.num_rows, np.bool_)
        self._live = self._nobody  # can act now; a new array in each step, as are the next two
        self._asked = self._nobody  # to take a step
        self._begun = self._nobody  # rows of envs that were asked to begin an episode
        self._stepping = self._nothing_sent = False
        self._lost: set[int] = set()  # envs whose engine was lost, until they begin again

    def _learns(self, agents: Sequence[int]) -> None:
        self.part = AgentRows(self.engine_spec, agents)
        self.buffers = self.part.buffers

    # -- who plays

    def set_player(self, group: str, policy: Any, deterministic: bool = False) -> None:
        """Lets `policy` act for all agents of another group from the next step on.

        Args:
            policy, deterministic: see ue_rl.envs.agents.players.as_player.

        Raises:
            ConfigurationError: no such group, or the learner's own; not a policy.
        """
        agents = agents_of(self.engine_spec, group)
        mine = {group_of(self.engine_spec, row % self.engine_spec.agents_per_env) for row in self.part.rows.tolist()}
        if group in mine:
            raise ConfigurationError("this group is the learner's own", field="others", got=group)
        part = AgentRows(self.engine_spec, agents)
        if group in self._players:
            part = self._players[group][0]  # the observations stay
        self._players[group] = part, as_player(policy, part.spec, deterministic)
        self._everybody_plays = False

    def _others(self) -> list[tuple[AgentRows, OtherPolicy]]:
        """Whoever acts for agents that are not the learner's; raises ConfigurationError: nobody does for some."""
        if self._everybody_plays:
            return list(self._players.values())
        played = {*self.part.rows.tolist(), *(row for part, _ in self._players.values() for row in part.rows.tolist())}
        missing = sorted(set(range(self.engine_spec.num_rows)) - played)
        if missing:
            group = group_of(self.engine_spec, missing[0] % self.engine_spec.agents_per_env)
            raise ConfigurationError(
                "nobody acts for the agents of this group",
                field="others",
                got=group,
                cure=f'pass others={{"{group}": policy}}, or "random" for the policy',
            )
        self._everybody_plays = True
        return list(self._players.values())

    # -- the Transport

    @property
    def spec(self) -> EnvSpec:
        """See Transport.spec."""
        return self.part.spec

    @property
    def draw_parameters(self) -> Draw | None:
        """See Transport.draw_parameters; asked with the engine's env ids."""
        return self.transport.draw_parameters

    @draw_parameters.setter
    def draw_parameters(self, draw: Draw | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.transport.draw_parameters = draw

    def connect(self) -> EnvSpec:
        """See Transport.connect."""
        return self.spec

    def send_actions(
        self, actions: NDArray[np.float32], resets: Envs = None, parameters: Params = None, resting: Sequence[int] = ()
    ) -> None:
        """Every agent that can act takes a step; an env in which nobody can begins a new episode.

        Args:
            actions: float32 [num_envs of `spec`, act_size]; rows of agents that cannot act are ignored.
            resets, resting: must be none: an agent has no reset of its own, and all agents of an env act together.

        Raises:
            ConfigurationError: resets, or nobody acts for a group. Also what Transport.send_actions raises.
        """
        if resets is not None and len(resets):
            raise ConfigurationError("an agent has no reset of its own", field="resets", got=resets)
        if len(resting):
            raise ConfigurationError("an agent does not rest while others of its env act", field="resting", got=resting)
        others = self._others()
        if self.part.whole and actions.shape == self._actions.shape:
            everything = actions
        else:
            self._check_actions(actions)  # before the others act
            everything = self._actions
            everything[self.part.rows, : self.spec.act_size] = actions
            for part, player in others:
                everything[part.rows, : part.spec.act_size] = player.act(part.buffers)
        over: list[int] = []
        if self._live is not self._everybody:
            over = self._over()
        asked = self._live
        begun = self._nobody
        if over:
            begun = self._rows_of(over)
        self.transport.send_actions(everything, over or None, parameters)
        if over:
            self._begin(over)
        self._asked = asked
        self._begun = begun
        self._stepping = True
        self._nothing_sent = False

    def reset(
        self, env_ids: Envs = None, seeds: Seeds = None, options: Options = None, parameters: Params = None
    ) -> None:
        """Begins new episodes: None: in every env; else in those envs of these rows in which nobody can act any more.

        Args:
            env_ids: rows; nothing is sent where others in their envs can still act, and `receive` returns at once.
            seeds, options: one for each row; each env takes those of its first row here.
        """
        size = self.part.size
        num_envs = self.engine_spec.num_envs
        if env_ids is None:
            chosen = {env: env * size for env in range(num_envs)}  # env to where its seed stands
        else:
            chosen = {}
            over = set(self._over())
            for place, row in enumerate(env_ids):
                if row // size in over:
                    chosen.setdefault(row // size, place)
        if not chosen:
            self._nothing_sent = True
            return
        self._others()
        envs = list(chosen)
        given_seeds = None if seeds is None else [seeds[chosen[env]] for env in envs]
        given_options = None if options is None else [options[chosen[env]] for env in envs]
        self.transport.reset(None if env_ids is None else envs, given_seeds, given_options, parameters)
        self._begin(envs)
        self._asked = self._nobody
        self._begun = self._rows_of(envs)
        self._stepping = False
        self._nothing_sent = False

    def receive(self) -> StepBuffers:
        """See Transport.receive: the learner's rows."""
        if self._nothing_sent:
            self._nothing_sent = False
            self.buffers.lost.clear()
            for row in np.flatnonzero(self.part.acted).tolist():  # said of the step, not of a new episode
                self.buffers.infos.pop(row, None)
            return self.buffers
        buffers = self.transport.receive()
        lost = buffers.lost
        whole = 0 not in buffers.present.tobytes() and 1 not in buffers.dones.tobytes()  # much faster than by NumPy
        if whole:
            live = self._everybody
        else:
            live = live_agents(buffers)
        parts = [self.part, *(part for part, _ in self._players.values())]
        for part in parts:
            if self._stepping:
                part.take_step(buffers, self._asked, live)
            else:
                part.take_start(buffers, self._begun, live)
        self.buffers = self.part.buffers  # its own, or the transport's
        if self._players:
            begun = self._begun | (live & ~self._asked & self._stepping)  # those that come back, too
            for part, player in self._players.values():
                rows = np.flatnonzero(begun[part.rows]).tolist()
                if rows:
                    player.begin(rows)
        self._live = live
        if lost:
            self._note_lost(buffers)
        elif self.buffers.lost:
            self.buffers.lost.clear()
        return self.buffers

    def _note_lost(self, buffers: StepBuffers) -> None:
        """The learner's rows in envs whose engine was lost."""
        self._lost |= buffers.lost
        mine = self.buffers
        size = self.part.size
        mine.lost = {row for row in range(len(self.part.rows)) if row // size in buffers.lost}
        for row in mine.lost:
            mine.infos[row] = buffers.infos[int(self.part.rows[row])]

    def call(self, line: str) -> str:
        """See Transport.call; ENV is the engine's env."""
        return self.transport.call(line)

    def close(self) -> None:
        """See Transport.close."""
        self.transport.close()

    def describe(self) -> dict[str, str]:
        """See Transport.describe."""
        return {**self.transport.describe(), "agents": ", ".join(self.engine_spec.agent_names)}

    @property
    def commands(self) -> Any:
        """See Transport.commands."""
        return self.transport.commands

    @property
    def awaited_rows(self) -> int:
        """Rows of the whole engine that were asked and are not answered yet."""
        rows: int = self.transport.awaited_rows  # type: ignore[attr-defined]  # any that train makes has it
        return rows

    def fail(self, reason: object) -> None:
        """See Transport.fail."""
        self.transport.fail(reason)

    # -- helpers

    def _over(self) -> list[int]:
        """Envs in which nobody can act any more."""
        live = self._live.reshape(self.engine_spec.num_envs, -1)
        if live.all():
            return []
        return np.flatnonzero(~live.any(axis=1)).tolist()

    def _rows_of(self, envs: Sequence[int]) -> NDArray[np.bool_]:
        rows = np.zeros((self.engine_spec.num_envs, self.engine_spec.agents_per_env), np.bool_)
        if envs:
            rows[list(envs)] = True
        return rows.reshape(-1)

    def _check_actions(self, actions: NDArray[np.float32]) -> None:
        """Those of the learner's rows that can act; raises ActionError: see Transport.send_actions."""
        check_actions(self.spec, actions)
        if not math.isfinite(np.vdot(actions, actions)):
            check_finite(self.spec, actions, np.flatnonzero(~self._live[self.part.rows]).tolist())

    def _begin(self, envs: list[int]) -> None:
        """These envs have been asked to begin an episode."""
        self._lost.difference_update(envs)
