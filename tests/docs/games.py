"""Engines for the blocks of the pages: what each page's reader would have of his own."""

from __future__ import annotations

from typing import Any

import numpy as np

from ue_rl.bridges import VectorBridge
from ue_rl.protocol.commands import Method, messages
from ue_rl.protocol.spec import EnvSpec


class Game(VectorBridge):
    """Has what a page may ask of a game: parameters, pictures, time, commands; an episode has eight steps."""

    def __init__(self, obs_size: int = 2, num_envs: int = 2) -> None:
        features = frozenset({"SEED", "TRUNC", "TIME_SCALE", "PAUSE", "RENDER"})
        super().__init__(EnvSpec(obs_size, 1, num_envs=num_envs, features=features))
        self.steps = np.zeros(num_envs, np.int64)

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.steps[env_ids] = 0
        self.outbox.obs[env_ids] = 0

    def step_envs(self, actions: Any, env_ids: Any) -> None:
        self.steps[env_ids] += 1
        self.outbox.obs[env_ids] += actions[env_ids]
        self.outbox.rewards[env_ids] = -1
        self.outbox.truncated[env_ids] = self.steps[env_ids] >= 8

    def list_parameters(self) -> dict[str, tuple[float, float, float]]:
        return {"gravity": (9.81, 0.0, 20.0), "friction": (0.5, 0.0, 1.0)}

    def set_parameter(self, name: str, value: float, env_id: int) -> None: ...

    def begin_contract(self, *contract: Any) -> None: ...

    def set_time_scale(self, scale: float) -> None: ...

    def set_paused(self, paused: bool) -> None: ...

    def render(self, env_id: int) -> Any:
        return np.zeros((2, 2, 3), np.uint8)

    def register_commands(self, dispatcher: Any) -> None:
        dispatcher.register(Method.GET_ENTITY, lambda payload, command: messages().EntityT(id=payload.id))


class Draws(VectorBridge):
    """A camera; the numbers beside it stay 0."""

    def reset_envs(self, env_ids: Any, seeds: Any, options: Any) -> None:
        self.outbox.image[env_ids] = 7

    def step_envs(self, actions: Any, env_ids: Any) -> None: ...
