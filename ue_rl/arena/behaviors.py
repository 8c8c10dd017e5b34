"""Behaviours: what a learner writes. Tier 1 names a tool, tier 2 decides with parameters, tier 3 is in llm.py."""

from __future__ import annotations

import abc
import random
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from ue_rl.arena.inferring import DANGER, infer_params
from ue_rl.arena.memory.base import Memory
from ue_rl.arena.types import IDLE, AgentDecision, Observation, SimpleContext, ToolResult, away_from, nearest
from ue_rl.tools import ToolSchema


class AgentBehavior(abc.ABC):
    """Tier 2: decides on a tool with its parameters. One instance plays one agent; it is never called twice at once.

    Attributes:
        inline: decide() never waits for anything: it is called without a thread of its own, and no deadline holds.
            It says so of its own class alone, not of classes that inherit it.
        memory: what GET /memory shows; None where nothing is remembered.
        trace: what led to the last decision (prompt, plan, tokens), for the log; emptied before each decision.
    """

    inline: ClassVar[bool] = False
    memory: Memory | None = None
    trace: Mapping[str, Any] = {}

    @abc.abstractmethod
    def decide(self, observation: Observation, tools: Sequence[ToolSchema]) -> AgentDecision:
        """The tool to call now. What is raised becomes idle, with the reason."""

    def on_tool_result(self, result: ToolResult) -> None:  # noqa: B027 - few need it
        """What became of the last call; before the decide() that sees it in its observation too."""

    def on_episode_start(self) -> None:  # noqa: B027
        """A new episode begins with the next decide()."""

    def on_episode_end(self, success: bool, metrics: Mapping[str, Any]) -> None:  # noqa: B027
        """The episode is over; `metrics` are the game's."""


class SimpleAgentBehavior(AgentBehavior):
    """Tier 1: names a tool. Its parameters are inferred: the nearest resource, away from the nearest hazard, the first
    item.

    Attributes:
        system_prompt: what the agent is for; for people, and for a model that decide() may ask.
        memory_capacity: how many observations `context.memory` holds.
    """

    system_prompt: str = ""
    memory_capacity: int = 10
    _seen: deque[Observation] | None = None

    @abc.abstractmethod
    def decide(self, context: SimpleContext) -> str:  # type: ignore[override]
        """The name of a tool."""

    def decide_whole(self, observation: Observation, tools: Sequence[ToolSchema]) -> AgentDecision:
        """decide() with the context made, and the tool's parameters inferred; whole decisions are taken as they are."""
        if self._seen is None:
            self._seen = deque(maxlen=self.memory_capacity)
        context = SimpleContext(observation, tuple(tool.name for tool in tools), tuple(reversed(self._seen)))
        said: Any = self.decide(context)
        self._seen.append(observation)
        if isinstance(said, str):
            return AgentDecision(said, infer_params(said, observation))
        return AgentDecision.of(said)


class RandomBehavior(AgentBehavior):
    """Calls any tool with parameters drawn from its schema; the same ones again with the same seed."""

    inline = True

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._random: random.Random | None = None

    def decide(self, observation: Observation, tools: Sequence[ToolSchema]) -> AgentDecision:
        """See AgentBehavior."""
        if not tools:
            return AgentDecision()
        if self._random is None:  # agents with the same seed act differently
            self._random = random.Random(f"{self.seed} {observation.agent_id}")
        tool = self._random.choice(sorted(tools, key=lambda tool: tool.name))
        params = {}
        for name, schema in sorted(tool.parameters.get("properties", {}).items()):
            params[name] = drawn(schema, observation, self._random)
        return AgentDecision(tool.name, params, "drawn at random")


def drawn(schema: Mapping[str, Any], observation: Observation, rng: random.Random) -> Any:
    """A value that a parameter's JSON schema allows: near the agent where it is a point, and something seen or carried
    where it is a name.
    """
    kind = schema.get("type")
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if kind == "array" and schema.get("minItems", 3) != 3:
        return [rng.uniform(-1.0, 1.0) for _ in range(schema["minItems"])]
    if kind == "array":
        return [number + rng.uniform(-5.0, 5.0) for number in observation.position]
    if kind == "number":
        return rng.uniform(schema.get("minimum", 0.0), schema.get("maximum", 2.0))
    if kind == "integer":
        return rng.randint(schema.get("minimum", 0), schema.get("maximum", 10))
    if kind == "boolean":
        return rng.random() < 0.5
    names = [thing.name for thing in observation.nearby_resources] + [item.name for item in observation.inventory]
    return rng.choice(names) if names else schema.get("default")


class RulesBehavior(AgentBehavior):
    """Flees hazards, takes what is in reach, goes to the nearest resource, and walks on where it sees nothing.

    Args:
        reach: how near a resource must be to be taken.
        take: the tool that takes; one of the game's.
    """

    inline = True

    def __init__(self, reach: float = 1.5, take: str = "collect") -> None:
        self.reach, self.take = reach, take

    def decide(self, observation: Observation, tools: Sequence[ToolSchema]) -> AgentDecision:
        """See AgentBehavior."""
        hazard, resource = nearest(observation.nearby_hazards), nearest(observation.nearby_resources)
        if resource is not None and resource.distance <= self.reach:
            return AgentDecision(self.take, {"item_name": resource.name}, f"{resource.name} is in reach")
        if hazard is not None and hazard.distance < DANGER:
            away = away_from(observation.position, hazard.position)
            return AgentDecision("move_to", {"target_position": away, "speed": 2.0}, f"fleeing {hazard.name}")
        if resource is not None:
            target = list(resource.position)
            return AgentDecision("move_to", {"target_position": target, "speed": 1.5}, f"going to {resource.name}")
        names = {tool.name for tool in tools}
        if "move_to" not in names:
            return AgentDecision(IDLE, {}, "nothing is near")
        return AgentDecision("move_to", {"target_position": self._onwards(observation), "speed": 1.5}, "exploring")

    def _onwards(self, observation: Observation) -> list[float]:
        """Round about the middle: from each quarter of the ground to the next, by the position alone."""
        x, y, z = observation.position
        return [-10.0 if z >= 0 else 10.0, y, 10.0 if x >= 0 else -10.0]
