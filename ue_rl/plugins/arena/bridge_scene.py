"""BridgeScene: any bridge with one env as a game that agents play: numbers by name, actions and tools as tools."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field, FiniteFloat

from ue_rl.bridges.base import BaseBridge
from ue_rl.bridges.hosting import Describes
from ue_rl.bridges.tools import ToolRegistry
from ue_rl.plugins.arena.types import AgentDecision, AgentObservation, ToolResult
from ue_rl.protocol.buffers import ActionBatch
from ue_rl.system.errors import ConfigurationError, ToolError, UeRlError

_MAX_WAIT = 10_000  # ticks of the engine that one action may take


class BridgeScene:
    """Its agent is "player"; `custom` of an observation has the numbers by name, and the bridge's text if there is one.

    The tool `act(action)` takes the numbers of an action; methods of the bridge that are marked `@tool` are tools too.
    A tick is one step of the env; one without `act` has the bridge's `no_op`, or zeros.

    Args:
        bridge: with one env, without groups of agents.

    Raises:
        ConfigurationError: it has several envs or agents.
    """

    name: ClassVar[str] = "bridge"
    agents: tuple[str, ...] = ("player",)

    def __init__(self, bridge: BaseBridge) -> None:
        spec = bridge.spec
        if spec.num_rows != 1:
            raise ConfigurationError(
                "agents play a bridge with one env", field="num_envs", expected=1, got=spec.num_rows
            )
        self.bridge = bridge
        self._size = spec.act_size
        self.tools = ToolRegistry.of(bridge, hidden=("env_id",))
        self.tools.add(self._act_tool(), "act", f"Act for one tick; {spec.act_size} numbers: {_meaning(bridge)}.")
        self.tools.add(_idle, "idle", "Do nothing for one tick.")
        if bridge.observation_names:
            self._names = bridge.observation_names
        else:
            self._names = [f"number_{n}" for n in range(spec.obs_size)]
        self.tick = 0
        self.over = True
        self.success = False
        self._reward = self._total = 0.0
        self._action: list[float] | None = None
        self._result: ToolResult | None = None
        bridge.start_training()

    def _act_tool(self) -> Any:
        def act(action: Any) -> str:
            self._action = list(action)
            return "done"

        act.__annotations__["action"] = Annotated[
            list[FiniteFloat], Field(min_length=self._size, max_length=self._size)
        ]
        return act

    def reset(self, seed: int | None = None) -> None:
        """See Scene."""
        inbox = self.bridge.inbox
        inbox.command[0], inbox.seeds[0] = ActionBatch.RESET, -1 if seed is None else seed
        self._answered()
        self.tick = 0
        self.over = False
        self.success = False
        self._result = None
        self._reward = self._total = 0.0

    def observe(self, agent: str) -> AgentObservation:
        """See Scene."""
        numbers = self.bridge.outbox.obs[0].tolist()
        custom: dict[str, Any] = {"observation": dict(zip(self._names, numbers, strict=True))}
        if isinstance(self.bridge, Describes):
            custom["text"] = self.bridge.describe(0)
        return AgentObservation(agent_id=agent, tick=self.tick, custom=custom, tool_result=self._result)

    def step(self, decisions: Mapping[str, AgentDecision]) -> None:
        """See Scene."""
        decision = decisions.get("player", AgentDecision())
        self._action = None
        try:
            said = self.tools.answer(decision.tool, decision.params, env_id=0)
            self._result = ToolResult(tool=decision.tool, result=said, duration_ticks=1)
            if self._action is None:
                action = self._no_op()
            else:
                action = self._action
            self._step(action)
        except (ToolError, UeRlError) as error:  # a choice that does not exist is refused by the bridge
            self._result = ToolResult(tool=decision.tool, success=False, error=error.plain())
            self._step(self._no_op())
        out = self.bridge.outbox
        self.tick += 1
        self._reward = float(out.rewards[0])
        self._total += self._reward
        self.over = bool(out.dones[0])
        self.success = self.over and not out.truncated[0]

    def _no_op(self) -> Any:
        return getattr(self.bridge, "no_op", np.zeros(self._size))

    def _step(self, action: Any) -> None:
        self.bridge.inbox.actions[0] = action
        self.bridge.inbox.command[0] = ActionBatch.STEP
        self._answered()

    def _answered(self) -> None:
        for _ in range(_MAX_WAIT):
            self.bridge.update_rl(1 / 60)
            if self.bridge.answered[0]:
                self.bridge.answered[:] = 0
                return
        raise ConfigurationError(f"the bridge did not answer within {_MAX_WAIT} ticks", fault="engine", env_id=0)

    def reward(self, agent: str) -> float:
        """See Scene."""
        return self._reward

    def metrics(self) -> dict[str, float]:
        """See Scene."""
        return {"return": self._total, "time": float(self.tick)}

    def digest(self) -> str:
        """SHA-256 of what is seen: of the game itself a bridge shows no more."""
        out = self.bridge.outbox
        seen = out.obs[0].tobytes() + out.rewards[:1].tobytes() + out.dones[:1].tobytes()
        return hashlib.sha256(seen + str(self.tick).encode()).hexdigest()


def _idle() -> str:
    return "waiting"


def _meaning(bridge: BaseBridge) -> str:
    spec = bridge.spec.action_spec
    names = ", ".join(bridge.action_names)
    if spec.counts:
        return f"{names or 'choices'}, of {', '.join(map(str, spec.counts))}, from 0"
    if names:
        return names
    return "within their bounds"
