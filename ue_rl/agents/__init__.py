"""The trainer's side of several agents in one env: groups for Stable-Baselines3, PettingZoo, RLlib, self-play.

    env = GroupVecEnv(transport, "striker", others={"goalie": goalie})     all strikers as the rows of one VecEnv
    env = UnrealParallelEnv(transport)                                     PettingZoo; needs pettingzoo

RLlib's env is `ue_rl.rllib.UnrealMultiAgentEnv`. See docs/agents.md. Names are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ue_rl.system.lazy import lazy

if TYPE_CHECKING:
    from ue_rl.agents.buffers import ActiveDictReplayBuffer as ActiveDictReplayBuffer
    from ue_rl.agents.buffers import ActiveDictRolloutBuffer as ActiveDictRolloutBuffer
    from ue_rl.agents.buffers import ActiveReplayBuffer as ActiveReplayBuffer
    from ue_rl.agents.buffers import ActiveRolloutBuffer as ActiveRolloutBuffer
    from ue_rl.agents.buffers import ActiveRows as ActiveRows
    from ue_rl.agents.group import GroupTransport as GroupTransport
    from ue_rl.agents.multi_agent_env import AgentsEnv as AgentsEnv
    from ue_rl.agents.parallel_env import UnrealParallelEnv as UnrealParallelEnv
    from ue_rl.agents.players import NormalizedPolicy as NormalizedPolicy
    from ue_rl.agents.selfplay import SelfPlay as SelfPlay
    from ue_rl.agents.selfplay_options import SelfPlayOptions as SelfPlayOptions
    from ue_rl.agents.sides import SidesTransport as SidesTransport
    from ue_rl.agents.turns import learn_in_turn as learn_in_turn
    from ue_rl.agents.vec_env import GroupVecEnv as GroupVecEnv

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "buffers": "ActiveRows ActiveRolloutBuffer ActiveDictRolloutBuffer ActiveReplayBuffer ActiveDictReplayBuffer",
        "group": "GroupTransport",
        "multi_agent_env": "AgentsEnv",
        "parallel_env": "UnrealParallelEnv",
        "players": "NormalizedPolicy",
        "selfplay": "SelfPlay",
        "selfplay_options": "SelfPlayOptions",
        "sides": "SidesTransport",
        "turns": "learn_in_turn",
        "vec_env": "GroupVecEnv",
    },
    optional=("UnrealParallelEnv",),
)
