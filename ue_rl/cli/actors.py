"""Who acts in `ue-rl play` without a model: chance, or a function of yours."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ue_rl.cli.common import command_line
from ue_rl.system.errors import ConfigurationError
from ue_rl.system.loading import loaded
from ue_rl.system.seeds import own_seed


def actor_of(text: str, vec_env: Any, seed: int | None) -> Any:
    """Something with SB3's predict(): "random", or the module:function that gives actions for the observations of all
    envs, both as SB3's predict() has them.

    Raises:
        WrongCommandLine: it cannot be loaded, or is no function.
    """
    if text == "random":
        return _Random(vec_env, seed)
    with command_line():
        act = loaded(text, "actor")
        if not callable(act):
            raise ConfigurationError("not a function", field="actor", expected="observations -> actions", got=text)
    return SimpleNamespace(predict=lambda observation, *_, **__: (act(observation), None))


class _Random:
    """Actions drawn from the space; of those that are legal, where the engine says so."""

    def __init__(self, vec_env: Any, seed: int | None) -> None:
        self._vec_env = vec_env
        self._space = vec_env.action_space
        self._space.seed(own_seed(seed, "actions"))
        self._masked = vec_env.engine_spec.mask_size > 0 and not hasattr(self._space, "from_rows")

    def predict(self, observation: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        """One action for each env."""
        import numpy as np
        from gymnasium import spaces

        if not self._masked:
            return np.stack([self._space.sample() for _ in range(self._vec_env.num_envs)]), None
        masks = [np.asarray(mask, np.int8) for mask in self._vec_env.env_method("action_masks")]
        if isinstance(self._space, spaces.Discrete):
            return np.stack([self._space.sample(mask=mask) for mask in masks]), None
        cuts = np.cumsum(self._space.nvec)[:-1]
        return np.stack([self._space.sample(mask=tuple(np.split(mask, cuts))) for mask in masks]), None
