"""Envs that Stable-Baselines3 and Gymnasium step. Importing it registers `ue_rl/Engine-v0` with Gymnasium.

import ue_rl.envs
env = gymnasium.make("ue_rl/Engine-v0", url="tcp://127.0.0.1:7777")
envs = gymnasium.make_vec("ue_rl/Engine-v0", num_envs=16, url="tcp://127.0.0.1:7777")
"""

from gymnasium.envs.registration import register, registry

if "ue_rl/Engine-v0" not in registry:  # a notebook may reload the package
    register(
        "ue_rl/Engine-v0",
        entry_point="ue_rl.envs.connect:make_env",
        vector_entry_point="ue_rl.envs.connect:make_vector_env",
    )
