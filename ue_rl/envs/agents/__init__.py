"""The trainer's side of several agents in one env: groups for Stable-Baselines3, PettingZoo, RLlib, self-play.

    env = GroupVecEnv(transport, "striker", others={"goalie": goalie})     all strikers as the rows of one VecEnv
    env = UnrealParallelEnv(transport)                                     PettingZoo; needs pettingzoo

RLlib's env is `ue_rl.plugins.rllib.UnrealMultiAgentEnv`. See docs/agents.md. Names are loaded when first used.
"""

from ue_rl.system.lazy import lazy

__getattr__, __dir__ = lazy(__name__, optional=("UnrealParallelEnv",))
