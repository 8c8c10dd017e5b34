"""UnrealEnv: one env of an engine as a gymnasium.Env, for everything that is not Stable-Baselines3.

Takes any Transport whose handshake has one env (SINGLE, RLBASE, or MULTI with ENV_COUNT=1).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, SupportsFloat, TypeVar

import gymnasium as gym
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

from ue_rl.envs.actions import ActionWriter
from ue_rl.envs.controls import (
    EngineControls,
    GoalReward,
    check_render_mode,
    goal_reward,
    refuse_agents,
    render_modes,
)
from ue_rl.envs.infos import put_arrays
from ue_rl.envs.observations import Observation, Observations
from ue_rl.envs.spaces import action_space, observation_space
from ue_rl.envs.stepper import Stepper
from ue_rl.protocol.buffers import StepBuffers
from ue_rl.protocol.transport import Transport, owns_transport
from ue_rl.system.errors import ConfigurationError

_Spec = TypeVar("_Spec", bound=GymnasiumSpec)


class UnrealEnv(EngineControls, gym.Env[Any, Any]):
    """One env of a game engine.

    Args:
        transport: connected here if it is not yet; owned from now on and closed by `close()`.
        render_mode: "rgb_array": `render` gives the engine's pictures (FEATURES=RENDER).
        compute_reward: (achieved goals, desired goals, infos) -> rewards, for HerReplayBuffer; None: the engine is
            asked, where it has FEATURES=GOAL_REWARD. Where neither has one the env has no such attribute.

    Attributes:
        observation_space, action_space: as the handshake says, see ue_rl.envs.spaces.
        action_masks: with FEATURES=MASK alone: a function that gives the mask of the last observation, bool
            [mask_size], as sb3-contrib's MaskablePPO reads it. It is in info["action_mask"] too, int8.

    Raises:
        ConfigurationError: the engine has more than one env, or envs with agents; an unknown render_mode.
        UnsupportedByEngine: render_mode, but the engine sends no pictures. Also what transport.connect() raises.
    """

    _made_from: GymnasiumSpec | None = None

    @owns_transport
    def __init__(
        self, transport: Transport, *, render_mode: str | None = None, compute_reward: GoalReward | None = None
    ) -> None:
        self.transport = transport
        self.stepper = Stepper(transport)
        spec = self.stepper.spec
        if spec.num_envs != 1:
            raise ConfigurationError(
                "a gymnasium.Env is one env",
                field="ENV_COUNT",
                expected=1,
                got=spec.num_envs,
                cure="ue_rl.connect(url) gives all of them to Stable-Baselines3 (in place of make_vec_env), "
                "gymnasium.make_vec to others",
            )
        refuse_agents(spec)
        self.engine_spec = spec
        self.metadata = {"render_modes": render_modes(spec), "render_fps": spec.render_fps}
        self.render_mode = check_render_mode(spec, render_mode)
        if self.stepper.masks is not None:
            self.action_masks = functools.partial(self.stepper.masks.action_masks, 0)
        reward = goal_reward(transport, compute_reward)
        if reward is not None:
            self.compute_reward = reward
        self.observation_space: spaces.Space[Any] = observation_space(spec)
        self.action_space = action_space(spec)
        self._writer = ActionWriter(spec)
        self._observations = Observations(spec, copy=False)  # a row of it is copied

    @property
    def spec(self) -> GymnasiumSpec | None:
        """What gymnasium.make has made it from; None without. Its own `make` closes this env: see the class below."""
        return self._made_from

    @spec.setter
    def spec(self, spec: GymnasiumSpec | None) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self._made_from = None if spec is None else _OneConnection.of(spec, self.close)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts an episode; its first observation and the engine's info."""
        super().reset(seed=seed)
        seeds = None
        if seed is not None:
            seeds = [seed]
        all_options = None
        if options:
            all_options = [options]
        buffers = self.stepper.start(None, seeds, all_options)
        return self._read(buffers), self._info(buffers)

    def step(self, action: Any) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        """One step: observation, reward, terminated, truncated, info.

        Raises:
            ActionError: a wrong shape, NaN, or a choice that does not exist.
        """
        self.stepper.ask(self._writer.one(action))
        buffers = self.stepper.receive()
        truncated = bool(buffers.truncated[0])
        terminated = bool(buffers.dones[0]) and not truncated
        return self._read(buffers), float(buffers.rewards[0]), terminated, truncated, self._info(buffers)

    def render(self) -> Any:
        """The engine's picture, uint8 [height, width, channels]; None where it has none now, and without
        render_mode="rgb_array"."""
        if self.render_mode is None:
            return None
        return self._picture(0)

    def _read(self, buffers: StepBuffers) -> Observation:
        return self._observations.row(self._observations.read(buffers), 0)

    def _info(self, buffers: StepBuffers) -> dict[str, Any]:
        info = dict(buffers.infos.get(0, {}))
        put_arrays(info)
        if self.stepper.masks is not None:
            info["action_mask"] = self.stepper.masks.current[0]
        return info

    def close(self) -> None:
        """Closes the connection; idempotent."""
        self.transport.close()


class _OneConnection(GymnasiumSpec):
    """The spec of an env that holds an engine's one connection: an env that it makes gets that connection's place.

    gymnasium.utils.env_checker.check_env makes further envs from the spec of the one that it has checked.
    """

    _close: Callable[[], Callable[[], None] | None]

    @classmethod
    def of(cls, spec: GymnasiumSpec, close: Callable[[], None]) -> _OneConnection:
        """`spec`, whose `make` calls `close` first, as long as there is the object that it belongs to."""
        return _spec_of(cls, {**vars(spec), "_close": weakref.WeakMethod(close)})

    def make(self, **kwargs: Any) -> gym.Env[Any, Any]:
        """See gymnasium's EnvSpec.make."""
        close = self._close()
        if close is not None:
            close()
        return super().make(**kwargs)

    def __reduce__(self) -> Any:
        """A copy is a plain spec."""
        return _spec_of, (GymnasiumSpec, {name: value for name, value in vars(self).items() if name != "_close"})


def _spec_of(kind: type[_Spec], values: dict[str, Any]) -> _Spec:
    spec = kind.__new__(kind)
    vars(spec).update(values)
    return spec
