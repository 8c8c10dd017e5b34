"""UnrealVecEnv: any Transport as a Stable-Baselines3 VecEnv.

What an SB3 user expects holds: automatic resets with `terminal_observation`, `TimeLimit.truncated`,
`reset_infos`, `seed()`, `set_options()`, episode statistics in `info["episode"]`. All finished envs are reset in one
round trip. Every array given out is a copy, unless the caller wants none: SB3 keeps the last observation, and the
transport writes into its own buffers again at the next step. No I/O of its own: that is the transport's.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvStepReturn

from ue_rl.buffers import StepBuffers
from ue_rl.envs.actions import ActionWriter
from ue_rl.envs.gym_env import start_episodes
from ue_rl.envs.observations import Observation, Observations
from ue_rl.envs.spaces import action_space, observation_space
from ue_rl.errors import ConfigurationError, UnsupportedByEngine
from ue_rl.spec import EnvSpec
from ue_rl.transport import Transport

_KNOWN = (
    "render_mode", "spec", "metadata", "observation_space", "action_space", "engine_spec", "max_episode_steps",
)  # fmt: skip
_RESERVED = frozenset(("episode", "terminal_observation", "TimeLimit.truncated"))


class UnrealVecEnv(VecEnv):
    """N envs of a game engine as one VecEnv.

    Args:
        transport: connected here if it is not yet; owned from now on and closed by `close()`.
        max_episode_steps: cut every episode after this many steps, as Gymnasium's TimeLimit does; None: the
            engine alone decides.
        monitor: put {"r": return, "l": length, "t": seconds} into `info["episode"]` at every episode's end.
        copy: False gives out the transport's own observations, which the next step overwrites: for loops that are done
            with an observation before they step. Stable-Baselines3 is not: it would train on rollouts shifted by one.

    Attributes:
        observation_space: Box float32 [obs_size]; with images a Dict or a Box uint8, see ue_rl.envs.spaces.
        action_space: Box, Discrete, MultiDiscrete or MultiBinary, as the handshake says.
        transport: the transport.

    Raises:
        ConfigurationError: max_episode_steps is not positive. Also what transport.connect() raises.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - VecEnv's own attribute, set anew per instance

    def __init__(
        self, transport: Transport, *, max_episode_steps: int | None = None, monitor: bool = True, copy: bool = True
    ) -> None:
        if max_episode_steps is not None and max_episode_steps < 1:
            raise ConfigurationError(
                "an episode has at least one step", field="max_episode_steps", got=max_episode_steps
            )
        self.transport = transport
        self.engine_spec: EnvSpec = transport.connect()
        self.max_episode_steps = max_episode_steps
        self.render_mode = self.spec = None
        n = self.engine_spec.num_envs
        self._writer = ActionWriter(self.engine_spec, zero_based=True)
        self._observations = Observations(self.engine_spec, copy, zero_based=True)
        self._monitor = monitor
        self._begun = time.time()
        self._returns = np.zeros(n, np.float64)
        self._steps = 0
        self._started = np.zeros(n, np.int64)  # the step at which each env's episode began
        self._told: set[str] = set()
        super().__init__(
            n, observation_space(self.engine_spec, zero_based=True), action_space(self.engine_spec, zero_based=True)
        )

    # -- the step

    def reset(self) -> Observation:
        """Starts a new episode in every env; float32 [num_envs, obs_size], or as `observation_space` says.

        Seeds given by `seed()` and options given by `set_options()` go with it and are used up. A step that was sent
        and not waited for, because of a Ctrl-C, is dropped.
        """
        seeds, options = self._used("SEED", self._seeds), self._used("OPTIONS", self._options)
        buffers = start_episodes(self.transport, None, seeds, options)
        self._returns[:] = 0
        self._started[:] = self._steps
        self.reset_infos = [dict(buffers.infos.get(env, {})) for env in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return self._observations.read(buffers)

    def step_async(self, actions: Any) -> None:
        """Sends one action per env; see ue_rl.envs.actions.ActionWriter for shapes and errors."""
        self.transport.send_actions(self._writer(actions))

    def step_wait(self) -> VecEnvStepReturn:
        """Waits for all envs and resets the finished ones.

        Returns:
            observations, as `reset` gives them (of the new episode where one ended), rewards float32
            [num_envs], dones bool [num_envs], infos. What the engine sends under a key that SB3 reads (`episode`,
            `terminal_observation`, `TimeLimit.truncated`) is in info["engine"].
        """
        buffers = self.transport.receive()
        obs = self._observations.read(buffers)
        rewards = buffers.rewards.copy()
        dones = buffers.dones.astype(np.bool_)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if buffers.infos:
            for env, info in buffers.infos.items():
                infos[env].update(info)
                if not _RESERVED.isdisjoint(info):
                    infos[env]["engine"] = {key: infos[env].pop(key) for key in info if key in _RESERVED}
        self._steps += 1
        if self._monitor:
            np.add(self._returns, rewards, out=self._returns)
        if self.max_episode_steps is not None:
            dones |= self._steps - self._started >= self.max_episode_steps
        if np.count_nonzero(dones):
            self._finish(np.flatnonzero(dones).tolist(), buffers, obs, infos)
        return obs, rewards, dones, infos

    def _finish(self, finished: list[int], buffers: StepBuffers, obs: Observation, infos: list[dict[str, Any]]) -> None:
        """Notes what ended, then resets those envs in one round trip; writes their first observations into `obs`."""
        for env in finished:
            info = infos[env]
            info["terminal_observation"] = self._observations.row(obs, env)
            ended_by_engine = bool(buffers.dones[env])
            info["TimeLimit.truncated"] = bool(buffers.truncated[env]) if ended_by_engine else True
            if self._monitor:
                info["episode"] = {
                    "r": round(float(self._returns[env]), 6),
                    "l": int(self._steps - self._started[env]),
                    "t": round(time.time() - self._begun, 6),
                }
        self.transport.reset(finished)
        buffers = self.transport.receive()
        self._observations.put(obs, buffers, finished)
        self._returns[finished] = 0
        self._started[finished] = self._steps
        for env in finished:
            self.reset_infos[env] = dict(buffers.infos.get(env, {}))

    def _used(self, feature: str, values: Sequence[Any]) -> Sequence[Any] | None:
        """The seeds or options to send; None where there are none or the engine takes none (said once)."""
        given = any(v is not None and v != {} for v in values)
        if not given:
            return None
        if feature in self.engine_spec.features:
            return [None if v == {} else v for v in values]
        what = "seeds: episodes will not be reproducible" if feature == "SEED" else "reset options: they are left out"
        if feature not in self._told:
            self._told.add(feature)
            warnings.warn(f"the engine takes no {what} (no FEATURES={feature} in its handshake)", stacklevel=3)
        return None

    # -- everything else a VecEnv has

    def close(self) -> None:
        """Closes the connection; idempotent."""
        self.transport.close()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """What the client itself knows about each env: render_mode, spec, spaces, max_episode_steps.

        Raises:
            UnsupportedByEngine: (an AttributeError) anything else lives inside the engine.
        """
        if attr_name not in _KNOWN:
            raise self._inside("get_attr", attr_name)
        return [getattr(self, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Sets render_mode (only to None) or max_episode_steps, for all envs at once.

        Raises:
            UnsupportedByEngine: anything else lives inside the engine.
        """
        if attr_name == "render_mode" and value is None:
            return
        if attr_name == "max_episode_steps" and len(self._get_indices(indices)) == self.num_envs:
            self.max_episode_steps = None if value is None else int(value)
            return
        raise self._inside("set_attr", attr_name)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """No method of an env can be called through the bridge.

        Raises:
            UnsupportedByEngine: always, with what to use instead.
        """
        raise self._inside("env_method", method_name)

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """No Gymnasium wrapper runs inside the engine: all False."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """The engine draws its own window: nothing here."""
        return [None] * self.num_envs

    def _get_indices(self, indices: VecEnvIndices) -> list[int]:
        n, chosen = self.num_envs, list(super()._get_indices(indices))
        for env in chosen:
            if not -n <= env < n:
                raise IndexError(f"env index {env} is outside 0..{n - 1}")
        return chosen

    def _inside(self, call: str, name: str) -> UnsupportedByEngine:
        return UnsupportedByEngine(
            f"{call}({name!r}) asks for something that lives inside the engine", fault="caller",
            expected=", ".join(_KNOWN),
            cure="pass values at the start of an episode with set_options(), or wrap the VecEnv",
        )  # fmt: skip
