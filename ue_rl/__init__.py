"""ue_rl: the bridge between game engines and Stable-Baselines3.

    env = ue_rl.connect("tcp://127.0.0.1:7777")     # N envs of a running game as one SB3 VecEnv
    model = PPO("MlpPolicy", env).learn(100_000)

Names are loaded when first used, so that `import ue_rl.inference` in a shipped game server needs neither
torch nor Stable-Baselines3.
"""

import sys

from ue_rl.system.lazy import lazy

__version__ = "0.1.0"

__getattr__, __dir__ = lazy(__name__, optional=("UnrealParallelEnv",))

if sys.modules.get("gymnasium"):  # ue_rl/Engine-v0 is registered; `import ue_rl` alone does not load Gymnasium
    import ue_rl.envs  # noqa: F401
