"""UnrealEnv: one env of an engine as a gymnasium.Env, for everything that is not Stable-Baselines3.

Takes any Transport whose handshake has one env (SINGLE, RLBASE, or MULTI with ENV_COUNT=1).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, SupportsFloat

import gymnasium as gym
from gymnasium import spaces

from ue_rl.buffers import StepBuffers
from ue_rl.envs.actions import ActionWriter
from ue_rl.envs.observations import Observation, Observations
from ue_rl.envs.spaces import action_space, observation_space
from ue_rl.errors import ConfigurationError, UnexpectedMessage
from ue_rl.transport import Options, Seeds, Transport


def start_episodes(
    transport: Transport, env_ids: Sequence[int] | None = None, seeds: Seeds = None, options: Options = None
) -> StepBuffers:
    """Resets `env_ids` (None: all) and waits for their first observations.

    Seeds and options go to an engine that takes them; another one is left alone. A Ctrl-C between a step's request and
    its answers leaves the answers owed: they are taken in and dropped first.
    """
    features = transport.spec.features
    with suppress(UnexpectedMessage):  # as a rule nothing was asked
        transport.receive()
    transport.reset(env_ids, seeds if "SEED" in features else None, options if "OPTIONS" in features else None)
    return transport.receive()


class UnrealEnv(gym.Env[Any, Any]):
    """One env of a game engine.

    Args:
        transport: connected here if it is not yet; owned from now on and closed by `close()`.

    Attributes:
        observation_space: Box float32 [obs_size]; with images as ue_rl.envs.spaces says.
        action_space: as the handshake says.

    Raises:
        ConfigurationError: the engine has more than one env. Also what transport.connect() raises.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - gymnasium.Env's own attribute

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        spec = transport.connect()
        if spec.num_envs != 1:
            transport.close()
            raise ConfigurationError(
                "a gymnasium.Env is one env", field="ENV_COUNT", expected=1, got=spec.num_envs,
                cure="use UnrealVecEnv or UnrealVectorEnv for several",
            )  # fmt: skip
        self.engine_spec = spec
        self.observation_space: spaces.Space[Any] = observation_space(spec)
        self.action_space = action_space(spec)
        self._writer = ActionWriter(spec)
        self._observations = Observations(spec, copy=False)  # a row of it is copied

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Starts an episode; its first observation and the engine's info."""
        super().reset(seed=seed)
        buffers = start_episodes(self.transport, None, None if seed is None else [seed], [options] if options else None)
        return self._read(buffers), dict(buffers.infos.get(0, {}))

    def step(self, action: Any) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        """One step: observation, reward, terminated, truncated, info.

        Raises:
            ActionError: a wrong shape, NaN, or a choice that does not exist.
        """
        self.transport.send_actions(self._writer.one(action))
        buffers = self.transport.receive()
        done, truncated = bool(buffers.dones[0]), bool(buffers.truncated[0])
        info = dict(buffers.infos.get(0, {}))
        return self._read(buffers), float(buffers.rewards[0]), done and not truncated, truncated, info

    def _read(self, buffers: StepBuffers) -> Observation:
        return self._observations.row(self._observations.read(buffers), 0)

    def close(self) -> None:
        """Closes the connection; idempotent."""
        self.transport.close()
