"""ue_rl: the bridge between game engines and Stable-Baselines3.

    env = ue_rl.connect("tcp://127.0.0.1:7777")     # N envs of a running game as one SB3 VecEnv
    model = PPO("MlpPolicy", env).learn(100_000)

Names are loaded when first used, so that `import ue_rl.inference` in a shipped game server needs neither
torch nor Stable-Baselines3.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ue_rl.connecting import connect as connect
    from ue_rl.gym_env import UnrealEnv as UnrealEnv
    from ue_rl.gym_vector_env import UnrealVectorEnv as UnrealVectorEnv
    from ue_rl.spec import EnvSpec as EnvSpec
    from ue_rl.vec_env import UnrealVecEnv as UnrealVecEnv

__version__ = "0.1.0"

_HOME = {
    "EnvSpec": "ue_rl.spec",
    "UnrealEnv": "ue_rl.gym_env",
    "UnrealVecEnv": "ue_rl.vec_env",
    "UnrealVectorEnv": "ue_rl.gym_vector_env",
    "connect": "ue_rl.connecting",
}
_ROOMS = frozenset({"bridges", "connections", "errors", "inference", "testing"})

__all__ = ["EnvSpec", "UnrealEnv", "UnrealVecEnv", "UnrealVectorEnv", "__version__", "connect"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"ue_rl.{name}")
    raise AttributeError(f"module 'ue_rl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_ROOMS})
