"""EngineEnvs: the envs of one engine in the place of a tianshou vector env (used by tianshou_ppo.py).

tianshou steps all envs and then resets the finished ones; an engine does each for all of them in one round trip.
"""

from typing import Any

import numpy as np
from tianshou.env import BaseVectorEnv


class EngineEnvs(BaseVectorEnv):
    """For collecting steps (`collection_step_num_env_steps`, `Collector.collect(n_step=)`): all envs, in every step.

    Args:
        envs: an UnrealVectorEnv with AutoresetMode.DISABLED, or a Gymnasium wrapper around one.
    """

    def __init__(self, envs: Any) -> None:
        self.envs, self.env_num, self.is_async, self.is_closed = envs, envs.num_envs, False, False

    def get_env_attr(self, key: str, id: Any = None) -> list[Any]:
        """`action_space` and `observation_space` of one env; None for what is not known here."""
        return [getattr(self.envs, f"single_{key}", None) for _ in self._wrap_id(id)]

    def reset(self, env_id: Any = None, **kwargs: Any) -> tuple[Any, Any]:
        """Begins episodes in these envs."""
        chosen = np.array(self._wrap_id(env_id))
        mask = np.isin(np.arange(self.env_num), chosen)
        obs, _ = self.envs.reset(seed=kwargs.get("seed"), options={"reset_mask": mask})
        return obs[chosen], np.array([{} for _ in chosen])

    def step(self, action: Any, id: Any = None) -> Any:
        """Steps all envs."""
        if len(action) != self.env_num:
            raise ValueError("an engine steps all its envs at once: collect steps, not episodes")
        return *self.envs.step(action)[:4], np.array([{"env_id": env} for env in range(self.env_num)])

    def close(self) -> None:
        """Closes the connection."""
        self.envs.close()
