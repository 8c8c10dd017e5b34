"""RLlib over engines (docs/rllib.md): `register()`, and UnrealEnvRunner, an env runner with ue_rl's batched loop.

    import ue_rl.plugins.rllib

    ue_rl.plugins.rllib.register()
    config = (
        PPOConfig()
        .environment("ue_rl", env_config={"engine": "./Game.sh --port {port} --envs {num_envs}"})
        .env_runners(env_runner_cls=ue_rl.plugins.rllib.UnrealEnvRunner, num_env_runners=8, num_envs_per_env_runner=64)
    )

Needs ray[rllib]; nothing else of ue_rl imports Ray.
"""

from ue_rl.system.lazy import lazy

__getattr__, __dir__ = lazy(__name__)
