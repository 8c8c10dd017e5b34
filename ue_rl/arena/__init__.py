"""Agents that reason: behaviours that see a game and call its tools by name; over HTTP, or in a bridge of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ue_rl.system.lazy import lazy

if TYPE_CHECKING:
    from ue_rl.arena.arena import AgentArena as AgentArena
    from ue_rl.arena.behaviors import AgentBehavior as AgentBehavior
    from ue_rl.arena.behaviors import RandomBehavior as RandomBehavior
    from ue_rl.arena.behaviors import RulesBehavior as RulesBehavior
    from ue_rl.arena.behaviors import SimpleAgentBehavior as SimpleAgentBehavior
    from ue_rl.arena.llm import LLMAgentBehavior as LLMAgentBehavior
    from ue_rl.arena.log import RunLog as RunLog
    from ue_rl.arena.player import Episode as Episode
    from ue_rl.arena.player import replay as replay
    from ue_rl.arena.policy import PolicyBehavior as PolicyBehavior
    from ue_rl.arena.types import AgentDecision as AgentDecision
    from ue_rl.arena.types import Observation as Observation
    from ue_rl.arena.types import SimpleContext as SimpleContext
    from ue_rl.arena.types import ToolResult as ToolResult

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "arena": "AgentArena",
        "behaviors": "AgentBehavior RandomBehavior RulesBehavior SimpleAgentBehavior",
        "llm": "LLMAgentBehavior",
        "log": "RunLog",
        "player": "Episode replay",
        "policy": "PolicyBehavior",
        "types": "AgentDecision Observation SimpleContext ToolResult",
    },
)
