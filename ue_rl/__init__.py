"""ue_rl: the bridge between game engines and Stable-Baselines3.

    env = ue_rl.connect("tcp://127.0.0.1:7777")     # N envs of a running game as one SB3 VecEnv
    model = PPO("MlpPolicy", env).learn(100_000)

Names are loaded when first used, so that `import ue_rl.inference` in a shipped game server needs neither
torch nor Stable-Baselines3.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ue_rl.system.lazy import lazy

if TYPE_CHECKING:
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

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "agents.parallel_env": "UnrealParallelEnv",
        "connecting": "connect launch",
        "envs.gym_env": "UnrealEnv",
        "envs.real_time_env": "RealTimeEnv",
        "envs.vec_env": "UnrealVecEnv",
        "envs.vector_env": "UnrealVectorEnv",
        "saving.autosave": "AutoSave",
        "spec": "EnvSpec",
        "training.overlap": "overlap",
        **dict.fromkeys(("agents", "bridges", "connections", "errors", "inference", "testing"), ""),
    },
    optional=("UnrealParallelEnv",),
)

if sys.modules.get("gymnasium"):  # ue_rl/Engine-v0 is registered; `import ue_rl` alone does not load Gymnasium
    import ue_rl.envs  # noqa: F401
