# The names of this package, each imported when it is first used (ue_rl/system/lazy.py).
from ue_rl import agents as agents
from ue_rl import bridges as bridges
from ue_rl import connections as connections
from ue_rl import errors as errors
from ue_rl import inference as inference
from ue_rl import testing as testing
from ue_rl.agents.parallel_env import UnrealParallelEnv as UnrealParallelEnv
from ue_rl.connecting import connect as connect
from ue_rl.connecting import launch as launch
from ue_rl.envs.gym_env import UnrealEnv as UnrealEnv
from ue_rl.envs.real_time_env import RealTimeEnv as RealTimeEnv
from ue_rl.envs.vec_env import UnrealVecEnv as UnrealVecEnv
from ue_rl.envs.vector_env import UnrealVectorEnv as UnrealVectorEnv
from ue_rl.saving.autosave import AutoSave as AutoSave
from ue_rl.spec import EnvSpec as EnvSpec
from ue_rl.training.overlap import overlap as overlap

__version__: str
