"""UnrealVectorEnv: N envs of an engine as a gymnasium.vector.VectorEnv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from ue_rl.envs.actions import ActionWriter
from ue_rl.envs.controls import EngineControls, check_render_mode, refuse_agents, render_modes
from ue_rl.envs.infos import stacked, taken
from ue_rl.envs.observations import Observation, Observations
from ue_rl.envs.spaces import action_space, observation_space
from ue_rl.envs.stepper import Stepper
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.spaces.gymnasium import batched
from ue_rl.protocol.transport import Transport, owns_transport
from ue_rl.system.errors import ConfigurationError, UnsupportedByEngine

_MODES = ", ".join(mode.name for mode in AutoresetMode)


class UnrealVectorEnv(EngineControls, gym.vector.VectorEnv[Any, Any, NDArray[Any]]):
    """N envs of a game engine.

    Args:
        transport: connected here if it is not yet; owned from now on and closed by `close()`.
        autoreset_mode: what happens to an env whose episode is over, as Gymnasium defines it.
            NEXT_STEP, the default: its next step ignores the action and begins a new episode: that one's first
            observation, reward 0, not terminated. In the same round trip as the other envs' steps.
            SAME_STEP: it is reset in the step that ended it, in one further round trip; its last observation and info
            are in infos["final_obs"] and infos["final_info"].
            DISABLED: call `reset(options={"reset_mask": mask})`.
        render_mode: "rgb_array": `render` gives the engine's pictures (FEATURES=RENDER).

    Attributes:
        single_observation_space, single_action_space: of one env, as ue_rl.envs.spaces says; observation_space,
            action_space: batched.

    Infos are Gymnasium's: an array for each key and a mask `_key`. With FEATURES=MASK infos["action_mask"] holds the
    masks of the observations that stand beside it, int8 [num_envs, mask_size].

    Raises:
        ConfigurationError: there is no such autoreset mode or render_mode, or the envs hold agents.
        UnsupportedByEngine: render_mode, but the engine sends no pictures. Also what transport.connect() raises.
    """

    @owns_transport
    def __init__(
        self,
        transport: Transport,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        self.closed = True  # until there is something to close: Gymnasium closes what is collected
        self.autoreset_mode = _mode(autoreset_mode)
        self.transport = transport
        self.stepper = Stepper(transport)
        self.engine_spec = spec = self.stepper.spec
        self.closed = False
        refuse_agents(spec)
        self.num_envs = spec.num_envs
        self.render_mode = check_render_mode(spec, render_mode)
        self.metadata = {
            "render_modes": render_modes(spec), "render_fps": spec.render_fps, "autoreset_mode": self.autoreset_mode,
        }  # fmt: skip
        self.single_observation_space = observation_space(spec)
        self.single_action_space = action_space(spec)
        self.observation_space = batched(self.single_observation_space, self.num_envs)
        self.action_space = batched(self.single_action_space, self.num_envs)
        self._writer = ActionWriter(spec)
        self._observations = Observations(spec)
        self._over = np.zeros(self.num_envs, np.bool_)  # envs whose episode is over and has not begun again
        self._nobody = self._over
        self._begins = self._nobody  # envs that begin an episode in the step that is under way

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts new episodes: observations, as `observation_space` says, and infos.

        Args:
            seed: one for all (env i gets seed + i) or one per env.
            options: for every env; "reset_mask" (bool [num_envs]) picks the envs and is not sent on.

        Raises:
            ConfigurationError: seeds or a mask of the wrong length, or a mask without True. With a mask that is not
                bool it is a TypeError too, as in Gymnasium.
        """
        options = dict(options or {})
        mask = _check_mask(options.pop("reset_mask", np.ones(self.num_envs, np.bool_)), self.num_envs)
        if isinstance(seed, np.integer):
            seed = int(seed)
        super().reset(seed=seed if isinstance(seed, int) else None)
        if isinstance(seed, int):
            seed = [seed + i for i in range(self.num_envs)]
        if seed is not None and len(seed) != self.num_envs:
            raise ConfigurationError("one seed per env", field="seed", expected=self.num_envs, got=len(seed))
        if seed is not None:
            self._np_random_seed = tuple(seed)  # type: ignore[assignment]  # as its own vector envs: one for each
        env_ids = np.flatnonzero(mask).tolist()
        self._over = self._over & ~mask
        seeds = None
        if seed is not None:
            seeds = [seed[i] for i in env_ids]
        all_options = None
        if options:
            all_options = [options] * len(env_ids)
        begun: list[int] | None = env_ids
        if mask.all():
            begun = None
        buffers = self.stepper.start(begun, seeds, all_options, over=np.flatnonzero(self._over).tolist())
        return self._observations.read(buffers), self._infos(buffers.infos)

    def step(self, actions: Any) -> tuple[Observation, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """One step of every env.

        Returns:
            observations, as `reset` gives them, rewards float64 [num_envs], terminations and truncations bool
            [num_envs], infos.

        Raises:
            ActionError: see ActionWriter. ConfigurationError: an episode is over and autoreset is DISABLED.
        """
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Sends what `step` sends; errors as there. `step_wait` must follow before anything else is asked."""
        if not np.count_nonzero(self._over):
            self.stepper.ask(self._writer(actions))
            self._begins = self._nobody
            return
        if self.autoreset_mode == AutoresetMode.DISABLED:
            raise ConfigurationError(
                "the episode is over and autoreset is DISABLED",
                env_id=int(self._over.argmax()),
                cure='reset it: reset(options={"reset_mask": mask})',
            )
        self.stepper.ask_or_begin(self._writer(actions, self._over), self._over)
        self._begins = self._over

    def step_wait(
        self, timeout: float | None = None
    ) -> tuple[Observation, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """What `step` returns, of the actions that `step_async` sent.

        Args:
            timeout: for those who call Gymnasium's AsyncVectorEnv so; the connection's own deadline holds.
        """
        buffers = self.stepper.receive()
        obs = self._observations.read(buffers)
        rewards = buffers.rewards.astype(np.float64)
        dones = buffers.dones != 0
        truncations = buffers.truncated != 0
        infos = buffers.infos
        begins = self._begins
        if begins is not self._nobody:
            rewards[begins] = 0
            dones[begins] = False
            truncations[begins] = False
            again = [env for env in np.flatnonzero(begins).tolist() if env in buffers.lost]
            if again:
                infos = self._begin_lost(again, infos, obs)
        if self.autoreset_mode != AutoresetMode.SAME_STEP:
            self._over = dones
            told = self._infos(infos)
        elif np.count_nonzero(dones):
            told = self._reset_finished(buffers, obs, dones, truncations)
        else:
            told = self._infos(infos)
        return obs, rewards, dones & ~truncations, truncations, told

    def render(self) -> tuple[Any, ...] | None:
        """A picture of each env, uint8 [height, width, channels], or None where it has none now; None alone without
        render_mode="rgb_array"."""
        if self.render_mode is None:
            return None
        return tuple(self._picture(env) for env in range(self.num_envs))

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """As Gymnasium's vector envs have it, for what the engine answers: "render" (FEATURES=RENDER) gives a picture
        of each env, the name of a parameter its value in each.

        Raises:
            UnsupportedByEngine: (an AttributeError) anything else lives inside the engine.
        """
        if name == "render" and "RENDER" in self.engine_spec.features:
            return tuple(self._picture(env) for env in range(self.num_envs))
        if name in self._parameters and not (args or kwargs):
            return tuple(self.get_params([name], env)[name] for env in range(self.num_envs))
        raise self._inside("call", name)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """The value of a parameter in each env; see `call`."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Sets a parameter of the game: a number for all envs, or one for each.

        Raises:
            UnsupportedByEngine: (an AttributeError) anything else lives inside the engine. ConfigurationError: there
                are not as many values as envs, or one is out of range.
        """
        if name not in self._parameters:
            raise self._inside("set_attr", name)
        if not isinstance(values, (list, tuple, np.ndarray)):
            self.set_params({name: values})
            return
        if len(values) != self.num_envs:
            raise ConfigurationError("one value per env", field=name, expected=self.num_envs, got=len(values))
        for env, value in enumerate(values):
            self.set_params({name: float(value)}, env)

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the connection; `close()` calls it once."""
        self.transport.close()

    def _inside(self, call: str, name: str) -> UnsupportedByEngine:
        return UnsupportedByEngine(
            f"{call}({name!r}) asks for something that lives inside the engine",
            expected=", ".join(("render", *self._parameters)),
            cure="pass values at the start of an episode with reset(options=..), or offer a parameter in the engine",
        )

    def _begin_lost(
        self, envs: list[int], infos: Mapping[int, dict[str, Any]], obs: Observation
    ) -> dict[int, dict[str, Any]]:
        """NEXT_STEP: begins the episodes whose engine was lost as they began; their infos with those of the others."""
        found = dict(infos)
        for buffers, begun, _ in self.stepper.begin_again(envs):
            self._observations.put(obs, buffers, begun)
            found.update({env: buffers.infos.get(env, {}) for env in begun})
        return found

    def _reset_finished(
        self, buffers: StepBuffers, obs: Observation, dones: NDArray[np.bool_], truncations: NDArray[np.bool_]
    ) -> dict[str, Any]:
        """SAME_STEP: resets what ended in one round trip, and writes the first observations into `obs`; the infos."""
        finished = np.flatnonzero(dones).tolist()
        last = {env: buffers.infos.get(env, {}) for env in finished}
        last_obs = {env: self._observations.row(obs, env) for env in finished}
        current = {env: info for env, info in buffers.infos.items() if not dones[env]}
        for new, begun, cut in self.stepper.begin_again(finished, also_cut=True):
            for env in cut:  # their engine was lost as others of its envs were reset: they end with this step, too
                last[env] = {**current.pop(env, {}), **new.infos[env]}
                last_obs[env] = self._observations.row(obs, env)
            dones[cut] = True
            truncations[cut] = True
            self._observations.put(obs, new, begun)
            current.update({env: info for env, info in new.infos.items() if env in begun})
        infos = self._infos(current)
        infos["final_obs"] = np.full(self.num_envs, None, object)
        for env, row in last_obs.items():
            infos["final_obs"][env] = row
        infos["final_info"] = stacked(last, self.num_envs)
        infos["_final_obs"] = dones.copy()
        infos["_final_info"] = dones.copy()
        return infos

    def _infos(self, per_env: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
        """Gymnasium's infos, with the masks of the observations that are given out now."""
        infos = stacked(per_env, self.num_envs) if per_env else {}
        if self.autoreset_mode == AutoresetMode.SAME_STEP:
            for key in infos.keys() & {"final_obs", "final_info"}:
                raise taken(key, int(infos[f"_{key}"].argmax()))
        if self.stepper.masks is not None:
            infos["action_mask"] = self.stepper.masks.current
            infos["_action_mask"] = np.ones(self.num_envs, np.bool_)
        return infos


class _WrongType(ConfigurationError, TypeError):
    """What Gymnasium raises a TypeError for."""


def _check_mask(mask: Any, num_envs: int) -> NDArray[np.bool_]:
    """`mask` as an array; refused in Gymnasium's words, which people search for."""
    array = np.asarray(mask)
    wrong = ""
    error = ConfigurationError
    if array.shape != (num_envs,):
        wrong = f"must have shape `({num_envs},)`, got {array.shape}"
    elif array.dtype != np.bool_:
        wrong = f"must have `dtype=np.bool_`, got {array.dtype}"
        error = _WrongType
    elif not array.any():
        wrong = f"must contain a boolean array with at least one True value, got reset_mask={array}"
    if wrong:
        raise error(f"`options['reset_mask']` {wrong}", fault="caller")
    return array


def _mode(mode: AutoresetMode | str) -> AutoresetMode:
    try:
        return AutoresetMode(mode)
    except ValueError:
        raise ConfigurationError(
            "there is no such autoreset mode", field="autoreset_mode", expected=_MODES, got=str(mode)
        ) from None
