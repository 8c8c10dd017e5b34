# The names of this package, each imported when it is first used (ue_rl/system/lazy.py).
from ue_rl.envs.agents.buffers import ActiveDictReplayBuffer as ActiveDictReplayBuffer
from ue_rl.envs.agents.buffers import ActiveDictRolloutBuffer as ActiveDictRolloutBuffer
from ue_rl.envs.agents.buffers import ActiveReplayBuffer as ActiveReplayBuffer
from ue_rl.envs.agents.buffers import ActiveRolloutBuffer as ActiveRolloutBuffer
from ue_rl.envs.agents.buffers import ActiveRows as ActiveRows
from ue_rl.envs.agents.group import GroupTransport as GroupTransport
from ue_rl.envs.agents.multi_agent_env import AgentsEnv as AgentsEnv
from ue_rl.envs.agents.parallel_env import UnrealParallelEnv as UnrealParallelEnv
from ue_rl.envs.agents.players import NormalizedPolicy as NormalizedPolicy
from ue_rl.envs.agents.selfplay import SelfPlay as SelfPlay
from ue_rl.envs.agents.selfplay_options import SelfPlayOptions as SelfPlayOptions
from ue_rl.envs.agents.sides import SidesTransport as SidesTransport
from ue_rl.envs.agents.vec_env import GroupVecEnv as GroupVecEnv
from ue_rl.envs.agents.vec_env import learn_in_turn as learn_in_turn
