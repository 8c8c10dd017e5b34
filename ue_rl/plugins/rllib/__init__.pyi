# The names of this package, each imported when it is first used (ue_rl/system/lazy.py).
from ue_rl.plugins.rllib.engines import by_group as by_group
from ue_rl.plugins.rllib.engines import open_engines as open_engines
from ue_rl.plugins.rllib.engines import register as register
from ue_rl.plugins.rllib.env_runner import UnrealEnvRunner as UnrealEnvRunner
from ue_rl.plugins.rllib.exporting import export_rl_module as export_rl_module
from ue_rl.plugins.rllib.failures import NamedFailures as NamedFailures
from ue_rl.plugins.rllib.multi_agent_env import UnrealMultiAgentEnv as UnrealMultiAgentEnv
from ue_rl.plugins.rllib.saved import load_and_export_rl_module as load_and_export_rl_module
