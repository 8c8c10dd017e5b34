"""`ue_rl/Engine-v0` for gymnasium.make and gymnasium.make_vec; importing this module registers it.

env = gymnasium.make("ue_rl/Engine-v0", url="tcp://127.0.0.1:7777")
envs = gymnasium.make_vec("ue_rl/Engine-v0", num_envs=16, url="tcp://127.0.0.1:7777")
"""

from __future__ import annotations

from gymnasium.envs.registration import register, registry

ENGINE_ID = "ue_rl/Engine-v0"


def register_engine() -> None:
    """Registers it, where that has not happened yet."""
    if ENGINE_ID not in registry:
        register(
            ENGINE_ID,
            entry_point="ue_rl.connecting:make_env",
            vector_entry_point="ue_rl.connecting:make_vector_env",
        )


register_engine()
