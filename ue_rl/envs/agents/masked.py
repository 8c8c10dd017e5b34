"""Rollout buffers without inactive rows for sb3-contrib's MaskablePPO; see ue_rl/envs/agents/buffers.py."""

from __future__ import annotations

from sb3_contrib.common.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer

from ue_rl.envs.agents.buffers import ActiveRollout


class ActiveMaskableRolloutBuffer(ActiveRollout, MaskableRolloutBuffer):
    """MaskableRolloutBuffer without inactive rows; needs the callback ActiveRows."""


class ActiveMaskableDictRolloutBuffer(ActiveRollout, MaskableDictRolloutBuffer):
    """ActiveMaskableRolloutBuffer for Dict observations."""
