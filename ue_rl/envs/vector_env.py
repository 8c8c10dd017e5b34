"""UnrealVectorEnv: N envs of an engine as a gymnasium.vector.VectorEnv."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ue_rl.envs.actions import ActionWriter
from ue_rl.envs.gym_env import start_episodes
from ue_rl.envs.observations import Observation, Observations
from ue_rl.envs.spaces import action_space, observation_space
from ue_rl.errors import ConfigurationError
from ue_rl.transport import Transport


class UnrealVectorEnv(gym.vector.VectorEnv[Any, NDArray[Any], NDArray[Any]]):
    """N envs of a game engine.

    Args:
        transport: connected here if it is not yet; owned from now on and closed by `close()`.
        autoreset_mode: SAME_STEP (finished envs are reset in one further round trip of the same step, their last
            observation is in infos["final_obs"]) or DISABLED (call `reset(options={"reset_mask": mask})`).

    Attributes:
        single_observation_space, single_action_space: of one env; observation_space, action_space: batched.

    Raises:
        ConfigurationError: another autoreset mode. Also what transport.connect() raises.
    """

    def __init__(self, transport: Transport, *, autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP) -> None:
        if autoreset_mode not in (AutoresetMode.SAME_STEP, AutoresetMode.DISABLED):
            raise ConfigurationError(
                "this autoreset mode is not supported", field="autoreset_mode", expected="SAME_STEP or DISABLED",
                got=str(autoreset_mode),
            )  # fmt: skip
        self.transport = transport
        self.engine_spec = spec = transport.connect()
        self.num_envs = spec.num_envs
        self.autoreset_mode = autoreset_mode
        self.metadata = {"render_modes": [], "autoreset_mode": autoreset_mode}
        self.single_observation_space = observation_space(spec)
        self.single_action_space = action_space(spec)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._writer = ActionWriter(spec)
        self._observations = Observations(spec)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts new episodes: observations, as `observation_space` says, and infos.

        Args:
            seed: one for all (env i gets seed + i) or one per env.
            options: for every env; "reset_mask" (bool [num_envs]) picks the envs and is not sent on.

        Raises:
            ConfigurationError: seeds or a mask of the wrong length.
        """
        options = dict(options or {})
        mask = np.asarray(options.pop("reset_mask", np.ones(self.num_envs, np.bool_)))
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise ConfigurationError("a reset mask has a bool per env, one of them True", field="reset_mask", got=mask)
        if isinstance(seed, np.integer):
            seed = int(seed)
        super().reset(seed=seed if isinstance(seed, int) else None)
        if isinstance(seed, int):
            seed = [seed + i for i in range(self.num_envs)]
        if seed is not None and len(seed) != self.num_envs:
            raise ConfigurationError("one seed per env", field="seed", expected=self.num_envs, got=len(seed))
        env_ids = np.flatnonzero(mask).tolist()
        buffers = start_episodes(
            self.transport,
            None if mask.all() else env_ids,
            [seed[i] for i in env_ids] if seed is not None else None,
            [options] * len(env_ids) if options else None,
        )
        return self._observations.read(buffers), self._infos(buffers.infos)

    def step(self, actions: Any) -> tuple[Observation, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """One step of every env.

        Returns:
            observations, as `reset` gives them, rewards float64 [num_envs], terminations and truncations bool
            [num_envs], infos.
        """
        self.transport.send_actions(self._writer(actions))
        buffers = self.transport.receive()
        obs = self._observations.read(buffers)
        rewards = buffers.rewards.astype(np.float64)
        dones = buffers.dones != 0
        truncations = buffers.truncated != 0
        infos: dict[str, Any] = {}
        if self.autoreset_mode == AutoresetMode.SAME_STEP and dones.any():
            finished = np.flatnonzero(dones).tolist()
            for env in finished:
                last = {"final_obs": self._observations.row(obs, env), "final_info": dict(buffers.infos.get(env, {}))}
                infos = self._add_info(infos, last, env)
            running = {env: info for env, info in buffers.infos.items() if not dones[env]}
            self.transport.reset(finished)
            buffers = self.transport.receive()
            self._observations.put(obs, buffers, finished)
            infos = self._infos({**running, **buffers.infos}, infos)
        else:
            infos = self._infos(buffers.infos)
        return obs, rewards, dones & ~truncations, truncations, infos

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the connection; `close()` calls it once."""
        self.transport.close()

    def _infos(self, per_env: dict[int, dict[str, Any]], into: dict[str, Any] | None = None) -> dict[str, Any]:
        infos = {} if into is None else into
        for env, info in per_env.items():
            infos = self._add_info(infos, info, env)
        return infos
