"""register(): the envs "ue_rl" and "ue_rl_agents" for RLlib's own env runners.

Source: ray.rllib.env.single_agent_env_runner, ray.rllib.env.multi_agent_env_runner (Ray 2.60).
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ray.tune.registry import register_env

from ue_rl.envs.vector_env import UnrealVectorEnv
from ue_rl.errors import ConfigurationError
from ue_rl.rllib.engines import open_engines

if TYPE_CHECKING:
    from ue_rl.rllib.multi_agent_env import UnrealMultiAgentEnv

NAME = "ue_rl"
_SEEDS = 1000  # between two envs of one env runner
_made = itertools.count()


def register(name: str = NAME) -> None:
    """Makes "ue_rl", and "ue_rl_agents" for engines with agents, envs of RLlib's; Ray takes them along to its workers.

    With UnrealEnvRunner everything of `open_engines` works. RLlib's stock runner needs
    `gym_env_vectorize_mode="vector_entry_point"`, and does not tell a vector env which runner it is in: {worker_index}
    is 0 in all of them, so let engines be started ({port} is always a free one).
    """
    register_env(name, make_env)
    register_env(f"{name}_agents", make_agents_env)


def make_env(env_config: Mapping[str, Any]) -> UnrealVectorEnv:
    """The vector env of an env runner: `env_config` with "num_envs", as RLlib's vector_entry_point gives it.

    Raises:
        ConfigurationError: there is no "num_envs"; see `open_engines`.
    """
    said = dict(env_config)
    num_envs = int(said.pop("num_envs", 1))
    engines = open_engines(said, num_envs, getattr(env_config, "worker_index", 0) or 0)
    return UnrealVectorEnv(engines)


def make_agents_env(env_config: Mapping[str, Any]) -> UnrealMultiAgentEnv:
    """One env with agents, over an engine of its own: RLlib makes as many as an env runner has envs.

    Args:
        env_config: see `open_engines`. Each env of a process has another `seed`.

    Raises:
        ConfigurationError: the engine has more than one env, or no agents; see `open_engines`.
    """
    from ue_rl.rllib.multi_agent_env import UnrealMultiAgentEnv

    said = {**env_config, "seed": env_config.get("seed", 0) + _SEEDS * next(_made)}
    return UnrealMultiAgentEnv(open_engines(said, 1, getattr(env_config, "worker_index", 0) or 0))


def by_group(*groups: str) -> Callable[..., str]:
    """A policy_mapping_fn: all agents of a group (striker_0, striker_1; a group of one: goalie) share a policy.

        config.multi_agent(policies={"striker", "goalie"}, policy_mapping_fn=by_group("striker", "goalie"))

    Args:
        groups: the names of the handshake's groups, which are those of the policies.

    Raises:
        ConfigurationError: (the function) the agent is of none of them.
    """
    return functools.partial(_group_of, groups)


def _group_of(groups: tuple[str, ...], agent: str, *_: object, **__: object) -> str:
    for group in groups:
        if agent == group or (agent.startswith(f"{group}_") and agent[len(group) + 1 :].isdigit()):
            return group
    what = "an agent is of none of the groups"
    cure = "name all groups of the engine: ue-rl inspect shows them"
    raise ConfigurationError(what, field="policy_mapping_fn", expected=", ".join(groups), got=agent, cure=cure)
