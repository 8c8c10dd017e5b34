# The names of this package, each imported when it is first used (ue_rl/system/lazy.py).
from ue_rl.plugins.arena.arena import AgentArena as AgentArena
from ue_rl.plugins.arena.behaviors import AgentBehavior as AgentBehavior
from ue_rl.plugins.arena.behaviors import PolicyBehavior as PolicyBehavior
from ue_rl.plugins.arena.behaviors import RandomBehavior as RandomBehavior
from ue_rl.plugins.arena.behaviors import RulesBehavior as RulesBehavior
from ue_rl.plugins.arena.behaviors import SimpleAgentBehavior as SimpleAgentBehavior
from ue_rl.plugins.arena.llm import LLMAgentBehavior as LLMAgentBehavior
from ue_rl.plugins.arena.log import RunLog as RunLog
from ue_rl.plugins.arena.player import ArenaEpisode as ArenaEpisode
from ue_rl.plugins.arena.player import replay as replay
from ue_rl.plugins.arena.types import AgentDecision as AgentDecision
from ue_rl.plugins.arena.types import AgentObservation as AgentObservation
from ue_rl.plugins.arena.types import SimpleContext as SimpleContext
from ue_rl.plugins.arena.types import ToolResult as ToolResult
