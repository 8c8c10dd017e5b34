"""Several groups that all learn: each with a model of its own, one after the other, the others playing along."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ue_rl.agents.players import NormalizedPolicy
from ue_rl.agents.vec_env import GroupVecEnv
from ue_rl.errors import ConfigurationError


def learn_in_turn(models: Mapping[str, Any], total_timesteps: int, turn: int, **options: Any) -> None:
    """Lets each group's model learn for `turn` rows of its own, until each has learnt `total_timesteps`.

    While one learns the others act with the weights that they have by then. All models' envs are GroupVecEnvs over
    one transport (`GroupVecEnv(transport, group)` for each), in VecNormalize or not.

    Args:
        models: group to SB3 model.
        options: of `model.learn`.

    Raises:
        ConfigurationError: a model's env is not such a VecEnv, or is another group's.
    """
    envs = {group: _group_env(group, model) for group, model in models.items()}
    for group, env in envs.items():
        for other, model in models.items():
            if other != group:
                env.set_player(other, _player(model))
    learnt = dict.fromkeys(models, 0)
    while min(learnt.values()) < total_timesteps:
        for group, model in models.items():
            steps = min(turn, total_timesteps - learnt[group])
            if steps <= 0:
                continue
            model.set_env(model.get_env(), force_reset=True)  # somebody else has stepped the engine meanwhile
            before = model.num_timesteps
            model.learn(steps, reset_num_timesteps=False, **options)
            learnt[group] += model.num_timesteps - before


def _player(model: Any) -> Any:
    statistics = model.get_vec_normalize_env()
    return model if statistics is None else NormalizedPolicy(model, statistics)


def _group_env(group: str, model: Any) -> GroupVecEnv:
    env = model.get_env()
    unwrapped = getattr(env, "unwrapped", env)
    if not isinstance(unwrapped, GroupVecEnv):
        raise ConfigurationError("the model's env is not a GroupVecEnv", field="models", got=type(unwrapped).__name__)
    if unwrapped.transport.group != group:
        raise ConfigurationError(
            "the model's env is another group's", field="models", expected=group, got=unwrapped.transport.group
        )
    return unwrapped
