"""Behaviours: what a learner writes. Tier 1 names a tool, tier 2 decides with parameters, tier 3 is in llm.py.

And what is done where nobody says it: the parameters of a tool that was named alone, and the rule of thumb.
"""

from __future__ import annotations

import abc
import random
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ue_rl.bridges.tools import ToolSchema
from ue_rl.plugins.arena.memory.base import Memory
from ue_rl.plugins.arena.types import (
    IDLE,
    AgentDecision,
    AgentObservation,
    SimpleContext,
    ToolResult,
    away_from,
    nearest,
)
from ue_rl.system.errors import ConfigurationError

if TYPE_CHECKING:
    from ue_rl.plugins.arena.scenes.scene import Scene

_MOVES = ("move_to", "navigate_to", "plan_path")
_TAKES = ("pickup_item", "pickup", "collect")
_GIVES = ("drop_item", "drop", "use_item", "use")
_TURNS = ("rotate_to_face", "rotate", "measure_distance")
# of Agent Arena's servers: a hazard nearer than this is fled, a resource is gone for
DANGER = 3.0
REACH = 5.0


def infer_params(tool: str, observation: AgentObservation) -> dict[str, Any]:
    """The parameters of `tool`: the nearest resource, away from the nearest hazard, the first item.

    Of a tool that is not known here, and where nothing is near: none.
    """
    resource = nearest(observation.nearby_resources)
    hazard = nearest(observation.nearby_hazards)
    if tool in _MOVES or tool in _TURNS:
        if resource is not None:
            return {"target_position": list(resource.position)}
        if hazard is not None and tool in _MOVES:
            return {"target_position": away_from(observation.position, hazard.position)}
    elif tool in _TAKES and resource is not None:
        return {"item_name": resource.name}
    elif tool in _GIVES and observation.inventory:
        return {"item_name": observation.inventory[0].name}
    return {}


def rule_of_thumb(observation: AgentObservation) -> AgentDecision:
    """For an agent that nobody registered: flee a hazard nearer than 3, go to a resource nearer than 5, else idle."""
    hazard = nearest(observation.nearby_hazards)
    if hazard is not None and hazard.distance < DANGER:
        params = {"target_position": away_from(observation.position, hazard.position), "speed": 2.0}
        return AgentDecision("move_to", params, f"avoiding {hazard.name or hazard.type}")
    resource = nearest(observation.nearby_resources)
    if resource is not None and resource.distance < REACH:
        params = {"target_position": list(resource.position), "speed": 1.5}
        return AgentDecision("move_to", params, f"going to {resource.name or resource.type}")
    return AgentDecision(IDLE, {}, "nothing is near")


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
    def decide(self, observation: AgentObservation, tools: Sequence[ToolSchema]) -> AgentDecision:
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
    _seen: deque[AgentObservation] | None = None

    @abc.abstractmethod
    def decide(self, context: SimpleContext) -> str:  # type: ignore[override]
        """The name of a tool."""

    def decide_whole(self, observation: AgentObservation, tools: Sequence[ToolSchema]) -> AgentDecision:
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

    def decide(self, observation: AgentObservation, tools: Sequence[ToolSchema]) -> AgentDecision:
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


def drawn(schema: Mapping[str, Any], observation: AgentObservation, rng: random.Random) -> Any:
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
    if names:
        return rng.choice(names)
    return schema.get("default")


class RulesBehavior(AgentBehavior):
    """Flees hazards, takes what is in reach, goes to the nearest resource, and walks on where it sees nothing.

    Args:
        reach: how near a resource must be to be taken.
        take: the tool that takes; one of the game's.
    """

    inline = True

    def __init__(self, reach: float = 1.5, take: str = "collect") -> None:
        self.reach = reach
        self.take = take

    def decide(self, observation: AgentObservation, tools: Sequence[ToolSchema]) -> AgentDecision:
        """See AgentBehavior."""
        hazard = nearest(observation.nearby_hazards)
        resource = nearest(observation.nearby_resources)
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

    def _onwards(self, observation: AgentObservation) -> list[float]:
        """Round about the middle: from each quarter of the ground to the next, by the position alone."""
        x, y, z = observation.position
        x_ahead = 10.0
        if z >= 0:
            x_ahead = -10.0
        if x >= 0:
            z_ahead = 10.0
        else:
            z_ahead = -10.0
        return [x_ahead, y, z_ahead]


class PolicyBehavior(AgentBehavior):
    """Asks a policy, and calls the tool that its choice stands for.

    Args:
        policy: such as OnnxInference, Sb3Inference, or anything whose `run_inference(float32 [1, obs_size])` gives
            [[the number of a choice]].
        scene: the Scene class that it was trained in: `encode` makes its numbers, `choose` its calls.
    """

    def __init__(self, policy: Any, scene: type[Scene]) -> None:
        self.policy = policy
        self.scene = scene

    @classmethod
    def load(cls, path: Path | str, scene: type[Scene], vec_normalize: Any = None) -> PolicyBehavior:
        """From an .onnx file, or a model.zip of Stable-Baselines3.

        Args:
            vec_normalize: of a zip, as Sb3Inference has it: None: the file beside it, if there is one; False: none.

        Raises:
            ConfigurationError: its sizes are not those of the scene, or an .onnx file is given statistics.
            ModelLoadError: not such a file, or its statistics are missing.
        """
        from ue_rl import inference

        policy: Any
        if str(path).endswith(".onnx"):
            if vec_normalize is not None:
                what = "an ONNX file has its normalisation inside"
                raise ConfigurationError(what, field="vecnormalize", cure="leave it out")
            policy = inference.OnnxInference(path)
        else:
            policy = inference.Sb3Inference(path, vec_normalize)
        if policy.obs_size not in (None, len(scene.obs_names)):
            raise ConfigurationError(
                "the policy was trained on other observations",
                field="policy",
                expected=f"{len(scene.obs_names)} numbers",
                got=policy.obs_size,
            )
        return cls(policy, scene)

    def on_episode_start(self) -> None:
        """A recurrent policy forgets."""
        reset = getattr(self.policy, "reset", None)
        if reset is not None:
            reset()

    def decide(self, observation: AgentObservation, tools: Sequence[ToolSchema]) -> AgentDecision:
        """See AgentBehavior."""
        row = np.array([self.scene.encode(observation)], np.float32)
        return self.scene.choose(int(self.policy.run_inference(row)[0, 0]), observation)
