"""Who acts in `ue-rl play` without a model: chance, or a function of yours."""

from __future__ import annotations

import inspect
from typing import Any

from ue_rl.cli.common import WrongCommandLine, command_line
from ue_rl.system.loading import loaded


def actor_of(text: str, vec_env: Any, seed: int | None) -> Any:
    """Something with SB3's predict(): "random", or what module:function names: observations of all envs -> actions.

    A class is made without arguments; an object with predict(observations) is asked by that.

    Raises:
        WrongCommandLine: it cannot be loaded, or called.
    """
    if text == "random":
        return _Random(vec_env, seed)
    with command_line():
        found = loaded(text, "actor")
    made = found() if inspect.isclass(found) else found
    act = getattr(made, "predict", made)
    if not callable(act):
        expected = "a function of the observations of all envs"
        raise WrongCommandLine("nothing that acts", field="actor", expected=expected, got=text)
    return _Scripted(act, act is not made)


class _Random:
    """Actions drawn from the space; of those that are legal, where the engine says so."""

    def __init__(self, vec_env: Any, seed: int | None) -> None:
        self._vec_env, self._space = vec_env, vec_env.action_space
        self._space.seed(seed)
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


class _Scripted:
    def __init__(self, act: Any, gives_states: bool) -> None:
        self._act, self._gives_states = act, gives_states

    def predict(self, observation: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        """What the function gives; a predict() gives a state beside it."""
        given = self._act(observation)
        return (given[0] if self._gives_states else given), None
