"""PolicyBehavior: a trained policy as a behaviour, in a scene of ours or in a game that sends the same fields."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ue_rl.arena.behaviors import AgentBehavior
from ue_rl.arena.scenes.world import World
from ue_rl.arena.types import AgentDecision, Observation
from ue_rl.errors import ConfigurationError
from ue_rl.tools import ToolSchema


class PolicyBehavior(AgentBehavior):
    """Asks a policy, and calls the tool that its choice stands for.

    Args:
        policy: such as OnnxInference, Sb3Inference, or anything whose `run_inference(float32 [1, obs_size])` gives
            [[the number of a choice]].
        scene: the World class that it was trained in: `encode` makes its numbers, `choose` its calls.
    """

    def __init__(self, policy: Any, scene: type[World]) -> None:
        self.policy, self.scene = policy, scene

    @classmethod
    def load(cls, path: Path | str, scene: type[World]) -> PolicyBehavior:
        """From an .onnx file, or a model.zip of Stable-Baselines3.

        Raises:
            ConfigurationError: its sizes are not those of the scene. ModelLoadError: not such a file.
        """
        from ue_rl import inference

        policy: Any = inference.OnnxInference(path) if str(path).endswith(".onnx") else inference.Sb3Inference(path)
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

    def decide(self, observation: Observation, tools: Sequence[ToolSchema]) -> AgentDecision:
        """See AgentBehavior."""
        row = np.array([self.scene.encode(observation)], np.float32)
        return self.scene.choose(int(self.policy.run_inference(row)[0, 0]), observation)
