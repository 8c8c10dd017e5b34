"""RLlib over engines (docs/rllib.md): `register()`, and UnrealEnvRunner, an env runner with ue_rl's batched loop.

    import ue_rl.rllib

    ue_rl.rllib.register()
    config = (
        PPOConfig()
        .environment("ue_rl", env_config={"engine": "./Game.sh --port {port} --envs {num_envs}"})
        .env_runners(env_runner_cls=ue_rl.rllib.UnrealEnvRunner, num_env_runners=8, num_envs_per_env_runner=64)
    )

Needs ray[rllib]; nothing else of ue_rl imports Ray.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ue_rl.system.lazy import lazy

if TYPE_CHECKING:
    from ue_rl.rllib.engines import by_group as by_group
    from ue_rl.rllib.engines import open_engines as open_engines
    from ue_rl.rllib.engines import register as register
    from ue_rl.rllib.env_runner import UnrealEnvRunner as UnrealEnvRunner
    from ue_rl.rllib.exporting import export_rl_module as export_rl_module
    from ue_rl.rllib.failures import NamedFailures as NamedFailures
    from ue_rl.rllib.multi_agent_env import UnrealMultiAgentEnv as UnrealMultiAgentEnv
    from ue_rl.rllib.saved import load_and_export_rl_module as load_and_export_rl_module

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "engines": "by_group open_engines register",
        "env_runner": "UnrealEnvRunner",
        "exporting": "export_rl_module",
        "failures": "NamedFailures",
        "multi_agent_env": "UnrealMultiAgentEnv",
        "saved": "load_and_export_rl_module",
    },
)
