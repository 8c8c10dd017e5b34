"""register(): the env "ue_rl" for RLlib's own env runners. Source: ray.rllib.env.single_agent_env_runner (Ray 2.60)."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.tune.registry import register_env

from ue_rl.envs.vector_env import UnrealVectorEnv
from ue_rl.rllib.engines import open_engines

NAME = "ue_rl"


def register(name: str = NAME) -> None:
    """Makes "ue_rl" an env of RLlib's in this process; Ray takes it along to its workers.

    With UnrealEnvRunner everything of `open_engines` works. RLlib's stock runner needs
    `gym_env_vectorize_mode="vector_entry_point"`, and does not tell a vector env which runner it is in: {worker_index}
    is 0 in all of them, so let engines be started ({port} is always a free one).
    """
    register_env(name, make_env)


def make_env(env_config: Mapping[str, Any]) -> UnrealVectorEnv:
    """The vector env of an env runner: `env_config` with "num_envs", as RLlib's vector_entry_point gives it.

    Raises:
        ConfigurationError: there is no "num_envs"; see `open_engines`.
    """
    said = dict(env_config)
    num_envs = int(said.pop("num_envs", 1))
    engines = open_engines(said, num_envs, getattr(env_config, "worker_index", 0) or 0)
    return UnrealVectorEnv(engines)
